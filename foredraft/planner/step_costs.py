"""What the work of a drafter with a model of its own takes."""

from collections import deque
from statistics import median

from foredraft.planner.cost import Calibration, CostModel

_READ_ROWS = 64


class StepCosts:
    """Seconds of a draft model's work, as calibrated and corrected by how long it took."""

    def __init__(self, calibration: Calibration) -> None:
        self._model = CostModel(calibration)
        self._ratios: deque[float] = deque(maxlen=9)

    def step_s(self, num_requests: int) -> float:
        """Seconds of one more token for each of so many requests."""
        return self._ratio * self._model.seconds(max(1, num_requests))

    def read_s(self, num_tokens: int) -> float:
        """Seconds of reading so many tokens."""
        whole, rest = divmod(num_tokens, _READ_ROWS)
        seconds = whole * self._model.seconds(_READ_ROWS) + (self._model.seconds(rest) if rest else 0.0)
        return self._ratio * seconds

    def observe(self, expected_s: float, seconds: float) -> None:
        """Learn how long a draft took that was expected to take `expected_s`."""
        if expected_s > 0:
            self._ratios.append(seconds / expected_s * self._ratio)

    @property
    def _ratio(self) -> float:
        return median(self._ratios) if self._ratios else 1.0
