"""The speed that a text comes at."""

FADES = 0.95
"""Weight that a round keeps when the next one is counted: some twenty rounds matter."""


class Rate:
    """Tokens per second over the last rounds, all sequences together."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """Count a round."""
        self._tokens = FADES * self._tokens + num_tokens
        self._seconds = FADES * self._seconds + seconds

    def start_anew(self) -> None:
        """Other texts come now, at a speed of their own."""
        self._tokens = self._seconds = 0.0

    def at_least(self, plain: float) -> float:
        """Tokens per second; `plain`, what there would be without drafts, where the rounds were slower or none."""
        return max(plain, self._tokens / self._seconds) if self._seconds else plain
