"""The memory that keys and values lie in."""

import numpy as np
from numpy.typing import NDArray

from foredraft.kernels.batch import BLOCK_POSITIONS


class CacheStorage:
    """Two arrays of a fixed number of blocks.

    keys: [layers, blocks, kv heads, head width, 16]; sixteen keys side by side, as they are scored.
    values: [layers, blocks, kv heads, 16, head width].

    The system gives memory to what is written to, so blocks that were never used take none.
    Raises MemoryError where there is no address space for them.
    """

    def __init__(
        self, num_layers: int, num_kv_heads: int, head_width: int, dtype: type[np.generic], num_blocks: int
    ) -> None:
        self.keys = _zeros((num_layers, num_blocks, num_kv_heads, head_width, BLOCK_POSITIONS), dtype)
        self.values = _zeros((num_layers, num_blocks, num_kv_heads, BLOCK_POSITIONS, head_width), dtype)

    @property
    def num_blocks(self) -> int:
        """Blocks there is memory for."""
        return int(self.keys.shape[1])

    @property
    def num_bytes(self) -> int:
        """Bytes of both arrays, whether they were written to or not."""
        return self.keys.nbytes + self.values.nbytes


def _zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[np.generic]:
    try:
        return np.zeros(shape, dtype)
    except ValueError as error:  # more than can be numbered
        raise MemoryError(str(error)) from None
