"""The cache of one decoder: memory, blocks, and the requests that hold them."""

from collections.abc import Sequence

import numpy as np

from foredraft.cache.blocks import ROOT, BlockPool
from foredraft.cache.sequence import CacheSequence
from foredraft.cache.storage import CacheStorage
from foredraft.kernels.batch import BLOCK_POSITIONS

MAX_KEPT_POSITIONS = 16384
"""Positions of finished requests that are kept at most for later ones that begin alike."""


class PagedCache:
    """Keys and values of all requests of one decoder."""

    def __init__(self, num_layers: int, num_kv_heads: int, head_width: int, dtype: type[np.generic]) -> None:
        self.storage = CacheStorage(num_layers, num_kv_heads, head_width, dtype)
        self.pool = BlockPool(self.storage.num_blocks, self.storage.grow, MAX_KEPT_POSITIONS // BLOCK_POSITIONS)

    def open(self, tokens: Sequence[int]) -> CacheSequence:
        """A sequence for a request that begins with `tokens`; what is cached of them is taken over.

        The last of the tokens is never taken over, since its logits are still wanted.
        """
        sequence = CacheSequence(self.pool, [], [])
        try:
            self._take_over(sequence, tokens)
        except BaseException:
            sequence.close()
            raise
        return sequence

    def _take_over(self, sequence: CacheSequence, tokens: Sequence[int]) -> None:
        parent = ROOT
        while len(sequence) + BLOCK_POSITIONS < len(tokens):
            held = tuple(tokens[len(sequence) : len(sequence) + BLOCK_POSITIONS])
            block = self.pool.find(parent, held)
            if block is None:
                return
            sequence.blocks.append(block)
            sequence.commit(held)
            identity = self.pool.identity(block)
            assert identity is not None  # a block that was found has been published
            parent = identity
