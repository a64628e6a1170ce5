"""All that chance can do: a rule is run once for each course of its random decisions, and each has its probability."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

import numpy as np

T = TypeVar("T", bound=Hashable)


class Course:
    """A `Chance` that takes prescribed decisions, then the first possible one at each further step."""

    def __init__(self, decisions: list[int]) -> None:
        self.decisions = decisions
        self.open: list[list[int]] = []
        self.probability = 1.0
        self._step = 0

    def happens(self, probability: float) -> bool:
        assert probability >= 0
        chance = min(1.0, float(probability))
        return bool(self._decide({1: chance, 0: 1.0 - chance}))

    def draw(self, weights_V: np.ndarray) -> int:
        assert (weights_V >= 0).all()
        total = weights_V.sum()
        return self._decide({token: float(weight / total) for token, weight in enumerate(weights_V)})

    def _decide(self, chances: dict[int, float]) -> int:
        possible = [decision for decision, chance in chances.items() if chance > 0]
        if self._step == len(self.decisions):
            self.open += [[*self.decisions, other] for other in possible[1:]]
            self.decisions = [*self.decisions, possible[0]]
        decision = self.decisions[self._step]
        self._step += 1
        self.probability *= chances[decision]
        return decision


def courses(run: Callable[[Course], T]) -> Iterator[tuple[T, float]]:
    """What each course of chance leads to, and its probability."""
    todo: list[list[int]] = [[]]
    while todo:
        course = Course(todo.pop())
        yield run(course), course.probability
        todo += course.open


def distribution(run: Callable[[Course], T]) -> dict[T, float]:
    """The exact distribution of what `run` comes to."""
    found: dict[T, float] = defaultdict(float)
    for outcome, probability in courses(run):
        found[outcome] += probability
    return found
