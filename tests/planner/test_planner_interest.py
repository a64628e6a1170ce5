"""Asking free drafters takes time as well: where it brings less than that, it is done in some rounds only."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Any

import pytest
from helpers.planning import TILES

from foredraft.drafters.base import Outcome, RequestView, no_draft
from foredraft.planner import AutoPlanner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.interest import ASKING_SHARE, FIRST_TRIES, MOST_SKIPPED, Interest
from foredraft.planner.select import Selection
from foredraft.planner.step_costs import StepCosts
from foredraft.planner.survival import TRUST
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.testing.synthetic import Acceptance
from foredraft.tree import Budget, DraftTree
from foredraft.tune.simulate import KnownRequest, Simulated, simulate


def asked_rounds(interest: Interest, num_rounds: int, saved_s: float, *, cost_s: float = 0.02) -> list[bool]:
    """Whether request 0 is asked for in so many rounds, each of which saves so much then. A token takes a second."""
    asked = []
    for _ in range(num_rounds):
        asked.append(interest.due(0))
        if asked[-1]:
            interest.count_gain(0, saved_s, 1.0)
            interest.count_cost(cost_s)
    return asked


def test_what_brings_nothing_is_asked_in_its_share_of_the_time() -> None:
    asked = asked_rounds(Interest(), 400, 0.0)
    assert all(asked[:FIRST_TRIES])
    later = asked[2 * FIRST_TRIES :]
    assert 0.5 * ASKING_SHARE <= 0.02 * fmean(later) <= 1.01 * ASKING_SHARE


def test_what_brings_more_than_it_takes_is_always_asked() -> None:
    assert all(asked_rounds(Interest(), 100, 0.03))


def test_one_success_is_enough_to_be_asked_again() -> None:
    interest = Interest()
    asked_rounds(interest, 50, 0.0)
    while not interest.due(0):
        pass
    interest.count_gain(0, 1.0, 1.0)
    assert all(asked_rounds(interest, 10, 0.0))


def test_nothing_is_left_alone_for_ever() -> None:
    asked = asked_rounds(Interest(), 10 * MOST_SKIPPED, 0.0, cost_s=50.0)
    longest = max(len(run) for run in "".join("x" if one else " " for one in asked).split("x"))
    assert longest == MOST_SKIPPED


def test_a_disturbed_round_does_not_count_for_long() -> None:
    interest = Interest()
    asked_rounds(interest, 30, 0.03)
    interest.count_cost(10.0)
    assert all(asked_rounds(interest, 30, 0.03))


def test_answers_are_judged_by_themselves() -> None:
    interest = Interest()
    asked_rounds(interest, 100, 0.0)
    interest.forget(0)
    assert all(asked_rounds(interest, FIRST_TRIES, 0.0))


class Slow(SyntheticDrafter):
    """Free, but not quite. dozes: as `Drafter` says."""

    dozes = True
    num_observed = 0

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._clock.advance(0.02)
        return super().propose(requests, budgets)

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        self.num_observed += 1
        super().observe(requests, outcomes)


def answered(acceptance: Acceptance, num_tokens: int = 600) -> tuple[Simulated, Slow]:
    clock, text = SimulatedClock(), [place % 997 for place in range(num_tokens)]
    drafter = Slow(text, acceptance, clock=clock)
    planner = AutoPlanner([drafter], CostModel(TILES), {}, clock=clock)
    request = KnownRequest(0, [1, *text], 1)
    return simulate([request], planner, CostModel(TILES).seconds, clock, overhead_s=0.05), drafter


def test_a_text_that_suits_nobody_takes_hardly_longer() -> None:
    """Kind: the drafters of small models take a tenth of the time, whether they are of use or not."""
    simulated, drafter = answered(0.0)
    assert drafter.num_calls == drafter.num_observed <= 0.4 * len(simulated.rounds)
    drafting_s = sum(one.times.draft for one in simulated.rounds[3 * FIRST_TRIES :])
    assert drafting_s <= 1.2 * ASKING_SHARE * sum(one.times.total for one in simulated.rounds[3 * FIRST_TRIES :])


@pytest.mark.parametrize("acceptance", [0.3, 0.9])
def test_a_text_that_suits_them_is_drafted_in_every_round(acceptance: float) -> None:
    simulated, drafter = answered(acceptance)
    assert drafter.num_calls >= (0.8 if acceptance < 0.5 else 0.99) * len(simulated.rounds)


def test_drafts_count_by_what_they_promised() -> None:
    """Kind: a few drafts in vain, and asking is given up, though the next ones are expected to pay."""
    clock, text = SimulatedClock(), [place % 997 for place in range(40)]
    drafter = Slow(text, 0.0, clock=clock, confidence=lambda chance: 0.9)
    planner = AutoPlanner([drafter], CostModel(TILES), {}, clock=clock)
    gained: list[float] = []
    count = planner._interest.count_gain

    def count_gain(request_id: int, gained_s: float, plain_s: float) -> None:
        gained.append(gained_s)
        count(request_id, gained_s, plain_s)

    planner._interest.count_gain = count_gain  # type: ignore[method-assign]
    rounds = simulate([KnownRequest(0, [1, *text], 1)], planner, CostModel(TILES).seconds, clock).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    assert rounds[first].num_accepted == (0,)
    assert gained[first] > 0.0
    assert gained[-1] == 0.0  # nothing is expected of them any more


class ForTheLast(Slow):
    """Drafts for request 3 alone, and counts for whom it was asked."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.asked = Counter[int]()

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.asked.update(request.id for request, budget in zip(requests, budgets, strict=True) if budget.num_tokens)
        trees = super().propose(requests, budgets)
        return [tree if one.id == 3 else no_draft(one) for one, tree in zip(requests, trees, strict=True)]


def test_an_answer_that_drafts_suit_does_not_keep_others_asked() -> None:
    """Kind: what one request gains is counted for all that run beside it."""
    clock, text = SimulatedClock(), [place % 97 for place in range(300)]
    drafter = ForTheLast(text, 0.9, clock=clock, confidence=lambda chance: 0.9)
    planner = AutoPlanner([drafter], CostModel(TILES), {}, clock=clock)
    requests = [KnownRequest(number, [1, *text], 1) for number in range(4)]
    simulated = simulate(requests, planner, CostModel(TILES).seconds, clock, max_running=4)
    assert drafter.asked[3] >= 50
    assert all(drafter.asked[number] <= 0.25 * len(simulated.rounds) for number in range(3))


class Choosing(AutoPlanner):
    """Counts the rounds in which it considers a costly drafter."""

    num_chosen = 0

    def _with_costly(self, *args: Any, **options: Any) -> Selection:
        self.num_chosen += 1
        return super()._with_costly(*args, **options)


@pytest.mark.parametrize("acceptance", [0.0, 0.9])
def test_a_model_is_considered_where_free_drafters_are_asked_or_it_pays(acceptance: float) -> None:
    """Kind: in text that suits nobody, every round takes the time of finding out that no model is worth asking."""
    clock, text = SimulatedClock(), [place % 997 for place in range(600)]
    free = Slow(text, 0.0, clock=clock, name="free")
    model = SyntheticDrafter(text, acceptance, step_s=lambda num: 0.2, clock=clock, name="model")
    steps = {"model": StepCosts(Calibration((1,), (0.2,)))}
    planner = Choosing([free, model], CostModel(TILES), steps, clock=clock)
    rounds = simulate(
        [KnownRequest(0, [1, *text], 1)], planner, CostModel(TILES).seconds, clock, overhead_s=0.05
    ).rounds
    if acceptance:
        assert fmean(one.num_drafted[0] > 0 for one in rounds[40:-10]) >= 0.9
    else:
        assert planner.num_chosen <= 0.5 * len(rounds)
        assert model.num_calls >= 3  # it may be of use later


def test_they_are_back_when_the_text_changes() -> None:
    simulated, _ = answered(lambda place, depth: 0.9 if place >= 300 else 0.0)
    places = [1]
    for one in simulated.rounds:
        places.append(places[-1] + one.num_tokens)
    code = [one for place, one in zip(places, simulated.rounds, strict=False) if place >= 300]
    back = next(index for index, one in enumerate(code) if one.num_accepted[0])
    assert back <= 8
    assert fmean(one.num_drafted[0] > 0 for one in code[back:-10]) >= 0.9


def test_what_is_expected_of_an_idle_round_is_that_of_its_requests() -> None:
    """Kind: after a crowd a single request is expected to take as long as all of them."""
    clock, text = SimulatedClock(), [place % 997 for place in range(300)]
    planner = AutoPlanner([Slow(text, 0.0, clock=clock)], CostModel(TILES), {}, clock=clock)
    crowd = [KnownRequest(index, [1, *text[: 150 if index else 300]], 1) for index in range(8)]
    wanted = CostModel(TILES).seconds
    expected: dict[int, set[float]] = {}
    verify = wanted

    def seconds(num_rows: int, num_row_positions: int = 0, num_positions: int = 0) -> float:
        found = planner.expectation(0)
        if found is not None and num_rows == len(planner._running):
            expected.setdefault(num_rows, set()).add(round(found.seconds, 1))
        return verify(num_rows)

    simulate(crowd, planner, seconds, clock, overhead_s=0.05, max_running=8)
    assert max(expected[1]) < min(expected[8])


@pytest.mark.parametrize(("confidence", "drafted"), [(0.15, False), (0.25, True)])
def test_rows_that_just_pay_are_left_out_before_anything_was_won(confidence: float, drafted: bool) -> None:
    """Kind: a text that suits no drafter pays for many rows, each of which promised a little more than its cost."""
    text = [place % 97 for place in range(40)]
    drafter = SyntheticDrafter(text, 0.5, confidence=lambda chance: confidence)
    planner = AutoPlanner([drafter], CostModel(TILES), {}, clock=SimulatedClock())
    [tree] = planner.draft([KnownRequest(0, [1, *text], 1)])
    cost = 0.6 / 7 * 1.03  # of a row, in tokens, at the speed of plain decoding
    assert TRUST * confidence > cost  # it would pay
    assert (tree.num_draft_tokens > 0) is drafted
