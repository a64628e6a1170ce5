"""The noise of sampling: a pure function of (seed, choice, position, token id), with no state between calls.

So what a request samples depends on nothing but the request: not on its neighbours in the batch, nor on how
many tokens were drafted, accepted or thrown away before.

The bits, for any implementation that has to agree with this one:

    key     = (seed mod 2^32, seed div 2^32)               a negative seed counts modulo 2^64
    counter = (token_id div 4, position, choice, 0x666f7264)
    word    = Philox4x32-10(counter, key)[token_id mod 4]
    u       = (word + 0.5) * 2^-32                         exact in float64, never 0 or 1
    noise   = -log(-log(u))                                float64; standard Gumbel

Philox4x32-10 is the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As
Easy as 1, 2, 3" (SC 2011).
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_DOMAIN = 0x666F7264  # "ford": keeps this use of the generator apart from any other with the same seed
_WORD = 1 << 32
_NUM_ROUNDS = 10
_MASK = _WORD - 1
_FEW = 8
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_SHIFT, _LOW = np.uint64(32), np.uint64(_WORD - 1)

IntArray = npt.NDArray[np.integer[Any]]
FloatArray = npt.NDArray[np.float64]
WordArray = npt.NDArray[np.uint32]


class Noise(NamedTuple):
    """Which noise to add when a token is chosen.

    seed: of the request. choice: which of several answers to the same prompt. position: index of the token
    to be chosen in prompt + output, so the first output token after a prompt of n tokens has position n.
    """

    seed: int
    choice: int
    position: int

    def __call__(self, token_ids: IntArray) -> FloatArray:
        """Standard Gumbel noise for each token id."""
        return gumbel(self.seed, self.choice, self.position, token_ids)


def gumbel(seed: int, choice: int, position: int, token_ids: IntArray) -> FloatArray:
    """Standard Gumbel noise, one float64 for each token id, in [-3.13, 22.88].

    The noise of a token does not depend on the other ids asked for. Raises ValueError for a choice,
    position or token id outside [0, 2^32), and for a seed of more than 64 bits.
    """
    uniform = (uniform_words(seed, choice, position, token_ids) + 0.5) * 2.0**-32
    return np.asarray(-np.log(-np.log(uniform)), dtype=np.float64)


def uniform_words(seed: int, choice: int, position: int, token_ids: IntArray) -> WordArray:
    """The 32 random bits behind the noise of each token id. Raises ValueError as `gumbel` does."""
    if not -(1 << 63) <= seed < 1 << 64:
        raise ValueError(f"a seed has at most 64 bits, got {seed}")
    for name, value in (("choice", choice), ("position", position)):
        if not 0 <= value < _WORD:
            raise ValueError(f"{name} must be in [0, 2^32), got {value}")
    if not token_ids.size:
        return np.empty(token_ids.shape, dtype=np.uint32)
    low, high = int(token_ids.min()), int(token_ids.max())
    if low < 0 or high >= _WORD:
        raise ValueError(f"token ids must be in [0, 2^32), got ids from {low} to {high}")
    if token_ids.size <= _FEW:
        few = [_word(seed, choice, position, token) for token in token_ids.ravel().tolist()]
        return np.array(few, dtype=np.uint32).reshape(token_ids.shape)
    ids = token_ids.ravel().astype(np.int64)
    blocks = ids >> 2
    rows = np.arange(ids.size)
    first, num_blocks = low >> 2, (high >> 2) - (low >> 2) + 1
    if num_blocks <= ids.size:
        # One block holds the words of four tokens: over a dense range, each is computed once and shared.
        rows = blocks - first
        blocks = np.arange(first, first + num_blocks)
    words = philox4x32(_counters(blocks, position, choice), (seed % _WORD, (seed >> 32) % _WORD))
    chosen: WordArray = words[rows, ids & 3].reshape(token_ids.shape)
    return chosen


def _word(seed: int, choice: int, position: int, token_id: int) -> int:
    """The random bits of one token id, in plain integers: for a few ids quicker than arrays."""
    c0, c1, c2, c3 = token_id >> 2, position, choice, _DOMAIN
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_NUM_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (product1 >> 32) ^ c1 ^ k0, product1 & _MASK, (product0 >> 32) ^ c3 ^ k1, product0 & _MASK
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return (c0, c1, c2, c3)[token_id & 3]


def _counters(blocks: IntArray, position: int, choice: int) -> WordArray:
    counters = np.empty((*blocks.shape, 4), dtype=np.uint32)
    counters[..., 0] = blocks
    counters[..., 1:] = (position, choice, _DOMAIN)
    return counters


def philox4x32(counters: WordArray, key: tuple[int, int]) -> WordArray:
    """Ten rounds of Philox4x32 under a key of two words: uint32 [..., 4] counters to as many random words."""
    c0, c1, c2, c3 = (counters[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(_NUM_ROUNDS):
        # Both factors are below 2^32, so the 64-bit products hold the high and the low word whole.
        product0, product1 = c0 * np.uint64(_MULTIPLIERS[0]), c2 * np.uint64(_MULTIPLIERS[1])
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) % _WORD, (k1 + _KEY_STEPS[1]) % _WORD
    return np.stack((c0, c1, c2, c3), axis=-1).astype(np.uint32)
