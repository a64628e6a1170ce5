"""A plan says all that is to be known later: planning changes nothing, and rounds beside prompts teach no costs."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers.planning import TILES, auto_planner, planned, told

from foredraft.bench.simulate import KnownTarget, Simulated, known_sequence, simulate, simulate_round
from foredraft.drafters.base import SequenceView
from foredraft.planner import AutoPlanner, Learned, Plan, RoundTimes
from foredraft.planner.auto import AutoPlan
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.sequence import Batch, PromptChunk
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.testing.synthetic import Acceptance
from foredraft.tree import Budget, DraftTree

TEXT = [place % 997 for place in range(700)]
TILES_S = CostModel(TILES).seconds


class Stateless(SyntheticDrafter):
    """A model that always has as many tokens to compute, whatever it was asked before."""

    num_uncached = 1

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        return self.num_uncached


class Asked(SyntheticDrafter):
    """Model-free; asking takes a hundredth of a pass."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._clock.advance(0.01)
        return super().propose(sequences, budgets)


class Repeating(AutoPlanner):
    """Plans each round several times over. Only the last plan is carried out, and only its time passes."""

    def __init__(self, *args: Any, clock: SimulatedClock, num_extra: int) -> None:
        super().__init__(*args, clock=clock)
        self._simulated, self._num_extra = clock, num_extra

    def plan(self, batch: Batch) -> Plan:
        started, plan = self._simulated.now, super().plan(batch)
        for _ in range(self._num_extra):
            self._simulated.now = started
            before, plan = plan, super().plan(batch)
            assert alike(plan) == alike(before)
        return plan


def alike(plan: Plan) -> list[Any]:
    """All that two plans can be compared by."""
    found = [plan.trees, plan.num_tokens, plan.asked, plan.expected_tokens, plan.expected_s, plan.plain_s]
    if isinstance(plan, AutoPlan):
        found += [plan.due, plan.gained_s, plan.considered, plan.asking_s, plan.draft_s]
        found += [[(one.drafter.name, one.tree, one.chances) for one in several] for several in plan.proposals]
        found += [plan.terms.rate, plan.terms.token_s, plan.terms.overhead_s, plan.terms.remaining]
    return found


def changing(place: int, depth: int) -> float:
    return 0.9 if 250 <= place < 500 else 0.1


@pytest.mark.parametrize("acceptance", [0.0, 0.6, 0.95, changing], ids=["0.0", "0.6", "0.95", "changing"])
@pytest.mark.parametrize(("max_running", "num_uncached"), [(1, 1), (1, 30), (3, 1)])
def test_plans_that_are_never_carried_out_change_nothing(
    acceptance: Acceptance, max_running: int, num_uncached: int
) -> None:
    """Kind: who looks at a plan twice counts down rounds to skip, spends what exploration may take, adds up gains."""

    def run(num_extra: int) -> Simulated:
        clock = SimulatedClock()
        model = Stateless(TEXT, acceptance, step_s=lambda num: 0.1, clock=clock, name="model")
        model.num_uncached = num_uncached
        free = Asked(TEXT, acceptance, seed=1, clock=clock, name="free", confidence=lambda chance: 0.5)
        steps = {"model": StepCosts(Calibration((1, 64), (0.1, 0.3)))}
        planner = Repeating([free, model], CostModel(TILES), steps, clock=clock, num_extra=num_extra)
        sequences = [known_sequence(index, [1, *TEXT[: 700 - 200 * index]], 1) for index in range(3)]
        return simulate(sequences, planner, TILES_S, clock, overhead_s=0.05, max_running=max_running)

    once, thrice = run(0), run(2)
    assert once.rounds == thrice.rounds


def state(part: object) -> Any:
    """All that a planner keeps, to be compared; drafters and functions are the same where they are the same object."""
    if isinstance(part, dict):
        return {key: state(value) for key, value in part.items()}
    if isinstance(part, list | tuple | deque):
        return [state(value) for value in part]
    own = any(kind.__module__.startswith("foredraft.planner") for kind in type(part).__mro__)
    if own and hasattr(part, "__dict__"):
        table = ("_points", "_num_filled")  # of what follows from a calibration alone; it grows when it is looked up
        return {name: state(value) for name, value in vars(part).items() if name not in table}
    return part


class Still(AutoPlanner):
    """Checks that planning changed nothing that it keeps."""

    def plan(self, batch: Batch) -> Plan:
        before = state(self)
        plan = super().plan(batch)
        assert state(self) == before
        return plan


@pytest.mark.parametrize("prefill_s", [0.0, 0.02])
def test_planning_leaves_everything_as_it_is(prefill_s: float) -> None:
    clock, text = SimulatedClock(), TEXT[250:450]
    model = SyntheticDrafter(text, 0.8, step_s=lambda num: 0.1, prefill_s=prefill_s, clock=clock, name="model")
    free = Asked(text, 0.2, seed=1, clock=clock, name="free", confidence=lambda chance: 0.5)
    steps = {"model": StepCosts(Calibration((1, 64), (0.1, 0.1 + 64 * prefill_s)))}
    planner = Still([free, model], CostModel(TILES), steps, clock=clock)
    sequences = [known_sequence(index, [*[1] * 50, *text], 50) for index in range(3)]
    simulate(sequences, planner, TILES_S, clock, overhead_s=0.05, max_running=2)
    assert model.num_calls > 20


def test_a_skipped_round_is_counted_when_it_is_over() -> None:
    """The same plan is made until it is carried out; then the next one."""
    clock = SimulatedClock()

    class Slow(SyntheticDrafter):
        def propose(self, *args: Any) -> list[DraftTree]:
            clock.advance(0.02)
            return super().propose(*args)

    drafter, sequence = Slow(TEXT, 0.0, clock=clock), known_sequence(0, [1, *TEXT], 1)
    planner = auto_planner([drafter], clock)
    skipped = 0
    for _ in range(60):
        plan = planned(planner, sequence)
        if not isinstance(plan, AutoPlan):
            skipped += 1
            for _ in range(40):
                assert not isinstance(planned(planner, sequence), AutoPlan)
        sequence.tokens.append(TEXT[len(sequence.tokens) - 1])
        planner.observe(plan, told(plan, [()], RoundTimes(0.02, 1.0, 0.0)))
    assert 0 < skipped < 60


# --- prompts in the same pass -----------------------------------------------------------------------------------------


def chunk(num_tokens: int) -> PromptChunk:
    waiting = known_sequence(99, [1] * 500, 1)
    waiting.tokens = [1] * 500
    return PromptChunk(waiting, num_tokens)


def test_nodes_beside_a_prompt_cost_what_they_add_to_its_pass() -> None:
    """Kind: beside a large chunk nothing is drafted, as if it stood for the round's own tokens."""
    steps = Calibration((1, 8, 64, 65, 128), (1.0, 1.1, 2.0, 8.0, 8.1))  # up to 8 and from 65 on tokens cost little

    def drafted(num_beside: int) -> int:
        planner = auto_planner([SyntheticDrafter(TEXT, 0.7)], SimulatedClock(), cost=steps)
        chunks = (chunk(num_beside),) if num_beside else ()
        [tree] = planner.plan(Batch((known_sequence(0, [1, *TEXT], 1),), chunks)).trees
        return tree.num_draft_tokens

    assert drafted(0) >= 3
    assert drafted(63) == 0  # the first node would be the 65th token
    assert drafted(80) >= 3


def test_expectations_of_a_round_beside_a_prompt_are_of_the_whole_pass() -> None:
    planner, one = auto_planner([SyntheticDrafter(TEXT, 0.0)], SimulatedClock()), known_sequence(0, [1, *TEXT], 1)
    for sequence in (one, known_sequence(1, [1, 2], 1)):  # considered, and with nothing to draft any more
        plan = planner.plan(Batch((sequence,), (chunk(100),)))
        assert plan.expected_s == pytest.approx(TILES_S(plan.trees[0].num_nodes + 100))
        assert plan.plain_s is None  # a plain run would compute the prompt once, too, and not for every token


def test_of_a_round_beside_a_prompt_acceptance_is_learned_and_no_costs() -> None:
    """Kind: after a long prompt passes seem to take ten times as long, and the text to come a tenth as fast."""
    clock = SimulatedClock()
    drafter = SyntheticDrafter(TEXT, 1.0, clock=clock, confidence=lambda chance: 0.5)
    planner, one = auto_planner([drafter], clock), known_sequence(0, [1, *TEXT], 1)
    target = KnownTarget(TILES_S, clock)
    for _ in range(10):
        simulate_round(Batch((one,)), planner, target, clock, overhead_s=0.05)

    def known() -> tuple[float, ...]:
        plan = planned(planner, one)
        assert isinstance(plan, AutoPlan)
        return plan.terms.rate, plan.terms.token_s, *(plan.terms.pass_s(number) for number in range(1, 40))

    def right() -> float:
        return planner._judge.learned("synthetic")[True].chance(-1, 0.5, 1)

    before, thought = known(), right()
    slow = KnownTarget(lambda *_: 30.0, clock)
    waiting = known_sequence(99, [1] * 500, 1)
    waiting.tokens = [1] * 500
    for _ in range(5):
        simulate_round(Batch((one,), (PromptChunk(waiting, 50),)), planner, slow, clock, overhead_s=3.0)
    # Only what follows from the sequence's length may have changed, and with these costs nothing does.
    assert known() == before
    assert right() > thought
    for _ in range(20):  # but it would be noticed in rounds of its own
        simulate_round(Batch((one,)), planner, slow, clock, overhead_s=0.05)
    assert known()[1] > 5 * before[1]


def test_skipped_rounds_beside_a_prompt_teach_no_speed_either() -> None:
    planner, ending = auto_planner([SyntheticDrafter(TEXT, 1.0)], SimulatedClock()), known_sequence(0, [1] * 90, 1)
    ending.max_length = 2  # nothing fits
    for num_beside, rate in ((0, 1.0), (50, 1.0), (0, 1.0)):
        plan = planner.plan(Batch((ending,), (chunk(num_beside),) if num_beside else ()))
        ending.tokens.append(1)
        seconds = 30.0 if num_beside else 1.0
        planner.observe(plan, told(plan, [()], RoundTimes(0.0, seconds, 0.0), num_prefill_tokens=num_beside))
        assert planner._rate.at_least(0.01) == pytest.approx(rate)


# --- failures ---------------------------------------------------------------------------------------------------------


def test_of_a_sequence_that_failed_nothing_is_learned() -> None:
    """Kind: an outcome that is not there is looked at, or the pass of all who were tried one by one is believed."""
    clock, known = SimulatedClock(), {"model": Learned(greedy_acceptance=(27.0, 30.0), greedy_gain=0.5)}
    model = SyntheticDrafter(TEXT, 1.0, step_s=lambda num: 0.1, clock=clock, name="model")
    free = SyntheticDrafter(TEXT, 1.0, name="free")
    planner = auto_planner([free, model], clock, {"model": Calibration((1, 64), (0.1, 0.3))}, learned=known)
    failed, sound = known_sequence(0, [1, *TEXT], 1), known_sequence(1, [1, *TEXT], 1)
    plan = planned(planner, failed, sound)
    assert all(tree.num_draft_tokens for tree in plan.trees)
    sound.tokens.extend(TEXT[:3])
    result = told(plan, [(), (1, 2)], RoundTimes(0.1, 50.0, 0.0))
    planner.observe(plan, replace(result, outcomes=(None, result.outcomes[1])))
    assert (model.observed, free.observed) == ({1: (1, *TEXT[:3])},) * 2
    assert planner.reason(0) == "auto: ended before its first round"
    assert planner.reason(1).startswith("auto: drafted in 1 of 1 rounds")
    assert planned(planner, sound).plain_s == pytest.approx(1.0)  # and not 50
    for id in (0, 1):
        planner.end(id)


@pytest.mark.parametrize("max_length", [2, 250], ids=["skipped", "considered"])
def test_where_all_have_failed_nothing_is_known(max_length: int) -> None:
    drafter, sequence = SyntheticDrafter(TEXT, 1.0), known_sequence(0, [1, *TEXT], 1)
    sequence.max_length = max_length
    planner = auto_planner([drafter], SimulatedClock())
    before = alike(planned(planner, sequence))
    plan = planned(planner, sequence)
    planner.observe(plan, replace(told(plan, [()], RoundTimes(0.0, 9.0, 9.0)), outcomes=(None,)))
    assert drafter.observed == {}
    assert alike(planned(planner, sequence)) == before
