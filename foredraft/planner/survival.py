"""How often a drafter's tokens are right, by how sure it was and how deep they stood.

A drafter's confidence is its own opinion. What it is worth is counted here: tokens are sorted into bins by confidence
and depth, and each bin knows how many were right of those whose parents were. A sequence of its own kind (prose among
code, say) shifts all bins together by an amount that is learned while it runs; a new one begins without a shift.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE_EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
DEPTH_EDGES = (2, 3, 5, 9)
PRIOR_WEIGHT = 4.0
"""Tokens whose weight the drafter's own opinion has in a bin, or the bin of all depths in that of one depth."""
TRUST = 0.85
"""What a confidence is taken for before anything was counted: a drafter tends to think too well of itself."""
MOST_REMEMBERED = 400.0
"""Tokens counted in a bin before the older ones fade: what a drafter is worth changes with the texts."""
SHIFT_RATE = 0.3
SHIFT_FADES = 0.98
MOST_SHIFT = 3.0
MOST_TAKEN_OVER = 100.0
"""Tokens of earlier runs that count in a bin: a new text need not be like the old ones."""


@dataclass
class _Bin:
    right: float = 0.0
    total: float = 0.0

    def count(self, *, right: bool) -> None:
        if self.total >= MOST_REMEMBERED:
            self.right *= 0.5
            self.total *= 0.5
        self.right += right
        self.total += 1.0


class Survival:
    """Chances of one drafter's tokens, given that their parents are right."""

    def __init__(self) -> None:
        depths, confidences = len(DEPTH_EDGES) + 1, len(CONFIDENCE_EDGES) + 1
        self._bins = [[_Bin() for _ in range(confidences)] for _ in range(depths)]
        self._all_depths = [_Bin() for _ in range(confidences)]
        self._shifts: dict[int, float] = {}

    def chance(self, sequence_id: int, confidence: float, depth: int) -> float:
        """The chance that a token is right, where the drafter is so sure of it and it stands so deep (from 1)."""
        return self._shifted(self._estimate(confidence, depth), self._shifts.get(sequence_id, 0.0))

    def chances(self, sequence_id: int, confidences: Sequence[float], depths: Sequence[int]) -> list[float]:
        """Those of all nodes of a tree; the root, at depth 0, is right."""
        shift = self._shifts.get(sequence_id, 0.0)
        estimates = map(self._estimate, confidences, depths)
        found = [self._shifted(estimate, shift) for estimate in estimates] if shift else list(estimates)
        found[0] = 1.0
        return found

    def _estimate(self, confidence: float, depth: int) -> float:
        """What texts of all kinds say. Called for every node of every tree, so it is written out."""
        column = bisect_right(CONFIDENCE_EDGES, confidence)
        whole, own = self._all_depths[column], self._bins[bisect_right(DEPTH_EDGES, depth)][column]
        of_all = (whole.right + PRIOR_WEIGHT * TRUST * confidence) / (whole.total + PRIOR_WEIGHT)
        return (own.right + PRIOR_WEIGHT * of_all) / (own.total + PRIOR_WEIGHT)

    @staticmethod
    def _shifted(chance: float, shift: float) -> float:
        return chance / (chance + (1.0 - chance) * math.exp(-shift)) if shift else chance

    def learn(
        self, sequence_id: int, confidence: float, depth: int, *, right: bool, expected: float | None = None
    ) -> None:
        """Count a token whose parent was right.

        expected: the chance that it was given when it was drafted; None: what it would be given now.
        """
        if expected is None:
            expected = self.chance(sequence_id, confidence, depth)
        column = bisect_right(CONFIDENCE_EDGES, confidence)
        self._all_depths[column].count(right=right)
        self._bins[bisect_right(DEPTH_EDGES, depth)][column].count(right=right)
        shift = SHIFT_FADES * self._shifts.get(sequence_id, 0.0) + SHIFT_RATE * (right - expected)
        self._shifts[sequence_id] = max(-MOST_SHIFT, min(MOST_SHIFT, shift))

    def end(self, sequence_id: int) -> None:
        """The sequence is over."""
        self._shifts.pop(sequence_id, None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted, here or earlier."""
        return not any(bin_.total for bin_ in self._all_depths)

    def to_json(self) -> dict[str, Any]:
        """What was learned of the drafter in general, as plain values; `from_json` takes it."""
        return {
            "bins": [[[b.right, b.total] for b in row] for row in self._bins],
            "all_depths": [[b.right, b.total] for b in self._all_depths],
        }

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "Survival":
        """One that starts from what an earlier one learned. Raises ValueError where `state` does not hold that."""
        survival = cls()
        rows = [*zip(survival._bins, state["bins"], strict=True), (survival._all_depths, state["all_depths"])]
        for row, values in rows:
            for bin_, (right, total) in zip(row, values, strict=True):
                if not 0.0 <= right <= total:
                    raise ValueError("a bin needs at most as many right tokens as tokens")
                scale = min(1.0, MOST_TAKEN_OVER / total) if total else 0.0
                bin_.right, bin_.total = scale * right, scale * total
        return survival
