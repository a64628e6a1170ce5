"""Seeded uniform numbers for what the noise of a token's choice must have no part in.

A rule that accepts with a probability needs numbers that are independent of the drafter's draws, and both must be
independent of the noise of coupled sampling. Like that noise they have no state, so an answer can be repeated:

    key     = that of `foredraft.sampling.noise`
    counter = (event, position, choice, stream)
    words   = Philox4x32-10(counter, key)
    u       = (words[0] div 2^5 * 2^26 + words[1] div 2^6) * 2^-53       in [0, 1), 0 included, never 1

position: of the first token that the round can emit. Each round has another one, so no number serves twice, even where
the next round drafts for the same places again. event: which of the numbers of that round.
"""

from enum import IntEnum

import numpy as np

from foredraft.sampling.noise import FloatArray, philox4x32

_WORD = 1 << 32


class Stream(IntEnum):
    """What uniform numbers are for. The noise of tokens is a stream of its own, 0x666f7264."""

    ACCEPT = 0x61636370  # "accp"
    DRAFT = 0x64726166  # "draf"


def uniform(stream: Stream, seed: int, choice: int, position: int, event: int) -> float:
    """One number in [0, 1). Raises OverflowError for a choice, position or event outside [0, 2^32)."""
    counter = np.array([event, position, choice, stream], dtype=np.uint32)
    high, low, _, _ = philox4x32(counter, (seed % _WORD, (seed >> 32) % _WORD)).tolist()
    return float(((high >> 5) * (1 << 26) + (low >> 6)) * 2.0**-53)


def draw_index(weights_V: FloatArray, u: float) -> int:
    """The index that `u` in [0, 1) falls on when indices take shares in proportion to their weights.

    An index of weight 0 is never drawn. Raises ValueError where no weight is above 0.
    """
    sums_V = np.cumsum(weights_V)
    if not sums_V[-1] > 0:
        raise ValueError("nothing to draw: no weight is above 0")
    index = int(np.searchsorted(sums_V, u * sums_V[-1], side="right"))
    # The product may round up to the whole sum; the last index that has a share is meant then.
    return min(index, int(np.flatnonzero(weights_V)[-1]))
