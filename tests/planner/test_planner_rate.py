"""The speed that rows and steps must beat is that of the text at hand."""

import pytest
from helpers.planning import TILES

from foredraft.planner import AutoPlanner, RoundTimes
from foredraft.planner.cost import CostModel
from foredraft.planner.rate import Rate
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.tune.simulate import KnownRequest, simulate

PLAIN = 40.0


def rounds(rate: Rate, number: int, *, num_tokens: int = 1, seconds: float = 1 / PLAIN) -> None:
    for _ in range(number):
        rate.observe(num_tokens, RoundTimes(0.0, seconds, 0.0))


def test_a_text_comes_at_the_speed_that_its_rounds_had() -> None:
    rate = Rate()
    assert rate.at_least(PLAIN) == PLAIN  # until something is known of it
    rounds(rate, 100, num_tokens=4)
    assert rate.at_least(PLAIN) == pytest.approx(4 * PLAIN, rel=0.02)
    rounds(rate, 100, seconds=2 / PLAIN)
    assert rate.at_least(PLAIN) == PLAIN  # without drafts there would be as many


def test_a_new_text_has_a_speed_of_its_own() -> None:
    """Kind: after code that comes five times as fast, rows seem dear to the first hundred tokens of the next answer."""
    rate = Rate()
    rounds(rate, 100, num_tokens=5)
    rate.start_anew()
    assert rate.at_least(PLAIN) == PLAIN
    rounds(rate, 3, num_tokens=2)
    assert rate.at_least(PLAIN) == pytest.approx(2 * PLAIN)


def test_the_planner_starts_anew_with_a_new_answer_and_counts_rounds_in_which_nobody_is_asked() -> None:
    clock, text = SimulatedClock(), [place % 97 for place in range(300)]
    drafter = SyntheticDrafter(text, 1.0, step_s=lambda num: 0.0, clock=clock, name="free", confidence=lambda c: 0.9)
    drafter.free = True
    planner = AutoPlanner([drafter], CostModel(TILES), {}, clock=clock)
    simulate([KnownRequest(0, [1, *text], 1)], planner, CostModel(TILES).seconds, clock)
    assert planner._rate.at_least(1.0) > 2.0
    planner.draft([KnownRequest(1, [1, 2], 1)])
    assert planner._rate.at_least(1.0) == 1.0
    rounds(planner._rate, 3, num_tokens=3, seconds=1.0)
    planner._observe_idle([], [], RoundTimes(0.0, 1.0, 0.0))
    assert planner._rate.at_least(1.0) < 2.5
