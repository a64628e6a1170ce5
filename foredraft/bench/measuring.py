"""Arithmetic of measurements: medians, ratios of pairs, alternation."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Result = TypeVar("Result")


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
