"""Which blocks are in use, free, or kept because a later sequence may begin with the same tokens."""

from collections import OrderedDict

from foredraft.errors import ForedraftError

Key = tuple[int, tuple[int, ...]]
"""What a full block holds: the identity of the block before it, and its own tokens."""

ROOT = 0
"""Identity of the empty beginning that every sequence shares."""


class OutOfBlocksError(ForedraftError):
    """Every block of the cache is in use: somebody has to wait, or to give blocks back."""


class BlockPool:
    """Counts the users of each of a fixed number of blocks, and finds full blocks by their tokens.

    A published block without users is kept for reuse until its memory is wanted: the least recently used goes first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._users: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self._identities: dict[int, int] = {}
        self._last_identity = ROOT

    @property
    def num_used(self) -> int:
        """Blocks that some sequence holds."""
        return len(self._users)

    @property
    def num_kept(self) -> int:
        """Blocks without users whose contents may be used again."""
        return len(self._kept)

    @property
    def num_available(self) -> int:
        """Blocks that can be allocated now, those that are kept for reuse included."""
        return len(self._free) + len(self._kept)

    def allocate(self) -> int:
        """A block for one user, contents arbitrary (but finite). Raises OutOfBlocksError when all are in use."""
        if not self._free:
            if not self._kept:
                raise OutOfBlocksError(f"all {self.num_blocks} blocks of the cache are in use")
            self._forget(next(iter(self._kept)))
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
        """One user less. A published block without users is kept for reuse, any other is free at once."""
        self._users[block] -= 1
        if self._users[block]:
            return
        del self._users[block]
        if block in self._keys:
            self._kept[block] = None
        else:
            self._free.append(block)

    def reset(self) -> None:
        """Forget what is kept for later sequences (the prefix cache)."""
        while self._kept:
            self._forget(next(iter(self._kept)))

    def check_integrity(self) -> None:
        """Raise AssertionError where a block was lost or is in two places."""
        places = [*self._free, *self._kept, *self._users]
        assert len(places) == len(set(places)) == self.num_blocks, "a block is lost, or in two places"
        assert self._keys.keys() == self._identities.keys() == set(self._by_key.values()), "keys and blocks disagree"
        assert not set(self._free) & self._keys.keys(), "a free block can be found"

    def _forget(self, block: int) -> None:
        del self._kept[block]
        del self._by_key[self._keys.pop(block)]
        del self._identities[block]
        self._free.append(block)
