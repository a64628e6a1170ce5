"""Never slower: useless drafts are given up at a small loss, useful ones come back, and crowds get small trees."""

from collections.abc import Sequence
from statistics import fmean

import pytest
from helpers.planning import STEEP, World, settled, usual_length, usual_speed

from foredraft.bench.simulate import SimulatedRound


def certain(chance: float) -> float:
    """What a drafter says that is sure of all it proposes."""
    return 0.95


def unmoved(chance: float) -> float:
    """What a drafter says that does not notice how good it is."""
    return 0.6


@pytest.mark.parametrize("step", [0.0, 0.02, 0.1, 0.36, 0.6])
def test_drafts_that_are_always_wrong_cost_little(step: float) -> None:
    """Seen elsewhere: from 56 to 11 tokens per second with a poor drafter."""
    simulated = World(0.0, step, confidence=certain).run(num_tokens=500)
    plain = World(0.0).speed(0)
    assert usual_speed(simulated.rounds) >= 0.97 * plain
    assert usual_speed(simulated.rounds[30:]) >= 0.985 * plain


@pytest.mark.parametrize("step", [0.0, 0.36])
def test_nothing_is_drafted_where_a_token_costs_as_much_as_a_pass(step: float) -> None:
    world = World(0.9, step, STEEP)
    assert world.best() == 0
    simulated = world.run(num_tokens=500)
    assert usual_length(simulated) == 0
    assert usual_speed(simulated.rounds) >= 0.98 * world.speed(0)


def starts(rounds: Sequence[SimulatedRound]) -> list[int]:
    """The place in the text at which each round began."""
    places = [1]
    for one in rounds:
        places.append(places[-1] + one.num_tokens)
    return places[:-1]


@pytest.mark.parametrize(
    ("step", "informed", "most_rounds"),
    [(0.0, True, 3), (0.0, False, 12), (0.05, True, 15), (0.05, False, 60), (0.1, True, 40), (0.1, False, 120)],
)
def test_a_drafter_that_was_given_up_is_tried_and_comes_back(step: float, informed: bool, most_rounds: int) -> None:
    """Code after prose. A drafter that notices is back sooner than one that says the same of all its tokens."""
    change = 600
    world = World(
        lambda place, depth: 0.9 if place >= change else 0.05,
        step,
        prefill=step / 16,
        confidence=None if informed else unmoved,
    )
    simulated = world.run(num_tokens=1300)
    places = starts(simulated.rounds)
    prose = [one for place, one in zip(places, simulated.rounds, strict=True) if 100 < place < change]
    code = [one for place, one in zip(places, simulated.rounds, strict=True) if place >= change]
    assert fmean(one.num_drafted[0] for one in prose) < 0.1
    assert sum(one.times.draft for one in prose) <= 0.015 * sum(one.times.total for one in prose)
    back = next(index for index, one in enumerate(code) if one.num_drafted[0] >= 3)
    assert back <= most_rounds
    assert fmean(one.num_drafted[0] for one in code[-40:-10]) >= 5


@pytest.mark.parametrize("step", [0.02, 0.1, 0.36])
def test_exploration_costs_a_hundredth(step: float) -> None:
    simulated = World(0.05, step, confidence=unmoved).run()
    off = simulated.rounds[100:]
    assert 0.0 < sum(one.times.draft for one in off) <= 0.015 * sum(one.times.total for one in off)


@pytest.mark.parametrize("step", [0.0, 0.1, 0.36])
def test_trees_shrink_with_the_number_of_sequences(step: float) -> None:
    """Seen elsewhere: 2.1 times as fast with one sequence, 0.77 times with eight."""
    world = World(0.8, step)
    lengths = []
    for num_sequences in (1, 2, 4, 8, 16, 32):
        simulated = world.run(num_tokens=400 if num_sequences < 8 else 150, num_sequences=num_sequences)
        best = world.best(num_sequences)
        lengths.append(usual_length(simulated))
        assert abs(lengths[-1] - best) <= 1
        assert usual_speed(settled(simulated)) >= 0.85 * world.speed(best, num_sequences)
        assert usual_speed(simulated.rounds) >= 0.98 * world.speed(0, num_sequences)
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 1 > lengths[-1]
