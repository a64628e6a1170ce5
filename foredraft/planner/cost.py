"""What a forward pass costs, by its number of batched tokens and the positions that they look back on.

Measured once (see `foredraft.planner.calibration`), and corrected by every round that runs: the machine may be busy
with something else, its memory slower than a minute ago, or the calibration years old.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Any

NUM_TO_JUDGE = 9
"""Passes whose median says what a number of tokens takes: few disturbed ones do not count, a lasting change does."""
NUM_OF_LEVEL = 5
"""Passes whose median says how fast the machine is now."""
NUM_REMEMBERED = 32
"""Passes of each number of tokens that are remembered, for when the machine is as fast again as it was then."""
ALIKE = 0.1
"""Passes count for each other where the machine was as fast, but for this part."""
WEIGHT_OF_GUESS = 1.0
"""How many passes of a number of tokens weigh as much as the guess from the speed of the machine."""
HOPE = 0.75
"""Of two guesses at a pass that was not seen, the weight of the cheaper one: trying it shows what is true."""
NUM_ROUNDS_TO_FORGET = 100.0
"""Rounds after which what was seen at a number of tokens weighs half: it is not asked for now, and things change."""
LITTLE, REFRESHED = 0.02, 16
"""Change of speed from which, and rounds after which, all numbers of tokens are looked at again, not only the last."""
MOST_ROUNDS_WITHOUT = 16
"""Rounds without a pass of the fewest tokens after which passes of more tokens say how fast the machine is."""
MOST_TOKENS = 65536
"""Most tokens of a pass that a calibration may name: far more than is ever measured."""

MOST_CONTINUED = 64
"""Tokens up to which a calibration is continued: those of the largest round, and a few."""

PassSeconds = Callable[[int], float]
"""From a number of batched tokens to the seconds of a pass of so many."""


@dataclass(frozen=True)
class Calibration:
    """Seconds of one pass, as measured.

    num_tokens: numbers of batched tokens, rising from 1. seconds: of a pass of so many, with nothing cached.
    per_position: seconds that one cached position adds to a pass. per_position_token: and to each of its tokens.
    """

    num_tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    per_position: float = 0.0
    per_position_token: float = 0.0

    def __post_init__(self) -> None:
        if not self.num_tokens or self.num_tokens[0] != 1 or len(self.num_tokens) != len(self.seconds):
            raise ValueError("a calibration needs one time for each number of tokens, the first of which is 1")
        if list(self.num_tokens) != sorted(set(self.num_tokens)) or min(self.seconds) <= 0:
            raise ValueError("a calibration needs rising numbers of tokens, and times above 0")
        if self.num_tokens[-1] > MOST_TOKENS:  # times are tabulated for every number up to it
            raise ValueError(f"a calibration needs numbers of tokens of at most {MOST_TOKENS}")
        if not all(0 <= time < math.inf for time in (*self.seconds, self.per_position, self.per_position_token)):
            raise ValueError("a calibration needs finite times")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Calibration":
        """From the plain values of its fields. Raises KeyError, TypeError or ValueError where they are none."""
        return cls(
            tuple(int(number) for number in fields["num_tokens"]),
            tuple(float(seconds) for seconds in fields["seconds"]),
            float(fields["per_position"]),
            float(fields["per_position_token"]),
        )


def continued(calibration: Calibration, most: int = MOST_CONTINUED) -> Calibration:
    """A calibration up to `most` tokens: each further group of tokens costs what the last measured one did.

    Kernels take tokens in groups, and the first of a group costs most of it: times between the last two numbers that
    were measured, within one group, say nothing of the next. The last group is that from half of the last number on,
    where that half was measured, too; otherwise the calibration stays as it is.
    """
    measured = dict(zip(calibration.num_tokens, calibration.seconds, strict=True))
    last = calibration.num_tokens[-1]
    half = last // 2
    if last < 2 or 2 * half != last or half not in measured:
        return calibration
    group = {number - half: seconds - measured[half] for number, seconds in measured.items() if number > half}
    start = last
    while start < most:
        measured |= {start + number: measured[start] + seconds for number, seconds in group.items()}
        start += half
    return replace(calibration, num_tokens=tuple(measured), seconds=tuple(measured.values()))


class CostModel:
    """Predicts the seconds of a forward pass, and learns from the passes that ran."""

    def __init__(self, calibration: Calibration) -> None:
        calibration = self._calibration = continued(calibration)
        self._points: list[_Point] = []
        self._num_filled = 32
        self._fill()
        self._seen: list[deque[tuple[float, float]]] = [deque(maxlen=NUM_REMEMBERED) for _ in calibration.num_tokens]
        self._last_seen = [0] * len(calibration.num_tokens)
        self._levels: deque[float] = deque(maxlen=NUM_OF_LEVEL)
        self._of_levels = 0
        self._level = self._level_of_all = 1.0
        self._num_rounds = 0
        self._corrections = [1.0] * len(calibration.num_tokens)
        self._corrected = list(calibration.seconds)
        self._correct(range(len(calibration.num_tokens)))

    def seconds(self, num_tokens: int, num_token_positions: int = 0, num_positions: int = 0) -> float:
        """Seconds of a pass of `num_tokens` tokens, 1 or more.

        num_positions: cached positions of all its sequences together. num_token_positions: of all its tokens together.
        """
        point = self._point(num_tokens)
        attention = self._attention(num_token_positions, num_positions)
        return point.of(self._corrected) + self._corrections[point.nearest] * attention

    def passes(self, num_sequences: int, num_positions: int) -> PassSeconds:
        """What passes cost as far as is known now. num_positions: cached positions of all sequences together."""
        corrected, of_attention, point = self._corrected, self._corrections[0], self._point
        per_token = of_attention * self._calibration.per_position_token * num_positions / max(1, num_sequences)
        per_pass = of_attention * self._calibration.per_position * num_positions
        return lambda number: point(number).of(corrected) + per_token * number + per_pass

    def observe(self, num_tokens: int, seconds: float, num_token_positions: int = 0, num_positions: int = 0) -> None:
        """Learn from a pass that ran."""
        point = self._point(num_tokens)
        expected = point.of(self._calibration.seconds) + self._attention(num_token_positions, num_positions)
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
        """The fewest tokens that were seen lately: passes of these say how fast the machine is."""
        before = max(0, self._num_rounds - MOST_ROUNDS_WITHOUT)
        fewest = next(index for index, seen in enumerate(self._last_seen) if seen > before)
        if fewest != self._of_levels:
            self._levels.clear()
            self._of_levels = fewest
        return fewest

    def _attention(self, num_token_positions: int, num_positions: int) -> float:
        c = self._calibration
        return c.per_position * num_positions + c.per_position_token * num_token_positions

    def _point(self, num_tokens: int) -> "_Point":
        if num_tokens > self._num_filled:
            self._num_filled = 2 * num_tokens
            self._fill()
        return self._points[num_tokens - 1]

    def _fill(self) -> None:
        """Find the place of every number of tokens once: several are looked up in each round."""
        measured = self._calibration.num_tokens
        self._points = [_point_between(measured, count) for count in range(1, self._num_filled + 1)]

    def _correct(self, indices: Iterable[int]) -> None:
        """By how much some numbers of tokens take longer than calibrated, and thus how long."""
        for index in indices:
            self._corrections[index] = self._correction(index)
        # Noise must not make more tokens look cheaper than fewer.
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
        """What a number of tokens takes in calibrated times, by the speed of passes of the fewest.

        Where these are slower, or faster, all of the work may be, or only the memory, which more tokens do not wait
        for as they compute in the meantime (Williams et al., "Roofline", 2009).
        """
        seconds, level = self._calibration.seconds, self._level
        # Where passes of these or of more tokens were seen to be faster than calibrated, so is the arithmetic.
        of_arithmetic = min(1.0, level) if index <= self._of_levels else 1.0
        of_all, of_memory = level, max(of_arithmetic, level * seconds[0] / seconds[index])
        less, more = sorted((of_all, of_memory))
        return HOPE * less + (1.0 - HOPE) * more


@dataclass(frozen=True, slots=True)
class _Point:
    """A number of tokens among those measured: the two that it lies between, and how much of the way from low to high.

    With one number measured only, times are in proportion to tokens.
    """

    low: int
    high: int
    part: float
    nearest: int
    scale: float = 1.0

    def of(self, seconds: Sequence[float]) -> float:
        low = seconds[self.low]
        return self.scale * (low + self.part * (seconds[self.high] - low))


def _point_between(measured: Sequence[int], count: int) -> _Point:
    """Linear between those measured, and beyond the last as between the last two."""
    nearest = min(range(len(measured)), key=lambda index: abs(measured[index] - count))
    if measured[nearest] == count:
        return _Point(nearest, nearest, 0.0, nearest)
    if len(measured) == 1:
        return _Point(0, 0, 0.0, nearest, float(count))
    high = min(bisect_left(measured, count, 1), len(measured) - 1)
    part = (count - measured[high - 1]) / (measured[high] - measured[high - 1])
    return _Point(high - 1, high, part, nearest)
