"""One forward pass as arrays: which tokens, at which positions, seeing which cached keys."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]

BLOCK_POSITIONS = 16
"""Positions of a cache block. The kernels score sixteen keys at once, so this is not an option."""


def padded_head_width(head_width: int) -> int:
    """Width of a head in the cache: whole vectors of sixteen, zeros behind the head's own values."""
    return -(-head_width // 16) * 16


@dataclass(frozen=True, eq=False)
class Batch:
    """N rows of one or several requests; the rows of a request are consecutive. All arrays are int32.

    A row sees the cached positions below its prefix length through its request's block table, and the
    positions from there up to its own in the slots of its tail: the nodes of its branch of the draft tree,
    itself included. A slot is block * 16 + place within the block.

    tokens_N, positions_N: as named. requests_N: index of each row's request.
    slots_N: where the keys and values of each row are stored.
    prefix_lengths_N: as above; prefix length + length of the tail = position + 1.
    tail_offsets: [N + 1], bounds of each row's tail in tail_slots.
    table_offsets: [requests + 1], bounds of each request's block table in block_tables.
    selected_rows: the rows whose logits are wanted, in any order.
    """

    tokens_N: Ints
    positions_N: Ints
    requests_N: Ints
    slots_N: Ints
    prefix_lengths_N: Ints
    tail_offsets: Ints
    tail_slots: Ints
    table_offsets: Ints
    block_tables: Ints
    selected_rows: Ints

    @property
    def num_rows(self) -> int:
        """N."""
        return len(self.tokens_N)
