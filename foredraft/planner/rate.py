"""The speed that a text comes at, and what a round takes besides drafting and verifying."""

from foredraft.planner.base import RoundTimes

FADES = 0.95
"""Weight that a round keeps when the next one is counted: some twenty rounds matter."""


class Rate:
    """Tokens per second over the last rounds, all requests together."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0
        self._num_rounds = 0.0
        self._accept_s = 0.0

    def observe(self, num_tokens: int, times: RoundTimes) -> None:
        """Count a round."""
        self._tokens = FADES * self._tokens + num_tokens
        self._seconds = FADES * self._seconds + times.total
        self._num_rounds = FADES * self._num_rounds + 1.0
        self._accept_s = FADES * self._accept_s + times.accept

    def start_anew(self) -> None:
        """Other texts come now, at a speed of their own."""
        self._tokens = self._seconds = 0.0

    def at_least(self, plain: float) -> float:
        """Tokens per second; `plain`, what there would be without drafts, where the rounds were slower or none."""
        return max(plain, self._tokens / self._seconds) if self._seconds else plain

    @property
    def overhead_s(self) -> float:
        """Seconds of a round outside drafting and the pass."""
        return self._accept_s / self._num_rounds if self._num_rounds else 0.0
