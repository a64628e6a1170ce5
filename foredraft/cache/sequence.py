"""One request's part of a cache."""

from collections.abc import Sequence

from foredraft.cache.blocks import ROOT, BlockPool
from foredraft.kernels.batch import BLOCK_POSITIONS


class CacheSequence:
    """The positions of one request, and room for the draft tree behind them.

    Node i of a draft tree is stored in the slot of position len(tokens) + i, whatever its depth; a commit moves
    the accepted nodes to where their positions belong, and a rollback is nothing but not counting a position.
    """

    def __init__(self, pool: BlockPool, tokens: list[int], blocks: list[int]) -> None:
        self._pool = pool
        self.tokens = tokens
        """Token ids whose keys and values are in the cache."""
        self.blocks = blocks
        """Block of every 16 positions."""

    def __len__(self) -> int:
        """Positions cached."""
        return len(self.tokens)

    def slot(self, position: int) -> int:
        """Where the key and value of a position lie, or will lie."""
        block, place = divmod(position, BLOCK_POSITIONS)
        return self.blocks[block] * BLOCK_POSITIONS + place

    def reserve(self, num_positions: int) -> None:
        """Make room for `num_positions` behind what is cached."""
        needed = -(-(len(self.tokens) + num_positions) // BLOCK_POSITIONS)
        while len(self.blocks) < needed:
            self.blocks.append(self._pool.allocate())

    def commit(self, tokens: Sequence[int]) -> None:
        """Count `tokens`, already stored behind the cached positions, as cached."""
        self.tokens.extend(tokens)

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on; some more where they lie in a block that others may use."""
        block, place = divmod(length, BLOCK_POSITIONS)
        if place and self._pool.identity(self.blocks[block]) is not None:
            length = block * BLOCK_POSITIONS
        del self.tokens[length:]
        kept = -(-length // BLOCK_POSITIONS)
        for released in self.blocks[kept:]:
            self._pool.release(released)
        del self.blocks[kept:]

    def publish(self) -> None:
        """Let requests that begin with the same tokens find the full blocks, while this one goes on.

        Only counted positions are published, and a position is counted after it was computed.
        """
        self._publish(self.tokens)

    def close(self) -> None:
        """Give the blocks back; full ones stay findable, as after `publish`.

        A sequence may be closed at any time, after a failed pass as well, and twice.
        """
        tokens, self.tokens = self.tokens, []
        self._publish(tokens)
        # The last blocks first: what is dropped earliest should be the end of a text, not its beginning.
        while self.blocks:
            self._pool.release(self.blocks.pop())

    def _publish(self, tokens: Sequence[int]) -> None:
        parent = ROOT
        for index in range(len(tokens) // BLOCK_POSITIONS):
            held = tuple(tokens[index * BLOCK_POSITIONS : (index + 1) * BLOCK_POSITIONS])
            parent = self._pool.publish(self.blocks[index], parent, held)
