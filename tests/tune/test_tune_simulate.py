"""Rounds over a known text: they emit it, take the time that is said, and are told to the planner as real ones are."""

from helpers.drafting import View

from foredraft.planner import FixedPlanner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.testing import OracleDrafter, ScriptedDrafter, SimulatedClock
from foredraft.tune.simulate import KnownRequest, simulate, simulate_round

TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
COST = CostModel(Calibration((1, 2), (1.0, 1.5), per_position=0.01, per_position_row=0.001)).seconds


def test_a_round_emits_what_is_right_and_the_bonus() -> None:
    drafter = ScriptedDrafter([[7, 8, 3], [], [12, 13, 14]])
    request, clock = KnownRequest(0, TEXT, 2), SimulatedClock()
    planner = FixedPlanner(drafter, 3)
    first = simulate_round([request], planner, COST, clock, overhead_s=0.25)
    assert request.tokens == TEXT[:5]
    assert (first.num_tokens, first.num_drafted, first.num_accepted) == (3, (3,), (2,))
    assert first.times.verify == 1.0 + 3 * 0.5 + 0.01 * 2 + 0.001 * 2 * 4
    assert clock() == first.times.total == first.times.verify + 0.25
    assert drafter.observed == {0: tuple(TEXT[:5])}
    simulate_round([request], planner, COST, clock)
    assert request.tokens == TEXT[:6]


def test_nothing_is_emitted_or_drafted_beyond_the_end() -> None:
    request, clock = KnownRequest(0, TEXT, 2), SimulatedClock()
    planner = FixedPlanner(OracleDrafter([*TEXT[2:], 99, 99]), 5)
    simulated = simulate([request], planner, COST, clock)
    assert request.tokens == TEXT
    assert [one.num_drafted for one in simulated.rounds] == [(5,), (1,)]
    assert simulated.num_tokens == 8
    assert simulated.mean_acceptance_length == 4
    assert simulated.tokens_per_s == 8 / clock()


def test_requests_share_rounds_as_many_as_may_run() -> None:
    drafter = OracleDrafter(TEXT[2:])
    requests = [KnownRequest(index, TEXT, 2) for index in range(3)]
    simulated = simulate(requests, FixedPlanner(drafter, 1), COST, SimulatedClock(), max_running=2)
    assert [len(one.num_drafted) for one in simulated.rounds] == [2] * 4 + [1] * 4
    assert simulated.num_request_rounds == 12
    assert drafter.forgotten == [0, 1, 2]
    assert all(request.finished for request in requests)


def test_what_a_planner_sees_is_what_drafters_see() -> None:
    request = KnownRequest(3, TEXT, 4)
    view = View(TEXT[:4], id=3, num_prompt_tokens=4)
    assert (request.id, request.tokens, request.num_prompt_tokens) == (view.id, view.tokens, view.num_prompt_tokens)
    assert request.max_length == len(TEXT)
