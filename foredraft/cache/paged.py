"""The cache of one decoder: memory, blocks, and the sequences that hold them."""

import numpy as np

from foredraft.cache.block_table import BlockTable
from foredraft.cache.blocks import BlockPool
from foredraft.cache.storage import CacheStorage
from foredraft.kernels.batch import BLOCK_POSITIONS


class PagedCache:
    """Keys and values of all sequences of one decoder, of at most `num_positions` positions."""

    def __init__(
        self, num_layers: int, num_kv_heads: int, head_width: int, dtype: type[np.generic], *, num_positions: int
    ) -> None:
        num_blocks = max(1, -(-num_positions // BLOCK_POSITIONS))
        self.storage = CacheStorage(num_layers, num_kv_heads, head_width, dtype, num_blocks)
        self.pool = BlockPool(num_blocks)

    @property
    def num_positions(self) -> int:
        """Positions there is room for, all sequences together."""
        return self.pool.num_blocks * BLOCK_POSITIONS

    def open(self) -> BlockTable:
        """The table of a sequence of which nothing is computed."""
        return BlockTable(self.pool)
