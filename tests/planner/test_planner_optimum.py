"""The planner against the optimum by formula, over what drafts cost and how often they are right."""

from collections.abc import Callable

import pytest
from helpers.planning import MOST, World, settled, usual_length, usual_speed

from foredraft.tune.simulate import Simulated


def assert_near_best(world: World, simulated: Simulated) -> None:
    """Within one token of the best length. Where neighbours are equally good: of one that is, within a percent."""
    length = usual_length(simulated)
    good = [n for n in range(MOST[not world.step] + 1) if world.speed(n) >= 0.99 * world.speed(world.best())]
    assert min(abs(length - n) for n in good) <= 1, (length, world.best())


@pytest.mark.parametrize("step", [0.0, 0.02, 0.1, 0.2, 0.36, 0.6])
@pytest.mark.parametrize("acceptance", [0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95])
def test_the_length_is_the_best_within_one_token(acceptance: float, step: float) -> None:
    world = World(acceptance, step)
    simulated = world.run()
    assert abs(usual_length(simulated) - world.best()) <= 1 or acceptance == 0.95
    assert_near_best(world, simulated)
    assert usual_speed(settled(simulated)) >= 0.97 * world.speed(0)


@pytest.mark.parametrize("step", [0.0, 0.1, 0.36])
@pytest.mark.parametrize("confidence", [lambda chance: chance**0.3, lambda chance: chance**3], ids=["over", "under"])
def test_a_drafter_that_does_not_know_how_good_it_is(step: float, confidence: Callable[[float], float]) -> None:
    world = World(0.8, step, confidence=confidence)
    assert_near_best(world, world.run())


@pytest.mark.parametrize("step", [0.0, 0.1])
def test_a_drafter_that_is_good_for_two_tokens_only(step: float) -> None:
    world = World((0.9, 0.9, 0.1), step)
    assert world.best() == 2
    assert 1 <= usual_length(world.run()) <= 3
