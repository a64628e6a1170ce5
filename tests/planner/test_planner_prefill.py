"""A draft model prefills a prompt once, and what that took is no reason to leave it unused."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from helpers.planning import TILES, auto_planner, planned, told, usual_speed

from foredraft.bench.simulate import Simulated, known_sequence, simulate
from foredraft.drafters.base import SequenceView, no_draft
from foredraft.planner import AutoPlanner, Learned, RoundTimes
from foredraft.planner.completion_lengths import CompletionLengths
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.tree import Budget, DraftTree

STEP_S, PREFILL_S = 0.3, 0.02
STEPS = Calibration((1, 64), (STEP_S, 64 * PREFILL_S))
PROMPT = [1] * 150
KNOWN = {"model": Learned(greedy_acceptance=(27.0, 30.0), greedy_gain=0.5)}
TILES_S = CostModel(TILES).seconds
MOST_LOST = 0.02
"""Part of a completion's time that may be lost, besides what was won: no one notices a fiftieth."""


class Late(SyntheticDrafter):
    """Can begin late, and is as good then."""

    left_out = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.spec = replace(self.spec, can_begin_late=True)
        self.num_at_end: list[int] = []

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        self.num_at_end.append(num_tokens)
        if sequence.id not in self._computed:
            self.left_out = len(sequence.tokens) - 1 - num_tokens

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        return super().num_uncached_tokens(sequence) - (0 if sequence.id in self._computed else self.left_out)


def model(kind: type[SyntheticDrafter], text: Sequence[int], acceptance: float, clock: SimulatedClock) -> Any:
    """A drafter that says the same of all its tokens."""
    return kind(
        text,
        acceptance,
        step_s=lambda num: STEP_S,
        prefill_s=PREFILL_S,
        clock=clock,
        name="model",
        confidence=lambda chance: 0.9,
    )


def completed(acceptance: float, num_tokens: int, kind: type[SyntheticDrafter] = SyntheticDrafter) -> Simulated:
    """One completion, by a planner that has seen the drafter do well."""
    clock, text = SimulatedClock(), [place % 97 for place in range(num_tokens)]
    planner = auto_planner([model(kind, text, acceptance, clock)], clock, {"model": STEPS}, learned=KNOWN)
    sequence = known_sequence(0, [*PROMPT, *text], len(PROMPT))
    return simulate([sequence], planner, TILES_S, clock, overhead_s=0.05)


@pytest.mark.parametrize(("acceptance", "part"), [(0.9, 0.5), (1.0, 0.95)])
def test_a_model_that_has_prefilled_the_prompt_is_used(acceptance: float, part: float) -> None:
    """In most rounds: a long draft that was in vain still makes the planner careful for a while."""
    rounds = completed(acceptance, 400).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    assert rounds[first].times.draft >= len(PROMPT) * PREFILL_S
    later = rounds[first + 1 : -8]
    assert sum(one.num_drafted[0] > 0 for one in later) >= part * len(later)
    assert usual_speed(later) >= 1.3 / 1.05


def test_a_model_that_turns_out_useless_is_left_again() -> None:
    rounds = completed(0.05, 400).rounds
    assert 0 < sum(one.num_drafted[0] > 0 for one in rounds) <= 25
    prefill_s = max(one.times.draft for one in rounds)
    assert sum(one.times.total for one in rounds) <= 1.03 * 400 * 1.05 + prefill_s


def test_nothing_is_prefilled_that_a_completion_could_not_bear_to_lose() -> None:
    """Kind: a prompt is prefilled for a completion that ends at the next token."""
    rounds = completed(1.0, 400).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    before_s = sum(one.times.total for one in rounds[:first])
    assert len(PROMPT) * PREFILL_S <= 1.1 * MOST_LOST * before_s


def test_a_model_that_need_not_prefill_all_of_a_prompt_comes_in_early() -> None:
    rounds = completed(0.9, 400, Late).rounds
    first = next(index for index, one in enumerate(rounds) if one.num_drafted[0])
    before_s = sum(one.times.total for one in rounds[:first])
    assert MOST_LOST * before_s <= 2 * 24 * PREFILL_S  # the end of the prompt is 24 tokens
    assert rounds[first].times.draft < 1.1 * (24 + first) * PREFILL_S + 12 * STEP_S
    assert usual_speed(rounds) >= 1.2 / 1.05


def test_of_two_models_the_one_that_need_not_prefill_is_asked() -> None:
    clock, text = SimulatedClock(), [place % 97 for place in range(100)]
    first, second = (
        SyntheticDrafter(text, 0.9, step_s=lambda num: 0.1, prefill_s=prefill_s, clock=clock, name=name)
        for name, prefill_s in (("prefills", PREFILL_S), ("model", 0.0))
    )
    steps = {
        "prefills": Calibration((1, 64), (0.1, 64 * PREFILL_S)),
        "model": Calibration((1, 64), (0.1, 0.1)),
    }
    planner = auto_planner([first, second], clock, steps, learned=dict.fromkeys(steps, KNOWN["model"]))
    simulate([known_sequence(0, [*PROMPT, *text], len(PROMPT))], planner, TILES_S, clock)
    assert second.num_calls > 10
    assert first.num_calls == 0


def test_a_completion_is_expected_to_be_as_long_as_those_before() -> None:
    clock = SimulatedClock()
    drafter = SyntheticDrafter([], 0.5, step_s=lambda num: STEP_S, clock=clock, name="model")
    planner = auto_planner([drafter], clock, {"model": Calibration((1,), (STEP_S,))})
    before = [known_sequence(index, [1, *[2] * 400], 1) for index in range(10)]
    simulate(before, planner, TILES_S, clock)
    assert 300 < planner._model_based.history.lengths.expected_rest(1) <= 400


def test_what_a_model_left_alone_for_long_has_to_prefill_is_counted() -> None:
    """Kind: it is to prefill the end only, has begun before, and prefills all; then its steps seem to take longer."""
    clock, text = SimulatedClock(), [place % 97 for place in range(1500)]
    drafter = Late(text, 0.0, step_s=lambda num: STEP_S, prefill_s=PREFILL_S, clock=clock, name="model")
    steps = {"model": StepCosts(STEPS)}
    planner = AutoPlanner([drafter], CostModel(TILES), steps, clock=clock)
    simulated = simulate([known_sequence(0, [*PROMPT, *text], len(PROMPT))], planner, TILES_S, clock)
    assert drafter.num_calls >= 3
    assert drafter.num_at_end == [24]  # once
    assert steps["model"].step_s(1) == pytest.approx(STEP_S, rel=0.05)
    assert simulated.draft_s <= 0.015 * simulated.seconds


def test_only_many_earlier_completions_make_sure_how_long_one_goes_on() -> None:
    """Twenty: of so many, one in twenty would have shown a length that one in twenty has."""
    lengths = CompletionLengths()
    assert lengths.expected_rest(100) == 100.0
    for _ in range(20):
        assert lengths.sure_rest(10) == 0
        lengths.add(400)
    assert lengths.sure_rest(10) == 390
    assert lengths.sure_rest(400) == 0
    lengths.add(15)
    assert lengths.sure_rest(10) == 5
    assert lengths.sure_rest(15) == 385


def test_nothing_is_kept_of_a_sequence_that_is_over() -> None:
    """Kind: a planner that serves for months grows with every sequence."""
    clock, text = SimulatedClock(), [place % 97 for place in range(60)]
    drafter = SyntheticDrafter(text, 0.9, step_s=lambda num: 0.1, clock=clock, name="model")
    planner = auto_planner([drafter], clock, {"model": Calibration((1,), (0.1,))}, learned=KNOWN)
    running, over = known_sequence(776, [1, *text], 1), known_sequence(777, [1, *text], 1)
    simulate([over], planner, TILES_S, clock)
    assert drafter.num_calls
    assert not list(mentions(planner, 777))
    plan = planned(planner, running)
    running.tokens.append(5)
    planner.observe(plan, told(plan, [()], RoundTimes(0.0, 1.0, 0.0)))
    assert list(mentions(planner, 776))  # or the search would find nothing


def mentions(part: object, id: int, path: str = "planner") -> Any:
    """Where a planner keeps something under a sequence's id."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == id or (isinstance(key, tuple) and id in key):
                yield path
            yield from mentions(value, id, f"{path}[{key!r}]")
    elif isinstance(part, list | tuple | set):
        for value in part:
            yield from mentions(value, id, f"{path}[...]")
    elif type(part).__module__.startswith("foredraft.planner") and hasattr(part, "__dict__"):
        for name, value in vars(part).items():
            yield from mentions(value, id, f"{path}.{name}")


class Silent(SyntheticDrafter):
    """Takes the time of a step, and has nothing to propose."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._clock.advance(STEP_S)
        self.num_calls += 1
        return [no_draft(sequence) for sequence in sequences]

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        return 0


class Talking(AutoPlanner):
    """Remembers the reason of the sequence that ended last."""

    def end(self, sequence_id: int) -> None:
        self.said = self.reason(sequence_id)
        super().end(sequence_id)


def test_a_drafter_that_never_proposes_costs_little() -> None:
    """Kind: nothing is ever learned of it, so it stays new, and is tried in every round."""
    clock = SimulatedClock()
    drafter = Silent([], 1.0, step_s=lambda num: STEP_S, clock=clock, name="model")
    planner = Talking([drafter], CostModel(TILES), {"model": StepCosts(Calibration((1,), (STEP_S,)))}, clock=clock)
    simulated = simulate([known_sequence(0, [1, *range(400)], 1)], planner, TILES_S, clock, overhead_s=0.05)
    assert drafter.num_calls > 4  # it may have something to say one day
    assert simulated.draft_s <= 0.02 * simulated.seconds
    assert "had nothing to propose" in planner.said


def test_rounds_without_a_proposal_say_nothing_of_a_step() -> None:
    """Kind: a text beyond the context of the model makes its steps look free, and the next sequence pays for it."""
    clock, text = SimulatedClock(), [place % 97 for place in range(200)]
    steps = {"model": StepCosts(STEPS)}
    drafter = model(SyntheticDrafter, text[:100], 0.9, clock)
    planner = AutoPlanner([drafter], CostModel(TILES), steps, clock=clock, learned=KNOWN)
    simulate([known_sequence(0, [1, *text], 1)], planner, TILES_S, clock, overhead_s=0.05)
    assert drafter.num_steps > 20
    assert steps["model"].step_s(1) == pytest.approx(STEP_S, rel=0.05)


def test_a_clock_that_does_not_move_says_nothing_of_a_step() -> None:
    """Kind: steps that seem to take no time at all are divided by."""
    steps = StepCosts(STEPS)
    for _ in range(9):
        steps.observe(0.3, 0.0)
    assert steps.step_s(1) == STEP_S


def test_tokens_are_cheap_behind_a_long_text() -> None:
    """Kind: the speed without drafts is taken for that of a short text, and so little seems to pay."""
    text = [place % 997 for place in range(3400)]
    calibration = Calibration((1, 2), (1.0, 1.5), per_position=0.001)
    speeds = {}
    for acceptance in (0.0, 0.4):
        clock = SimulatedClock()
        planner = auto_planner([SyntheticDrafter(text[3000:], acceptance, clock=clock)], clock, cost=calibration)
        simulated = simulate([known_sequence(0, text, 3000)], planner, CostModel(calibration).seconds, clock)
        speeds[acceptance] = simulated.tokens_per_s
    assert speeds[0.4] >= 1.1 * speeds[0.0]  # 1.4 tokens for 4.7 seconds instead of 1 for 4.2
