"""What a forward pass costs, by the number of rows and the positions they look back on.

Measured once (see `foredraft.planner.calibration`), and corrected by every round that runs: the machine may be busy
with something else, its memory slower than a minute ago, or the calibration years old.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

NUM_REMEMBERED = 9
"""Rounds whose median corrects a number of rows: a few disturbed ones do not count, and a lasting change does."""
WEIGHT_OF_ALL = 2.0
"""How many rounds of one number of rows weigh as much as what rounds of all numbers say."""
NUM_ROUNDS_TO_FORGET = 200.0
"""Rounds after which what was seen at a number of rows weighs half: it is not asked for now, and things change."""
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


class CostModel:
    """Predicts the seconds of a forward pass, and learns from the passes that ran."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._max_rows = 32
        self._seen: list[deque[float]] = [deque(maxlen=NUM_REMEMBERED) for _ in calibration.rows]
        self._last_seen = [0] * len(calibration.rows)
        self._all: deque[float] = deque(maxlen=NUM_REMEMBERED)
        self._num_rounds = 0
        self._table: list[float] = []
        self._corrections: list[float] = []
        self._as_measured: list[float] = []

    def seconds(self, num_rows: int, num_row_positions: int = 0, num_positions: int = 0) -> float:
        """Seconds of a pass of `num_rows` rows, 1 or more.

        num_positions: cached positions of all its requests together. num_row_positions: the same, summed over rows.
        """
        attention = self._attention(num_row_positions, num_positions)
        if not attention:
            return self._base(num_rows)
        return self._base(num_rows) + self._corrected()[self._nearest(num_rows)] * attention

    def by_rows(self, num_rows: int = 1) -> list[float]:
        """Seconds of passes of 0, 1, 2, ... rows, up to `num_rows` at least, with nothing behind them."""
        if not self._table or num_rows > self._max_rows:
            self._max_rows = max(self._max_rows, num_rows)
            self._table = self._current()
        return self._table

    def passes(self, num_requests: int, num_positions: int, num_rows: int) -> PassSeconds:
        """What passes cost, up to `num_rows` rows.

        num_positions: cached positions of all its requests together.
        """
        by_rows, of_attention = self.by_rows(num_rows), self._corrected()[0]
        per_row = of_attention * self._calibration.per_position_row * num_positions / max(1, num_requests)
        per_pass = of_attention * self._calibration.per_position * num_positions
        return lambda rows: by_rows[rows] + per_row * rows + per_pass

    def observe(self, num_rows: int, seconds: float, num_row_positions: int = 0, num_positions: int = 0) -> None:
        """Learn from a pass that ran."""
        ratio = seconds / (self._calibrated(num_rows) + self._attention(num_row_positions, num_positions))
        index = self._nearest(num_rows)
        self._num_rounds += 1
        self._last_seen[index] = self._num_rounds
        self._seen[index].append(ratio)
        self._all.append(ratio)
        self._table = []
        self._corrections = []

    def _attention(self, num_row_positions: int, num_positions: int) -> float:
        c = self._calibration
        return c.per_position * num_positions + c.per_position_row * num_row_positions

    def _base(self, num_rows: int) -> float:
        return self.by_rows(num_rows)[num_rows]

    def _nearest(self, num_rows: int) -> int:
        rows = self._calibration.rows
        return min(range(len(rows)), key=lambda index: abs(rows[index] - num_rows))

    def _calibrated(self, num_rows: int) -> float:
        if num_rows > len(self._as_measured):
            self._as_measured = _filled_in(self._calibration.rows, list(self._calibration.seconds), 2 * num_rows)
        return self._as_measured[num_rows - 1]

    def _corrected(self) -> list[float]:
        """By how much each number of rows takes longer than calibrated."""
        if not self._corrections:
            of_all = median(self._all) if self._all else 1.0
            self._corrections = [self._correction(index, of_all) for index in range(len(self._seen))]
        return self._corrections

    def _correction(self, index: int, of_all: float) -> float:
        seen = self._seen[index]
        if not seen:
            return of_all
        age = self._num_rounds - self._last_seen[index]
        weight = len(seen) * math.exp2(-age / NUM_ROUNDS_TO_FORGET)
        return (weight * median(seen) + WEIGHT_OF_ALL * of_all) / (weight + WEIGHT_OF_ALL)

    def _current(self) -> list[float]:
        c = self._calibration
        corrected = [s * factor for s, factor in zip(c.seconds, self._corrected(), strict=True)]
        for index in range(1, len(corrected)):  # noise must not make more rows look cheaper than fewer
            corrected[index] = max(corrected[index], corrected[index - 1])
        return [0.0, *_filled_in(c.rows, corrected, self._max_rows)]


def _filled_in(rows: tuple[int, ...], seconds: list[float], num_rows: int) -> list[float]:
    """Seconds for 1, 2, ... rows: linear between those measured, and beyond the last as between the last two."""
    if len(rows) == 1:
        return [seconds[0] * count for count in range(1, num_rows + 1)]
    filled = [seconds[0]]
    for index in range(1, len(rows)):
        low, high = rows[index - 1], rows[index]
        slope = (seconds[index] - seconds[index - 1]) / (high - low)
        last = max(high, num_rows) if index == len(rows) - 1 else high
        filled.extend([seconds[index - 1] + slope * (count - low) for count in range(low + 1, last + 1)])
    return filled[:num_rows]
