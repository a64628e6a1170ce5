"""DRY, "don't repeat yourself": a penalty that grows with the repetition that a token would go on with.

Source: p-e-w, "DRY: A modern repetition penalty" (text-generation-webui, pull request 5677), in llama.cpp's form: the
token after a repeated run of L tokens loses multiplier * base ** (L - allowed_length) of its logit, from
L = allowed_length on; the longest run counts. A run does not reach back across a sequence breaker, and a token that
holds one is not penalised.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft.sampling.processors.base import Row

Lengths = npt.NDArray[np.int32]
_NUM_KEPT = 128
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True, kw_only=True)
class DryOptions:
    """The options as `SamplingParams` has them; breakers as bytes of text. num_last: most tokens looked at."""

    multiplier: float
    base: float
    allowed_length: int
    num_last: int
    breakers: tuple[bytes, ...]


class Dry:
    """The penalty for one request; prompt and output count alike.

    Kept up to date for the newest token: for every earlier one, how many tokens up to it equal the newest ones. A new
    token makes each of these one longer or 0, so that a step takes a few array operations.
    """

    def __init__(self, options: DryOptions, prompt: Sequence[int], bytes_of: Callable[[int], bytes]) -> None:
        self._options = options
        self._bytes_of = bytes_of
        self._num_tail_bytes = max(map(len, options.breakers), default=1) - 1
        self._tokens = np.zeros(max(64, 2 * len(prompt)), dtype=np.int64)
        self._tokens[: len(prompt)] = prompt
        self._num = len(prompt)
        # Places of tokens in which a sequence breaker ends: of the prompt, which is never taken back, the last.
        self._breaks = [next((place for place in reversed(range(self._num)) if self._ends_breaker(place)), -1)]
        self._lengths: deque[Lengths] = deque((self._computed(),), maxlen=_NUM_KEPT)

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        longer = np.concatenate((np.zeros(1, np.int32), self._lengths[-1])) + 1 if self._num else np.zeros(0, np.int32)
        self._append(token)
        self._lengths.append(np.where(self._tokens[: self._num - 1] == token, longer, 0).astype(np.int32))

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        self._num -= 1
        if self._breaks[-1] == self._num:
            self._breaks.pop()
        self._lengths.pop()
        if not self._lengths:
            self._lengths.append(self._computed())

    def _append(self, token: int) -> None:
        if self._num == len(self._tokens):
            self._tokens = np.concatenate((self._tokens, np.zeros_like(self._tokens)))
        self._tokens[self._num] = token
        self._num += 1
        if self._ends_breaker(self._num - 1):
            self._breaks.append(self._num - 1)

    def _ends_breaker(self, place: int) -> bool:
        """Whether a breaker ends in the token at a place; it may begin in earlier ones."""
        piece = self._bytes_of(int(self._tokens[place]))
        tail = b""
        while place > 0 and len(tail) < self._num_tail_bytes:
            place -= 1
            tail = self._bytes_of(int(self._tokens[place])) + tail
        text = tail + piece
        return any(text.find(breaker, max(0, len(tail) - len(breaker) + 1)) >= 0 for breaker in self._options.breakers)

    def _computed(self) -> Lengths:
        """The lengths afresh: int32 [tokens - 1]."""
        tokens = self._tokens[: self._num]
        lengths = np.zeros(max(0, self._num - 1), dtype=np.int32)
        ends = np.arange(len(lengths))
        length = 0
        while ends.size:
            # Those whose last `length` tokens are equal, and the one before as well.
            ends = ends[ends >= length]
            ends = ends[tokens[ends - length] == tokens[self._num - 1 - length]]
            length += 1
            lengths[ends] = length
        return lengths

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`."""
        options = self._options
        window = min(self._num, options.num_last)
        longest = min(window, self._num - 1 - self._breaks[-1])
        if window <= options.allowed_length or longest < options.allowed_length:
            return
        begin = self._num - window
        # A run lies in the window as a whole.
        lengths = np.minimum(self._lengths[-1][begin:], np.arange(1, window))
        ends = np.flatnonzero(lengths >= options.allowed_length)
        lengths = np.minimum(lengths[ends], longest)
        following = self._tokens[begin + ends + 1]
        for token, length in _longest_of_each(following, lengths):
            if not any(breaker in self._bytes_of(token) for breaker in options.breakers):
                with np.errstate(over="ignore"):  # down to -inf
                    logits_V[token] -= np.float32(self._penalty(length))

    def _penalty(self, length: int) -> float:
        options = self._options
        try:
            return min(options.multiplier * options.base ** (length - options.allowed_length), _LARGEST)
        except OverflowError:
            return _LARGEST


def _longest_of_each(tokens: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> list[tuple[int, int]]:
    """Each token once, with the largest of its lengths."""
    unique, places = np.unique(tokens, return_inverse=True)
    longest = np.zeros(len(unique), dtype=np.int64)
    np.maximum.at(longest, places, lengths)
    return list(zip(unique.tolist(), longest.tolist(), strict=True))
