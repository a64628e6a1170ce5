"""Arithmetic and order of measurements: medians, ratios of pairs, who goes next."""

import math
import statistics
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Summary:
    """The middle and the spread of a sample; `low` and `high` are its quartiles."""

    median: float
    low: float
    high: float
    num: int

    def to_json_dict(self) -> dict[str, float | int]:
        """The fields by name."""
        return {"median": self.median, "low": self.low, "high": self.high, "num": self.num}


def summarise(values: Iterable[float]) -> Summary:
    """Median and quartiles. Raises ValueError for an empty sample or one that is not finite."""
    sample = sorted(values)
    if not sample:
        raise ValueError("there is nothing to summarise")
    if not all(math.isfinite(value) for value in sample):
        raise ValueError(f"a measured value is not finite: {sample}")
    if len(sample) == 1:
        return Summary(sample[0], sample[0], sample[0], 1)
    low, median, high = statistics.quantiles(sample, n=4, method="inclusive")
    return Summary(median, low, high, len(sample))


def paired_ratios(numerators: Sequence[float], denominators: Sequence[float]) -> list[float]:
    """The ratio of each pair measured side by side.

    Summarising these, and not dividing medians, keeps what slowed both halves of a pair out of the figure.
    Raises ValueError when the lengths differ or a denominator is not positive.
    """
    if len(numerators) != len(denominators):
        raise ValueError(f"{len(numerators)} values cannot be paired with {len(denominators)}")
    if any(value <= 0 for value in denominators):
        raise ValueError("a ratio needs positive denominators")
    return [a / b for a, b in zip(numerators, denominators, strict=True)]


def alternate(
    sides: Mapping[str, Callable[[], Result]], *, num_rounds: int, after: Callable[[int], None] | None = None
) -> dict[str, list[Result]]:
    """Call every side once a round, in the order given: ours, theirs, ours, theirs.

    `after` is called with the number of rounds done. Returns what each side returned, in order of the rounds.
    """
    if num_rounds < 1:
        raise ValueError(f"the number of rounds must be at least 1, got {num_rounds}")
    results: dict[str, list[Result]] = {name: [] for name in sides}
    for num_done in range(1, num_rounds + 1):
        for name, call in sides.items():
            results[name].append(call())
        if after is not None:
            after(num_done)
    return results


def in_lockstep(runs: Mapping[str, Generator[int, None, Result]]) -> dict[str, Result]:
    """Several completions side by side: the one that has come least far makes the next step. Returns their results.

    A machine that others use, too, is faster for some seconds and slower for the next. Completions made one after the
    other meet different seconds, and their ratio says more about those than about them; in lockstep they share them.

    runs: yield how many tokens they have after each step, and return their result. Where several have come equally far,
    the earlier one in the mapping goes first.
    """
    results: dict[str, Result] = {}
    reached = dict.fromkeys(runs, 0)
    while reached:
        name = min(reached, key=reached.__getitem__)
        try:
            reached[name] = next(runs[name])
        except StopIteration as end:
            results[name] = end.value
            del reached[name]
    return {name: results[name] for name in runs}


def rotated(items: Sequence[Item], turn: int) -> list[Item]:
    """The items starting with another one each turn, so that none is always measured first."""
    start = turn % len(items) if items else 0
    return [*items[start:], *items[:start]]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token that differs (also where one ends early), None when equal."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return None if len(left) == len(right) else min(len(left), len(right))
