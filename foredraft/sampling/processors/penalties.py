"""Penalties on tokens that were there before: repetition, frequency, presence."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from foredraft.sampling.processors.base import Row


class RepetitionPenalty:
    """Divides positive logits of tokens in prompt and output by a factor, multiplies negative ones by it.

    Source: Keskar et al., "CTRL" (2019), section 4.1, in the form that transformers and vLLM share.
    """

    def __init__(self, penalty: float, prompt: Sequence[int]) -> None:
        self._penalty = np.float32(penalty)
        self._counts = Counter(prompt)

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._counts[token] += 1

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        _take_back(self._counts, token)

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        ids = np.fromiter(self._counts, dtype=np.int64, count=len(self._counts))
        logits = logits_V[ids]
        with np.errstate(
            over="ignore", divide="ignore", invalid="ignore"
        ):  # a tiny factor makes the largest number of a positive logit
            changed = np.where(logits > 0, logits / self._penalty, logits * self._penalty)
        logits_V[ids] = np.minimum(changed, np.finfo(np.float32).max)


class CountPenalties:
    """Takes off a logit: `frequency` for each time that the output has the token, and `presence` if it has it.

    Source: the OpenAI API reference, "Frequency and presence penalties"; the prompt does not count.
    """

    def __init__(self, frequency: float, presence: float) -> None:
        self._frequency, self._presence = np.float32(frequency), np.float32(presence)
        self._counts = Counter[int]()

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._counts[token] += 1

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        _take_back(self._counts, token)

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        ids = np.fromiter(self._counts, dtype=np.int64, count=len(self._counts))
        counts = np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))
        logits_V[ids] = (logits_V[ids] - self._frequency * counts) - self._presence


def _take_back(counts: Counter[int], token: int) -> None:
    if counts[token] == 1:
        del counts[token]
    else:
        counts[token] -= 1
