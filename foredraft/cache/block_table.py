"""One sequence's part of a cache: which block holds each of its positions."""

from collections.abc import Sequence

from foredraft.cache.blocks import ROOT, BlockPool
from foredraft.kernels.batch import BLOCK_POSITIONS


class BlockTable:
    """The blocks of a sequence, how many of its positions are computed, and room for the draft tree behind them.

    Node i of a draft tree is stored in the slot of position len(self) + i, whatever its depth; a commit moves the
    accepted nodes to where their positions belong, and a rollback is nothing but not counting a position. The tokens
    themselves belong to the sequence and are told where they are needed.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.blocks: list[int] = []
        """Block of every 16 positions."""
        self._num_tokens = 0
        self._identities: list[int] = []

    def __len__(self) -> int:
        """Positions computed."""
        return self._num_tokens

    def slot(self, position: int) -> int:
        """Where the key and value of a position lie, or will lie."""
        block, place = divmod(position, BLOCK_POSITIONS)
        return self.blocks[block] * BLOCK_POSITIONS + place

    def num_missing(self, num_positions: int) -> int:
        """Blocks still to be allocated before `num_positions` fit behind what is computed."""
        return max(0, -(-(self._num_tokens + num_positions) // BLOCK_POSITIONS) - len(self.blocks))

    @property
    def num_available(self) -> int:
        """Blocks of the cache that any sequence can still get."""
        return self._pool.num_available

    def reserve(self, num_positions: int) -> None:
        """Make room for `num_positions` behind what is computed.

        Raises OutOfBlocksError where the cache is full; what was allocated until then stays with the sequence.
        """
        for _ in range(self.num_missing(num_positions)):
            self.blocks.append(self._pool.allocate())

    def advance(self, num_tokens: int) -> None:
        """Count positions, already stored behind the computed ones, as computed."""
        self._num_tokens += num_tokens

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on; some more where they lie in a block that others may use."""
        block, place = divmod(length, BLOCK_POSITIONS)
        if place and self._pool.identity(self.blocks[block]) is not None:
            length = block * BLOCK_POSITIONS
        self._num_tokens = length
        del self._identities[length // BLOCK_POSITIONS :]
        kept = -(-length // BLOCK_POSITIONS)
        for released in self.blocks[kept:]:
            self._pool.release(released)
        del self.blocks[kept:]

    def reuse(self, tokens: Sequence[int]) -> int:
        """Take over what is cached of `tokens` behind what this sequence has computed; returns how many that is.

        Whole blocks only, and never the last of the tokens, since its logits are still wanted. Nothing is taken over
        behind a block that is not full, or where room was reserved already.
        """
        started = self._num_tokens
        if started % BLOCK_POSITIONS or len(self.blocks) * BLOCK_POSITIONS != started:
            return 0
        self.publish(tokens)
        while self._num_tokens + BLOCK_POSITIONS < len(tokens):
            held = tuple(tokens[self._num_tokens : self._num_tokens + BLOCK_POSITIONS])
            block = self._pool.find(self._parent, held)
            if block is None:
                break
            self.blocks.append(block)
            identity = self._pool.identity(block)
            assert identity is not None  # a block that was found has been published
            self._identities.append(identity)
            self._num_tokens += BLOCK_POSITIONS
        return self._num_tokens - started

    @property
    def _parent(self) -> int:
        return self._identities[-1] if self._identities else ROOT

    def publish(self, tokens: Sequence[int]) -> None:
        """Let sequences that begin with the same tokens find the full blocks, while this one goes on.

        tokens: of the sequence, at least as many as are computed. A position is counted after it was computed, so
        nothing is published that was not.
        """
        for index in range(len(self._identities), self._num_tokens // BLOCK_POSITIONS):
            held = tuple(tokens[index * BLOCK_POSITIONS : (index + 1) * BLOCK_POSITIONS])
            self._identities.append(self._pool.publish(self.blocks[index], self._parent, held))

    def close(self) -> None:
        """Give the blocks back; what was published stays findable. May be done at any time, and twice."""
        self._num_tokens = 0
        self._identities.clear()
        # The last blocks first: what is dropped earliest should be the end of a text, not its beginning.
        while self.blocks:
            self._pool.release(self.blocks.pop())
