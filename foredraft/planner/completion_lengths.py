"""How long a completion will go on, by how long earlier ones were."""

from collections import deque

NUM_LENGTHS = 50
"""Completions that are remembered."""
FEW_COMPLETIONS = 20
"""Fewer say nothing sure."""
SHORT = 32.0
"""Tokens of a short completion."""


class CompletionLengths:
    """Numbers of tokens of the last completions."""

    def __init__(self) -> None:
        self._lengths: deque[int] = deque(maxlen=NUM_LENGTHS)

    def add(self, num_tokens: int) -> None:
        """A completion has ended."""
        self._lengths.append(num_tokens)

    def expected_rest(self, so_far: int) -> float:
        """Tokens that a completion of so many is expected to go on for. Without earlier ones, twice as many again."""
        longer = self._longer(so_far)
        return (sum(longer) + 2.0 * max(float(so_far), SHORT)) / (len(longer) + 2.0)

    def sure_rest(self, so_far: int) -> int:
        """Tokens that all earlier completions went on for that came further; 0 where there were few."""
        longer = self._longer(so_far)
        return min(longer) if len(longer) >= FEW_COMPLETIONS else 0

    def _longer(self, so_far: int) -> list[int]:
        return [length - so_far for length in self._lengths if length > so_far]
