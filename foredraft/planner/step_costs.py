"""What the work of a model-based drafter takes."""

from collections import deque
from statistics import median

from foredraft.planner.cost import Calibration, CostModel

_CHUNK_TOKENS = 64


class StepCosts:
    """Seconds of a draft model's work, as calibrated and corrected by how long it took."""

    def __init__(self, calibration: Calibration) -> None:
        self._model = CostModel(calibration)
        self._ratios: deque[float] = deque(maxlen=9)

    def step_s(self, num_sequences: int) -> float:
        """Seconds of one more token for each of so many sequences."""
        return self._ratio * self._model.seconds(max(1, num_sequences))

    def prefill_s(self, num_tokens: int) -> float:
        """Seconds of the prefill of so many tokens."""
        whole, rest = divmod(num_tokens, _CHUNK_TOKENS)
        seconds = whole * self._model.seconds(_CHUNK_TOKENS) + (self._model.seconds(rest) if rest else 0.0)
        return self._ratio * seconds

    def observe(self, expected_s: float, seconds: float) -> None:
        """Learn how long a draft took that was expected to take `expected_s`."""
        if expected_s > 0 and seconds > 0:  # a coarse clock may not have moved
            self._ratios.append(seconds / expected_s * self._ratio)

    @property
    def _ratio(self) -> float:
        return median(self._ratios) if self._ratios else 1.0
