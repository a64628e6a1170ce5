"""What a forward pass costs, by the number of rows and the positions they look back on.

Measured once (see `foredraft.planner.calibration`), and corrected by every round that runs: the machine may be busy
with something else, its memory slower than a minute ago, or the calibration years old.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Any

NUM_TO_JUDGE = 9
"""Passes whose median says what a number of rows takes: few disturbed ones do not count, and a lasting change does."""
NUM_OF_LEVEL = 5
"""Passes whose median says how fast the machine is now."""
NUM_REMEMBERED = 32
"""Passes of each number of rows that are remembered, for when the machine is as fast again as it was then."""
ALIKE = 0.1
"""Passes count for each other where the machine was as fast, but for this share."""
WEIGHT_OF_GUESS = 1.0
"""How many passes of a number of rows weigh as much as the guess from the speed of the machine."""
HOPE = 0.75
"""Of two guesses at rows that were not seen, the weight of the one that says less: trying them shows what is true."""
NUM_ROUNDS_TO_FORGET = 100.0
"""Rounds after which what was seen at a number of rows weighs half: it is not asked for now, and things change."""
LITTLE, REFRESHED = 0.02, 16
"""Change of speed from which, and rounds after which, all numbers of rows are looked at again, not only the last."""
MOST_ROUNDS_WITHOUT = 16
"""Rounds without a pass of the fewest rows after which passes of more rows say how fast the machine is."""
MOST_ROWS = 65536
"""Most rows of a pass that a calibration may name: far more than is ever measured."""

PassSeconds = Callable[[int], float]
"""From a number of rows to the seconds of a pass of so many."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of one pass, as measured.

    rows: numbers of rows, rising from 1. seconds: of a pass of so many rows with nothing behind them.
    per_position: seconds that one cached position adds to a pass. per_position_row: and to each of its rows.
    """

    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    per_position: float = 0.0
    per_position_row: float = 0.0

    def __post_init__(self) -> None:
        if not self.rows or self.rows[0] != 1 or len(self.rows) != len(self.seconds):
            raise ValueError("a calibration needs one time for each number of rows, the first of which is 1")
        if list(self.rows) != sorted(set(self.rows)) or min(self.seconds) <= 0:
            raise ValueError("a calibration needs rising numbers of rows, and times above 0")
        if self.rows[-1] > MOST_ROWS:  # times are tabulated for every number up to it
            raise ValueError(f"a calibration needs numbers of rows of at most {MOST_ROWS}")
        if not all(map(math.isfinite, self.seconds)) or not 0 <= self.per_position < math.inf:
            raise ValueError("a calibration needs finite times")
        if not 0 <= self.per_position_row < math.inf:
            raise ValueError("a calibration needs finite times")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Calibration":
        """From the plain values of its fields. Raises KeyError, TypeError or ValueError where they are none."""
        return cls(
            tuple(int(count) for count in fields["rows"]),
            tuple(float(seconds) for seconds in fields["seconds"]),
            float(fields["per_position"]),
            float(fields["per_position_row"]),
        )


class CostModel:
    """Predicts the seconds of a forward pass, and learns from the passes that ran."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._points: list[_Point] = []
        self._num_filled = 32
        self._fill()
        self._seen: list[deque[tuple[float, float]]] = [deque(maxlen=NUM_REMEMBERED) for _ in calibration.rows]
        self._last_seen = [0] * len(calibration.rows)
        self._levels: deque[float] = deque(maxlen=NUM_OF_LEVEL)
        self._of_levels = 0
        self._level = self._level_of_all = 1.0
        self._num_rounds = 0
        self._corrections = [1.0] * len(calibration.rows)
        self._corrected = list(calibration.seconds)
        self._correct(range(len(calibration.rows)))

    def seconds(self, num_rows: int, num_row_positions: int = 0, num_positions: int = 0) -> float:
        """Seconds of a pass of `num_rows` rows, 1 or more.

        num_positions: cached positions of all its requests together. num_row_positions: the same, summed over rows.
        """
        point = self._point(num_rows)
        attention = self._attention(num_row_positions, num_positions)
        return point.of(self._corrected) + self._corrections[point.nearest] * attention

    def passes(self, num_requests: int, num_positions: int) -> PassSeconds:
        """What passes cost until the next one is observed. num_positions: cached positions of all requests together."""
        corrected, of_attention, point = self._corrected, self._corrections[0], self._point
        per_row = of_attention * self._calibration.per_position_row * num_positions / max(1, num_requests)
        per_pass = of_attention * self._calibration.per_position * num_positions
        return lambda rows: point(rows).of(corrected) + per_row * rows + per_pass

    def observe(self, num_rows: int, seconds: float, num_row_positions: int = 0, num_positions: int = 0) -> None:
        """Learn from a pass that ran."""
        point = self._point(num_rows)
        expected = point.of(self._calibration.seconds) + self._attention(num_row_positions, num_positions)
        index, ratio = point.nearest, seconds / expected
        self._num_rounds += 1
        self._last_seen[index] = self._num_rounds
        if index == self._fewest():
            self._levels.append(ratio)
            self._level = median(self._levels)
        self._seen[index].append((self._level, ratio))
        if abs(self._level - self._level_of_all) > LITTLE * self._level_of_all or self._num_rounds % REFRESHED == 0:
            self._level_of_all = self._level
            self._correct(range(len(self._seen)))
        else:
            self._correct((index,))

    def _fewest(self) -> int:
        """The fewest rows that were seen lately: passes of these say how fast the machine is."""
        before = max(0, self._num_rounds - MOST_ROUNDS_WITHOUT)
        fewest = next(index for index, seen in enumerate(self._last_seen) if seen > before)
        if fewest != self._of_levels:
            self._levels.clear()
            self._of_levels = fewest
        return fewest

    def _attention(self, num_row_positions: int, num_positions: int) -> float:
        c = self._calibration
        return c.per_position * num_positions + c.per_position_row * num_row_positions

    def _point(self, num_rows: int) -> "_Point":
        if num_rows > self._num_filled:
            self._num_filled = 2 * num_rows
            self._fill()
        return self._points[num_rows - 1]

    def _fill(self) -> None:
        """Find the place of every number of rows once: several are looked up in each round."""
        measured = self._calibration.rows
        self._points = [_point_between(measured, count) for count in range(1, self._num_filled + 1)]

    def _correct(self, indices: Iterable[int]) -> None:
        """By how much some numbers of rows take longer than calibrated, and thus how long."""
        for index in indices:
            self._corrections[index] = self._correction(index)
        # Noise must not make more rows look cheaper than fewer.
        seconds = map(mul, self._calibration.seconds, self._corrections)
        self._corrected = list(accumulate(seconds, max))

    def _correction(self, index: int) -> float:
        guess, level = self._guess(index), self._level
        alike = [ratio for then, ratio in self._seen[index] if abs(then - level) <= ALIKE * level]
        if not alike:
            return guess
        found = median(alike[-NUM_TO_JUDGE:])
        weight = len(alike) * math.exp2((self._last_seen[index] - self._num_rounds) / NUM_ROUNDS_TO_FORGET)
        return (weight * found + WEIGHT_OF_GUESS * guess) / (weight + WEIGHT_OF_GUESS)

    def _guess(self, index: int) -> float:
        """What a number of rows takes in calibrated times, by the speed of passes of the fewest.

        Where these are slower, or faster, all of the work may be, or only the memory, which more rows do not wait for
        as they compute in the meantime (Williams et al., "Roofline", 2009).
        """
        seconds = self._calibration.seconds
        of_all, of_memory = self._level, max(1.0, self._level * seconds[0] / seconds[index])
        less, more = sorted((of_all, of_memory))
        return HOPE * less + (1.0 - HOPE) * more


@dataclass(frozen=True, slots=True)
class _Point:
    """A number of rows among those measured: the two that it lies between, and its share of the way from low to high.

    With one number measured only, times are in proportion to rows.
    """

    low: int
    high: int
    share: float
    nearest: int
    scale: float = 1.0

    def of(self, seconds: Sequence[float]) -> float:
        low = seconds[self.low]
        return self.scale * (low + self.share * (seconds[self.high] - low))


def _point_between(measured: Sequence[int], count: int) -> _Point:
    """Linear between those measured, and beyond the last as between the last two."""
    nearest = min(range(len(measured)), key=lambda index: abs(measured[index] - count))
    if measured[nearest] == count:
        return _Point(nearest, nearest, 0.0, nearest)
    if len(measured) == 1:
        return _Point(0, 0, 0.0, nearest, float(count))
    high = min(bisect_left(measured, count, 1), len(measured) - 1)
    share = (count - measured[high - 1]) / (measured[high] - measured[high - 1])
    return _Point(high - 1, high, share, nearest)
