"""Asking model-free drafters takes time as well: where it brings less than that, it is done in some rounds only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from helpers.planning import STEEP, TILES, auto_planner, planned

from foredraft.bench.simulate import Simulated, known_sequence, simulate
from foredraft.drafters.base import Outcome, SequenceView, no_draft
from foredraft.planner import AutoPlanner, Learned, Plan, RoundResult
from foredraft.planner.auto import AutoPlan
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.skipping import Skipping
from foredraft.planner.step_costs import StepCosts
from foredraft.sequence import Batch
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.testing.synthetic import Acceptance
from foredraft.tree import Budget, DraftTree

TILES_S = CostModel(TILES).seconds


def asked_rounds(skipping: Skipping, num_rounds: int, saved_s: float, *, cost_s: float = 0.02) -> list[bool]:
    """Whether sequence 0 is asked for in so many rounds, each of which saves so much then. A token takes a second."""
    asked = []
    for _ in range(num_rounds):
        asked.append(skipping.is_due(0))
        if asked[-1]:
            skipping.count_gain(0, saved_s, 1.0)
            skipping.count_cost(cost_s)
        else:
            skipping.count_skipped(0)
    return asked


def test_what_brings_nothing_is_asked_for_half_a_hundredth_of_the_time() -> None:
    """So little that nobody notices; but a sequence of its first 8 rounds may be one that drafts suit."""
    asked = asked_rounds(Skipping(), 400, 0.0)
    assert all(asked[:8])
    assert not asked[8]
    assert 0.0025 <= 0.02 * fmean(asked[16:]) <= 0.00505


def test_what_brings_more_than_it_takes_is_always_asked() -> None:
    assert all(asked_rounds(Skipping(), 100, 0.03))


def test_one_success_is_enough_to_be_asked_again() -> None:
    skipping = Skipping()
    asked_rounds(skipping, 50, 0.0)
    while not skipping.is_due(0):
        skipping.count_skipped(0)
    skipping.count_gain(0, 1.0, 1.0)
    assert all(asked_rounds(skipping, 10, 0.0))


def test_nothing_is_left_alone_for_ever() -> None:
    """Where asking is very dear, too, every 32nd round is one that asks: a text may have changed."""
    asked = asked_rounds(Skipping(), 310, 0.0, cost_s=50.0)
    longest = max(len(run) for run in "".join("x" if one else " " for one in asked).split("x"))
    assert longest == 31


def test_a_disturbed_round_does_not_count_for_long() -> None:
    skipping = Skipping()
    asked_rounds(skipping, 30, 0.03)
    skipping.count_cost(10.0)
    assert all(asked_rounds(skipping, 30, 0.03))


def test_sequences_are_judged_by_themselves() -> None:
    skipping = Skipping()
    asked_rounds(skipping, 100, 0.0)
    skipping.end(0)
    assert all(asked_rounds(skipping, 8, 0.0))


def test_to_ask_whether_a_sequence_is_due_changes_nothing() -> None:
    """Kind: the rounds to skip are counted by who looks, not by rounds."""
    skipping = Skipping()
    asked_rounds(skipping, 50, 0.0)
    while skipping.is_due(0):
        asked_rounds(skipping, 1, 0.0)
    assert not any(skipping.is_due(0) for _ in range(100))


class Slow(SyntheticDrafter):
    """Model-free, but asking takes a fiftieth of a pass. It is not told of rounds that skip it."""

    num_observed = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.spec = replace(self.spec, observes_skipped_rounds=False)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._clock.advance(0.02)
        return super().propose(sequences, budgets)

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.num_observed += 1
        super().observe(sequences, outcomes)


def completed(acceptance: Acceptance, num_tokens: int = 600) -> tuple[Simulated, Slow]:
    clock, text = SimulatedClock(), [place % 997 for place in range(num_tokens)]
    drafter = Slow(text, acceptance, clock=clock)
    sequence = known_sequence(0, [1, *text], 1)
    return simulate([sequence], auto_planner([drafter], clock), TILES_S, clock, overhead_s=0.05), drafter


def test_a_text_that_suits_nobody_takes_hardly_longer() -> None:
    """Kind: the drafters of small models take a tenth of the time, whether they are of use or not."""
    simulated, drafter = completed(0.0)
    assert drafter.num_calls == drafter.num_observed <= 0.4 * len(simulated.rounds)
    settled = simulated.rounds[24:]
    assert 0.0 < sum(one.times.draft for one in settled) <= 0.006 * sum(one.times.total for one in settled)


@pytest.mark.parametrize("acceptance", [0.3, 0.9])
def test_a_text_that_suits_them_is_drafted_in_every_round(acceptance: float) -> None:
    simulated, drafter = completed(acceptance)
    assert drafter.num_calls >= (0.8 if acceptance < 0.5 else 0.99) * len(simulated.rounds)


class Watched(AutoPlanner):
    """Keeps the plans of its rounds."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.plans: list[Plan] = []

    def observe(self, plan: Plan, result: RoundResult) -> None:
        self.plans.append(plan)
        super().observe(plan, result)


def test_drafts_count_by_what_they_promised() -> None:
    """Kind: a few drafts in vain, and asking is given up, though the next ones are expected to pay."""
    clock, text = SimulatedClock(), [place % 997 for place in range(40)]
    drafter = Slow(text, 0.0, clock=clock, confidence=lambda chance: 0.9)
    planner = Watched([drafter], CostModel(TILES), {}, clock=clock)
    rounds = simulate([known_sequence(0, [1, *text], 1)], planner, TILES_S, clock).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    assert rounds[first].num_accepted == (0,)
    considered = [plan.gained_s[0] if isinstance(plan, AutoPlan) else None for plan in planner.plans]
    assert (considered[first] or 0.0) > 0.0
    later = [gained for gained in considered[first:] if gained is not None]
    assert later[-1] == 0.0  # nothing is expected of them any more


class ForTheLast(Slow):
    """Drafts for sequence 3 alone, and counts for whom it was asked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked = Counter[int]()

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.asked.update(one.id for one, budget in zip(sequences, budgets, strict=True) if budget.num_tokens)
        trees = super().propose(sequences, budgets)
        return [tree if one.id == 3 else no_draft(one) for one, tree in zip(sequences, trees, strict=True)]


def test_a_sequence_that_drafts_suit_does_not_keep_others_asked() -> None:
    """Kind: what one sequence gains is counted for all that run beside it."""
    clock, text = SimulatedClock(), [place % 97 for place in range(300)]
    drafter = ForTheLast(text, 0.9, clock=clock, confidence=lambda chance: 0.9)
    sequences = [known_sequence(number, [1, *text], 1) for number in range(4)]
    simulated = simulate(sequences, auto_planner([drafter], clock), TILES_S, clock, max_running=4)
    assert drafter.asked[3] >= 50
    assert all(drafter.asked[number] <= 0.25 * len(simulated.rounds) for number in range(3))


def test_plans_say_who_was_asked() -> None:
    clock, text = SimulatedClock(), [place % 997 for place in range(100)]
    free = Slow(text, 0.0, clock=clock, name="free")
    model = SyntheticDrafter(text, 0.9, step_s=lambda num: 0.1, clock=clock, name="model")
    known = {"model": Learned(greedy_acceptance=(27.0, 30.0), greedy_gain=0.5)}
    planner = auto_planner([free, model], clock, {"model": Calibration((1,), (0.1,))}, learned=known)
    ending, running = known_sequence(0, [1, *text[:1]], 1), known_sequence(1, [1, *text], 1)
    plan = planned(planner, ending, running)
    assert plan.asked == (frozenset(), {"free", "model"})  # of the first one, one token is left: it will be the bonus
    assert planned(planner, ending).asked == (frozenset(),)


@pytest.mark.parametrize("acceptance", [0.0, 0.9])
def test_a_model_is_considered_where_others_are_asked_or_it_pays(acceptance: float) -> None:
    """Kind: in text that suits nobody, every round takes the time of finding out that no model is worth asking."""
    clock, text = SimulatedClock(), [place % 997 for place in range(600)]
    free = Slow(text, 0.0, clock=clock, name="free")
    model = SyntheticDrafter(text, acceptance, step_s=lambda num: 0.2, clock=clock, name="model")
    planner = Watched([free, model], CostModel(TILES), {"model": StepCosts(Calibration((1,), (0.2,)))}, clock=clock)
    rounds = simulate([known_sequence(0, [1, *text], 1)], planner, TILES_S, clock, overhead_s=0.05).rounds
    if acceptance:
        assert fmean(one.num_drafted[0] > 0 for one in rounds[40:-10]) >= 0.9
    else:
        assert fmean(isinstance(plan, AutoPlan) for plan in planner.plans) <= 0.5
        assert model.num_calls >= 3  # it may be of use later


def test_they_are_back_when_the_text_changes() -> None:
    simulated, _ = completed(lambda place, depth: 0.9 if place >= 300 else 0.0)
    places = [1]
    for one in simulated.rounds:
        places.append(places[-1] + one.num_tokens)
    code = [one for place, one in zip(places, simulated.rounds, strict=False) if place >= 300]
    back = next(index for index, one in enumerate(code) if one.num_accepted[0])
    assert back <= 8
    assert fmean(one.num_drafted[0] > 0 for one in code[back:-10]) >= 0.9


def test_what_is_expected_of_a_skipped_round_is_that_of_its_sequences() -> None:
    """Kind: after a crowd a single sequence is expected to take as long as all of them."""
    clock, text = SimulatedClock(), [place % 997 for place in range(300)]
    planner = Watched([Slow(text, 0.0, clock=clock)], CostModel(TILES), {}, clock=clock)
    crowd = [known_sequence(index, [1, *text[: 150 if index else 300]], 1) for index in range(8)]
    simulate(crowd, planner, TILES_S, clock, overhead_s=0.05, max_running=8)
    skipped = [plan for plan in planner.plans if not isinstance(plan, AutoPlan)]
    assert {len(plan.trees) for plan in skipped} == {1, 8}
    for plan in skipped:
        expected = TILES_S(len(plan.trees)) + 0.05
        assert plan.expected_s == pytest.approx(expected)
        assert plan.plain_s == pytest.approx(expected)


@pytest.mark.parametrize(("confidence", "drafted"), [(0.15, False), (0.25, True)])
def test_nodes_that_just_pay_are_left_out_before_anything_was_won(confidence: float, drafted: bool) -> None:
    """Kind: a text that suits no drafter pays for many nodes, each of which promised a little more than its cost."""
    text = [place % 97 for place in range(40)]
    drafter = SyntheticDrafter(text, 0.5, confidence=lambda chance: confidence)
    [tree] = planned(auto_planner([drafter], SimulatedClock()), known_sequence(0, [1, *text], 1)).trees
    cost = 0.6 / 7 * 1.03  # of a node, in tokens, at the speed of plain decoding
    assert 0.85 * confidence > cost  # a drafter is nearly believed at first, so it would pay
    assert (tree.num_draft_tokens > 0) is drafted


def test_nothing_is_planned_for_nobody() -> None:
    planner = auto_planner([SyntheticDrafter([], 0.5)], SimulatedClock(), cost=STEEP)
    assert planner.plan(Batch(())).trees == ()
