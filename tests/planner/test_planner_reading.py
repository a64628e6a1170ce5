"""A draft model reads the prompt once, and what that took is no reason to leave it unused."""

from collections.abc import Sequence

import pytest
from helpers.planning import TILES, usual_speed

from foredraft.drafters.base import RequestView, no_draft
from foredraft.planner import AutoPlanner, Learned
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.costly import MOST_LOST, NUM_AT_END
from foredraft.planner.lengths import FEW_ANSWERS, Lengths
from foredraft.planner.step_costs import StepCosts
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.tree import Budget, DraftTree
from foredraft.tune.simulate import KnownRequest, Simulated, simulate

STEP_S, READ_S = 0.3, 0.02
PROMPT = [1] * 150
KNOWN = {"model": Learned(greedy_share=(27.0, 30.0), greedy_gain=0.5)}


class Late(SyntheticDrafter):
    """Need not read all, and is as good then."""

    left_out = 0

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        if request.id not in self._read:
            self.left_out = len(request.tokens) - 1 - num_tokens

    def num_unread(self, request: RequestView) -> int:
        return super().num_unread(request) - (0 if request.id in self._read else self.left_out)


def answered(acceptance: float, num_tokens: int, kind: type[SyntheticDrafter] = SyntheticDrafter) -> Simulated:
    """One answer, by a planner that has seen the drafter do well."""
    clock, text = SimulatedClock(), [place % 97 for place in range(num_tokens)]
    drafter = kind(
        text, acceptance, step_s=lambda num: STEP_S, read_s=READ_S, clock=clock, name="model", confidence=lambda c: 0.9
    )
    steps = {"model": StepCosts(Calibration((1, 64), (STEP_S, 64 * READ_S)))}
    planner = AutoPlanner([drafter], CostModel(TILES), steps, clock=clock, learned=KNOWN)
    request = KnownRequest(0, [*PROMPT, *text], len(PROMPT))
    return simulate([request], planner, CostModel(TILES).seconds, clock, overhead_s=0.05)


@pytest.mark.parametrize(("acceptance", "share"), [(0.9, 0.5), (1.0, 0.95)])
def test_a_model_that_has_read_the_prompt_is_used(acceptance: float, share: float) -> None:
    """In most rounds: a long draft that was in vain still makes the planner careful for a while."""
    rounds = answered(acceptance, 400).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    assert rounds[first].times.draft >= len(PROMPT) * READ_S
    later = rounds[first + 1 : -8]
    assert sum(one.num_drafted[0] > 0 for one in later) >= share * len(later)
    assert usual_speed(later) >= 1.3 / 1.05


def test_a_model_that_turns_out_useless_is_left_again() -> None:
    rounds = answered(0.05, 400).rounds
    assert sum(one.num_drafted[0] > 0 for one in rounds) <= 25
    reading_s = max(one.times.draft for one in rounds)
    assert sum(one.times.total for one in rounds) <= 1.03 * 400 * 1.05 + reading_s


def test_nothing_is_read_that_an_answer_could_not_bear_to_lose() -> None:
    """Kind: a prompt is read for an answer that ends at the next token."""
    rounds = answered(1.0, 400).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    before_s = sum(one.times.total for one in rounds[:first])
    assert len(PROMPT) * READ_S <= 1.1 * MOST_LOST * before_s


def test_a_model_that_need_not_read_all_of_a_prompt_comes_in_early() -> None:
    rounds = answered(0.9, 400, Late).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    before_s = sum(one.times.total for one in rounds[:first])
    assert MOST_LOST * before_s <= 2 * NUM_AT_END * READ_S
    assert rounds[first].times.draft < 1.1 * (NUM_AT_END + first) * READ_S + 12 * STEP_S
    assert usual_speed(rounds) >= 1.2 / 1.05


def test_of_two_models_the_one_that_need_not_read_is_asked() -> None:
    clock, text = SimulatedClock(), [place % 97 for place in range(100)]
    first, second = (
        SyntheticDrafter(text, 0.9, step_s=lambda num: 0.1, read_s=read_s, clock=clock, name=name)
        for name, read_s in (("reads", READ_S), ("model", 0.0))
    )
    steps = {
        "reads": StepCosts(Calibration((1, 64), (0.1, 64 * READ_S))),
        "model": StepCosts(Calibration((1, 64), (0.1, 0.1))),
    }
    known = dict.fromkeys(steps, KNOWN["model"])
    planner = AutoPlanner([first, second], CostModel(TILES), steps, clock=clock, learned=known)
    request = KnownRequest(0, [*PROMPT, *text], len(PROMPT))
    simulate([request], planner, CostModel(TILES).seconds, clock)
    assert second.num_calls > 10
    assert first.num_calls == 0


def test_an_answer_is_expected_to_be_as_long_as_those_before() -> None:
    clock = SimulatedClock()
    drafter = SyntheticDrafter([], 0.5, step_s=lambda num: STEP_S, clock=clock, name="model")
    planner = AutoPlanner([drafter], CostModel(TILES), {"model": StepCosts(Calibration((1,), (STEP_S,)))}, clock=clock)
    before = [KnownRequest(index, [1, *[2] * 400], 1) for index in range(10)]
    simulate(before, planner, CostModel(TILES).seconds, clock)
    assert 300 < planner._costly._lengths.rest(1) <= 400


def test_what_a_model_left_alone_for_long_has_to_read_is_counted() -> None:
    """Kind: it is asked to read the end only, has begun before, and reads all; then its steps seem to take longer."""
    clock, text = SimulatedClock(), [place % 97 for place in range(1500)]
    drafter = Late(text, 0.0, step_s=lambda num: STEP_S, read_s=READ_S, clock=clock, name="model")
    steps = {"model": StepCosts(Calibration((1, 64), (STEP_S, 64 * READ_S)))}
    planner = AutoPlanner([drafter], CostModel(TILES), steps, clock=clock)
    simulated = simulate([KnownRequest(0, [*PROMPT, *text], len(PROMPT))], planner, CostModel(TILES).seconds, clock)
    assert drafter.num_calls >= 3
    assert steps["model"].step_s(1) == pytest.approx(STEP_S, rel=0.05)
    assert simulated.draft_s <= 0.015 * simulated.seconds


def test_only_many_earlier_answers_make_sure_how_long_one_goes_on() -> None:
    lengths = Lengths()
    assert lengths.rest(100) == 100.0
    for _ in range(FEW_ANSWERS):
        assert lengths.sure_rest(10) == 0
        lengths.add(400)
    assert lengths.sure_rest(10) == 390
    assert lengths.sure_rest(400) == 0
    lengths.add(15)
    assert lengths.sure_rest(10) == 5
    assert lengths.sure_rest(15) == 385


def test_nothing_is_kept_of_an_answer_that_ended() -> None:
    """Kind: a planner that serves for months grows with every request."""
    clock, text = SimulatedClock(), [place % 97 for place in range(60)]
    drafter = SyntheticDrafter(text, 0.9, step_s=lambda num: 0.1, clock=clock, name="model")
    planner = AutoPlanner(
        [drafter], CostModel(TILES), {"model": StepCosts(Calibration((1,), (0.1,)))}, clock=clock, learned=KNOWN
    )
    simulate([KnownRequest(777, [1, *text], 1)], planner, CostModel(TILES).seconds, clock)
    assert drafter.num_calls
    for part in (planner, planner._costly):
        for name, kept in vars(part).items():
            keys = kept if isinstance(kept, dict | set) else ()
            assert not [key for key in keys if key == 777 or (isinstance(key, tuple) and 777 in key)], name


class Silent(SyntheticDrafter):
    """Takes the time of a step, and has nothing to propose."""

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._clock.advance(STEP_S)
        self.num_calls += 1
        return [no_draft(request) for request in requests]

    def num_unread(self, request: RequestView) -> int:
        return 0


class Talking(AutoPlanner):
    """Remembers the reason of the request that ended last."""

    def forget(self, request_id: int) -> None:
        self.said = self.reason(request_id)
        super().forget(request_id)


def test_a_drafter_that_never_proposes_costs_little() -> None:
    """Kind: nothing is ever learned of it, so it stays new, and is tried in every round."""
    clock = SimulatedClock()
    drafter = Silent([], 1.0, step_s=lambda num: STEP_S, clock=clock, name="model")
    planner = Talking([drafter], CostModel(TILES), {"model": StepCosts(Calibration((1,), (STEP_S,)))}, clock=clock)
    request = KnownRequest(0, [1, *range(400)], 1)
    simulated = simulate([request], planner, CostModel(TILES).seconds, clock, overhead_s=0.05)
    assert drafter.num_calls > 4  # it may have something to say one day
    assert simulated.draft_s <= 0.02 * simulated.seconds
    assert "had nothing to propose" in planner.said


def test_rounds_without_a_proposal_say_nothing_of_a_step() -> None:
    """Kind: a text beyond the context of the model makes its steps look free, and the next request pays for it."""
    clock, text = SimulatedClock(), [place % 97 for place in range(200)]
    steps = {"model": StepCosts(Calibration((1, 64), (STEP_S, 64 * READ_S)))}
    drafter = SyntheticDrafter(
        text[:100], 0.9, step_s=lambda num: STEP_S, read_s=READ_S, clock=clock, name="model", confidence=lambda c: 0.9
    )
    planner = AutoPlanner([drafter], CostModel(TILES), steps, clock=clock, learned=KNOWN)
    simulate([KnownRequest(0, [1, *text], 1)], planner, CostModel(TILES).seconds, clock, overhead_s=0.05)
    assert drafter.num_steps > 20
    assert steps["model"].step_s(1) == pytest.approx(STEP_S, rel=0.05)


def test_rows_are_cheap_behind_a_long_text() -> None:
    """Kind: the speed without drafts is taken for that of a short text, and so little seems to pay."""
    text = [place % 997 for place in range(3400)]
    calibration = Calibration((1, 2), (1.0, 1.5), per_position=0.001)
    speeds = {}
    for acceptance in (0.0, 0.4):
        clock = SimulatedClock()
        drafter = SyntheticDrafter(text[3000:], acceptance, clock=clock)
        planner = AutoPlanner([drafter], CostModel(calibration), {}, clock=clock)
        request = KnownRequest(0, text, 3000)
        simulated = simulate([request], planner, CostModel(calibration).seconds, clock)
        speeds[acceptance] = simulated.tokens_per_s
    assert speeds[0.4] >= 1.1 * speeds[0.0]  # 1.4 tokens for 4.7 seconds instead of 1 for 4.2
