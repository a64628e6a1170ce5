"""Which blocks are in use, free, or kept because a later request may begin with the same tokens."""

from collections import OrderedDict
from collections.abc import Callable

Key = tuple[int, tuple[int, ...]]
"""What a full block holds: the identity of the block before it, and its own tokens."""

ROOT = 0
"""Identity of the empty beginning that every request shares."""


class BlockPool:
    """Counts the users of each block, and finds full blocks by their tokens.

    grow: called with the new number of blocks when all are taken.
    num_kept: most blocks without users that are kept for reuse; the longest unused go first.
    """

    def __init__(self, num_blocks: int, grow: Callable[[int], None], num_kept: int) -> None:
        self._num_blocks = num_blocks
        self._grow = grow
        self._num_kept = num_kept
        self._free = list(range(num_blocks - 1, -1, -1))
        self._users: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._identities: dict[int, int] = {}
        self._last_identity = ROOT

    @property
    def num_used(self) -> int:
        """Blocks that some request holds."""
        return len(self._users)

    @property
    def num_kept(self) -> int:
        """Blocks without users whose contents may be used again."""
        return len(self._kept)

    def allocate(self) -> int:
        """A block for one user, contents arbitrary (but finite)."""
        if not self._free:
            larger = 2 * self._num_blocks
            self._grow(larger)
            self._free = list(range(larger - 1, self._num_blocks - 1, -1))
            self._num_blocks = larger
        block = self._free.pop()
        self._users[block] = 1
        return block

    def find(self, parent: int, tokens: tuple[int, ...]) -> int | None:
        """The block with these tokens after the block with identity `parent`; it gains a user."""
        block = self._by_key.get((parent, tokens))
        if block is not None:
            self._kept.pop(block, None)
            self._users[block] = self._users.get(block, 0) + 1
        return block

    def identity(self, block: int) -> int | None:
        """What the keys of following blocks call this one; None for a block that was never published."""
        return self._identities.get(block)

    def publish(self, block: int, parent: int, tokens: tuple[int, ...]) -> int:
        """Let others find a full block, whose contents must not change any more. Returns its identity.

        Where another block with the same tokens is known already, that one stays the one to be found.
        """
        known = self._by_key.get((parent, tokens))
        if known is not None:
            return self._identities[known]
        self._last_identity += 1
        self._by_key[parent, tokens] = block
        self._keys[block] = (parent, tokens)
        self._identities[block] = self._last_identity
        return self._last_identity

    def release(self, block: int) -> None:
        """One user less. A published block without users is kept for a while, any other is free at once."""
        self._users[block] -= 1
        if self._users[block]:
            return
        del self._users[block]
        if block not in self._keys:
            self._free.append(block)
            return
        self._kept[block] = None
        while len(self._kept) > self._num_kept:
            self._forget(next(iter(self._kept)))

    def forget_kept(self) -> None:
        """Drop what is kept for later requests."""
        while self._kept:
            self._forget(next(iter(self._kept)))

    def _forget(self, block: int) -> None:
        del self._kept[block]
        del self._by_key[self._keys.pop(block)]
        del self._identities[block]
        self._free.append(block)
