"""The speed-up that a planner estimates is the one that is measured, against a run without drafts."""

from functools import cache
from itertools import accumulate

import pytest
from helpers.planning import OVERHEAD_S, World

from foredraft.bench.simulate import Simulated, SimulatedRound, known_sequence, simulate
from foredraft.drafters.none import NoDrafter
from foredraft.planner import FixedPlanner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.testing import SimulatedClock, SyntheticDrafter

MEASURED = Calibration((1, 2, 4, 8, 9, 16), (1.0, 1.04, 1.15, 1.6, 1.9, 2.8), 1e-4, 2e-5)
TEXT = [place % 997 for place in range(300)]
NUM_SEQUENCES = 8


def scaled(*factors: float) -> Calibration:
    """As if passes had been measured so many times as slow: one factor for all, or one for each number of tokens."""
    several = factors * 6 if len(factors) == 1 else factors
    seconds = accumulate((one * factor for one, factor in zip(MEASURED.seconds, several, strict=True)), max)
    return Calibration(MEASURED.num_tokens, tuple(seconds), MEASURED.per_position, MEASURED.per_position_token)


def played(planner: FixedPlanner, max_running: int, clock: SimulatedClock) -> Simulated:
    sequences = [known_sequence(index, [1, *TEXT], 1) for index in range(NUM_SEQUENCES)]
    cost = CostModel(MEASURED).seconds
    return simulate(sequences, planner, cost, clock, overhead_s=OVERHEAD_S, max_running=max_running)


def with_as_many(simulated: Simulated, max_running: int) -> list[SimulatedRound]:
    """Rounds that are full, as all of a plain run are: drafts let some sequences end before others."""
    return [one for one in simulated.rounds if len(one.num_drafted) == max_running]


@cache
def plain_speed(max_running: int) -> float:
    return played(FixedPlanner(NoDrafter(), 0), max_running, SimulatedClock()).tokens_per_s


def error(simulated: Simulated, max_running: int) -> float:
    """By which part the estimate is larger than what is measured."""
    full = Simulated(with_as_many(simulated, max_running))
    assert full.num_tokens > 0.5 * NUM_SEQUENCES * len(TEXT)
    return full.estimated_speedup / (full.tokens_per_s / plain_speed(max_running)) - 1.0


@pytest.mark.parametrize("step", [0.0, 0.1])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("factor", [1.0, 2.0, 0.5])
def test_of_one_sequence(acceptance: float, step: float, factor: float) -> None:
    """However fast the machine was when passes were measured."""
    world = World(acceptance, step, MEASURED, thought=scaled(factor))
    simulated = world.run(num_tokens=len(TEXT), num_sequences=NUM_SEQUENCES, max_running=1)
    assert error(simulated, 1) == pytest.approx(0.0, abs=0.05)
    if acceptance == 0.95:
        assert simulated.estimated_speedup > 2.5


@pytest.mark.parametrize("step", [0.0, 0.1])
@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.6, 0.8, 0.95])
@pytest.mark.parametrize("factor", [1.0, 2.0, 0.7])
def test_of_four_sequences(acceptance: float, step: float, factor: float) -> None:
    """Where the machine is slower than it was, passes of four tokens, which drafts leave no room for, are thought to be
    slower by less than they are: it may be the memory alone that is."""
    world = World(acceptance, step, MEASURED, thought=scaled(factor))
    simulated = world.run(num_tokens=len(TEXT), num_sequences=NUM_SEQUENCES, max_running=4)
    assert error(simulated, 4) == pytest.approx(0.0, abs=0.05 if factor >= 1.0 else 0.1)


@pytest.mark.parametrize("max_running", [1, 4])
def test_where_passes_of_many_tokens_seem_dear_only_plain_ones_run_and_are_known(max_running: int) -> None:
    world = World(0.8, 0.0, MEASURED, thought=scaled(1.0, 1.0, 1.0, 1.7, 1.7, 1.7))
    simulated = world.run(num_tokens=len(TEXT), num_sequences=NUM_SEQUENCES, max_running=max_running)
    assert error(simulated, max_running) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(("acceptance", "most"), [(0.3, 0.1), (0.95, 0.35)])
def test_where_only_plain_passes_were_measured_wrongly_the_estimate_is_wrong(acceptance: float, most: float) -> None:
    """A known limit: where every round drafts, nothing shows what a plain round takes but its place in the calibration.
    Here it was measured at 60 % of what it takes."""
    world = World(acceptance, 0.0, MEASURED, thought=scaled(0.6, 0.7, 0.8, 1.0, 1.0, 1.0))
    simulated = world.run(num_tokens=len(TEXT), num_sequences=NUM_SEQUENCES, max_running=1)
    assert -most < error(simulated, 1) < 0.0


@pytest.mark.parametrize("max_running", [1, 4])
@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_of_a_fixed_number_of_tokens(factor: float, max_running: int) -> None:
    clock = SimulatedClock()
    planner = FixedPlanner(SyntheticDrafter(TEXT, 0.8), 3, cost=CostModel(scaled(factor)), clock=clock)
    assert error(played(planner, max_running, clock), max_running) == pytest.approx(0.0, abs=0.05)
