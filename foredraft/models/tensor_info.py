"""One tensor of a model file, as every source presents it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class TensorInfo:
    """A named tensor whose bytes stay in the file until they are used.

    Attributes:
        name: GGUF-style name, such as `blk.0.attn_q.weight`, whatever the file calls it.
        shape: NumPy order; a matrix is (out, in).
        format: a key of `foredraft.kernels.formats.BLOCK`.
        data: the raw bytes, uint8, one-dimensional, a read-only view of the memory-mapped file.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    data: NDArray[np.uint8]
