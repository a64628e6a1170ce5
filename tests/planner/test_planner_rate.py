"""The speed that drafted tokens and steps must beat is that of the text at hand."""

import pytest
from helpers.planning import TILES, auto_planner, planned, told

from foredraft.bench.simulate import known_sequence, simulate
from foredraft.planner import RoundTimes
from foredraft.planner.cost import CostModel
from foredraft.planner.rate import Rate
from foredraft.testing import SimulatedClock, SyntheticDrafter

PLAIN = 40.0


def rounds(rate: Rate, number: int, *, num_tokens: int = 1, seconds: float = 1 / PLAIN) -> None:
    for _ in range(number):
        rate.observe(num_tokens, seconds)


def test_a_text_comes_at_the_speed_that_its_rounds_had() -> None:
    rate = Rate()
    assert rate.at_least(PLAIN) == PLAIN  # until something is known of it
    rounds(rate, 100, num_tokens=4)
    assert rate.at_least(PLAIN) == pytest.approx(4 * PLAIN, rel=0.02)
    rounds(rate, 100, seconds=2 / PLAIN)
    assert rate.at_least(PLAIN) == PLAIN  # without drafts there would be as many


def test_a_new_text_has_a_speed_of_its_own() -> None:
    """Kind: after code that comes five times as fast, drafts seem dear to the first hundred tokens of the next."""
    rate = Rate()
    rounds(rate, 100, num_tokens=5)
    rate.start_anew()
    assert rate.at_least(PLAIN) == PLAIN
    rounds(rate, 3, num_tokens=2)
    assert rate.at_least(PLAIN) == pytest.approx(2 * PLAIN)


def test_the_planner_starts_anew_with_a_new_sequence_and_counts_skipped_rounds() -> None:
    clock, text = SimulatedClock(), [place % 97 for place in range(300)]
    drafter = SyntheticDrafter(text, 1.0, clock=clock, name="free", confidence=lambda c: 0.9)
    planner = auto_planner([drafter], clock)
    simulate([known_sequence(0, [1, *text], 1)], planner, CostModel(TILES).seconds, clock)
    assert planner._rate.at_least(1.0) > 2.0
    planned(planner, known_sequence(2, [1, *text], 1))
    ending = known_sequence(1, [1, 2], 1)
    plan = planned(planner, ending)
    assert planner._rate.at_least(1.0) > 2.0  # a plan alone changes nothing
    ending.tokens.append(2)
    planner.observe(plan, told(plan, [()], RoundTimes(0.0, 1.0, 0.0)))
    assert planner._rate.at_least(0.1) == pytest.approx(1.0)
