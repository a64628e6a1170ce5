"""Biases and bans: logit_bias, bad_words, min_tokens."""

from collections.abc import Mapping, Sequence

import numpy as np

from foredraft.sampling.processors.base import Row


class LogitBias:
    """Adds a number to the logits of some tokens. Source: the OpenAI API reference, `logit_bias`."""

    def __init__(self, biases: Mapping[int, float]) -> None:
        self._ids = np.array(list(biases), dtype=np.int64)
        self._biases = np.array(list(biases.values()), dtype=np.float32)

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        logits_V[self._ids] += self._biases


class BadWords:
    """Excludes the last token of each banned sequence where the output ends with the tokens before it.

    The prompt does not count, as in vLLM.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._sequences = [tuple(sequence) for sequence in sequences]
        self._output: list[int] = []

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._output.append(token)

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._output.pop()

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        for *before, last in self._sequences:
            if not before or self._output[-len(before) :] == before:
                logits_V[last] = -np.inf


class MinTokens:
    """Excludes the tokens that would end the text before it has `min_tokens` tokens."""

    def __init__(self, min_tokens: int, end_ids: Sequence[int]) -> None:
        self._min_tokens = min_tokens
        self._end_ids = np.array(sorted(end_ids), dtype=np.int64)
        self._num_output = 0

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._num_output += 1

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._num_output -= 1

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        if self._num_output < self._min_tokens:
            logits_V[self._end_ids] = -np.inf
