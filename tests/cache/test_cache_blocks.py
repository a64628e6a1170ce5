"""Blocks: who uses them, which are found again, and that none is lost."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.cache import BlockTable, OutOfBlocksError, PagedCache
from foredraft.cache.blocks import ROOT, BlockPool
from foredraft.kernels.batch import BLOCK_POSITIONS


def make_cache(num_positions: int = 1024) -> PagedCache:
    return PagedCache(1, 1, 16, np.float32, num_positions=num_positions)


@pytest.mark.parametrize(("num_positions", "num_blocks"), [(1, 1), (16, 1), (17, 2), (320, 20)])
def test_a_cache_has_blocks_for_all_its_positions(num_positions: int, num_blocks: int) -> None:
    cache = PagedCache(2, 3, 16, np.float32, num_positions=num_positions)
    assert (cache.pool.num_blocks, cache.storage.num_blocks) == (num_blocks, num_blocks)
    assert cache.num_positions == 16 * num_blocks >= num_positions
    assert cache.storage.num_bytes == 2 * 2 * num_blocks * 3 * 16 * 16 * 4


def test_a_full_cache_says_so_and_changes_nothing() -> None:
    """Kind: more is given out than there is memory for."""
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    assert sorted(blocks) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(OutOfBlocksError, match="all 3 blocks"):
            pool.allocate()
        assert (pool.num_used, pool.num_kept, pool.num_available) == (3, 0, 0)
        pool.check_integrity()
    pool.release(blocks[1])
    assert pool.allocate() == blocks[1]


def test_a_table_keeps_what_it_got_before_the_cache_was_full() -> None:
    """Kind: blocks of a sequence that could not get all it asked for belong to nobody."""
    cache = make_cache(64)
    table = cache.open()
    table.reserve(20)
    table.advance(20)
    with pytest.raises(OutOfBlocksError):
        table.reserve(60)
    assert (len(table), len(table.blocks), table.num_available) == (20, 4, 0)
    assert table.num_missing(60) == 1
    table.reserve(44)  # there is room for so many
    table.close()
    assert cache.pool.num_available == 4
    cache.pool.check_integrity()


def test_published_blocks_are_found_shared_and_dropped_in_turn() -> None:
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    identities = []
    for number, block in enumerate(blocks):
        identities.append(pool.publish(block, ROOT, (number,)))
    assert len(set(identities)) == 3
    assert pool.find(ROOT, (0,)) == blocks[0]  # a second user
    pool.release(blocks[0])
    assert pool.num_used == 3
    for block in blocks:
        pool.release(block)
    assert (pool.num_used, pool.num_kept, pool.num_available) == (0, 3, 3)
    assert pool.allocate() == blocks[0]  # the longest unused went
    assert pool.find(ROOT, (0,)) is None
    assert pool.find(identities[0], (1,)) is None  # the same tokens after something else
    assert pool.find(ROOT, (1,)) == blocks[1]
    assert (pool.num_used, pool.num_kept, pool.num_available) == (2, 1, 1)
    pool.check_integrity()


def test_what_was_found_lately_is_dropped_last() -> None:
    """Kind: the prefix that everybody uses goes first, because it was computed first."""
    pool = BlockPool(3)
    blocks = [pool.allocate() for _ in range(3)]
    for number, block in enumerate(blocks):
        pool.publish(block, ROOT, (number,))
        pool.release(block)
    assert pool.find(ROOT, (0,)) == blocks[0]
    pool.release(blocks[0])
    assert [pool.allocate() for _ in range(3)] == [blocks[1], blocks[2], blocks[0]]


def test_what_is_kept_can_be_dropped_and_what_is_used_stays() -> None:
    pool = BlockPool(8)
    blocks = [pool.allocate() for _ in range(3)]
    for token, block in enumerate(blocks):
        pool.publish(block, ROOT, (token,))
    pool.release(blocks[0])
    pool.release(blocks[1])
    assert (pool.num_used, pool.num_kept) == (1, 2)
    pool.reset()
    assert (pool.num_used, pool.num_kept) == (1, 0)
    assert pool.find(ROOT, (0,)) is None
    assert pool.find(ROOT, (2,)) == blocks[2]
    pool.check_integrity()


def test_the_first_of_two_equal_blocks_stays() -> None:
    pool = BlockPool(4)
    one, two = pool.allocate(), pool.allocate()
    assert pool.publish(one, ROOT, (1,)) == pool.publish(two, ROOT, (1,)) == pool.publish(one, ROOT, (1,))
    assert pool.identity(two) is None
    pool.release(two)
    pool.release(one)
    assert pool.num_kept == 1
    assert pool.find(ROOT, (1,)) == one
    pool.check_integrity()


def test_a_lost_block_is_noticed() -> None:
    """Kind: the check of the other tests here can find nothing."""
    pool = BlockPool(2)
    pool.allocate()
    pool._users.clear()
    with pytest.raises(AssertionError, match="lost"):
        pool.check_integrity()


def compute(table: BlockTable, num_tokens: int) -> None:
    table.reserve(num_tokens)
    table.advance(num_tokens)


def fill(cache: PagedCache, tokens: list[int]) -> int:
    """Open, "compute", publish and close; returns how much was there already."""
    table = cache.open()
    known = table.reuse([*tokens, 0])
    compute(table, len(tokens) - known)
    table.publish(tokens)
    table.close()
    return known


def test_whole_blocks_of_a_beginning_are_taken_over() -> None:
    cache = make_cache()
    tokens = list(range(50))
    assert fill(cache, tokens) == 0
    for length, hit in [(1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (48, 32), (49, 48), (50, 48)]:
        table = cache.open()
        assert table.reuse(tokens[:length]) == hit  # the last token's logits are wanted: it is never taken over
        assert len(table) == hit
        table.close()
    assert fill(cache, [*tokens[:20], 99, *tokens[21:]]) == 16
    assert fill(cache, [99, *tokens[1:]]) == 0
    assert cache.pool.num_used == 0
    cache.pool.check_integrity()


def test_what_another_has_computed_meanwhile_is_taken_over_on_the_way() -> None:
    """Kind: a prompt that is computed chunk by chunk does not see what its neighbour has computed of the same."""
    cache = make_cache()
    tokens = list(range(70))
    ahead, behind = cache.open(), cache.open()
    compute(behind, 16)
    assert behind.reuse(tokens) == 0
    compute(ahead, 40)
    ahead.publish(tokens)
    assert behind.reuse(tokens) == 16
    assert behind.blocks[1] == ahead.blocks[1]
    compute(behind, 5)
    compute(ahead, 20)
    ahead.publish(tokens)
    assert behind.reuse(tokens) == 0  # in the middle of a block, that would be no beginning
    compute(behind, 11)
    behind.reserve(3)
    assert behind.reuse(tokens) == 0  # where room was reserved already, it would lie behind that
    ahead.close()
    behind.close()
    assert cache.pool.num_used == 0
    cache.pool.check_integrity()


def test_a_text_that_went_another_way_finds_nothing_behind() -> None:
    """Kind: the same sixteen tokens after other ones are taken for the same keys and values."""
    cache = make_cache()
    fill(cache, [*range(16), *range(40, 56)])
    table = cache.open()
    compute(table, 16)  # of another beginning
    assert table.reuse([*range(1, 17), *range(40, 56), 0]) == 0
    table.close()


def test_closing_twice_and_truncating() -> None:
    cache = make_cache()
    fill(cache, list(range(32)))
    table = cache.open()
    table.reuse(list(range(40)))
    table.reserve(20)
    table.advance(13)
    assert table.slot(33) == table.blocks[2] * BLOCK_POSITIONS + 1
    table.truncate(34)
    assert (len(table), len(table.blocks)) == (34, 3)
    table.truncate(20)  # within a block that others may use: it must not be written to
    assert (len(table), len(table.blocks)) == (16, 1)
    table.truncate(0)
    assert (len(table), len(table.blocks)) == (0, 0)
    table.close()
    table.close()
    assert cache.pool.num_used == 0
    cache.pool.check_integrity()


def test_only_counted_positions_are_published() -> None:
    """Kind: room that was reserved for a draft, or for a prompt not computed yet, is served to another sequence."""
    cache = make_cache()
    table = cache.open()
    table.reserve(63)
    table.advance(17)
    table.publish(list(range(64)))
    table.close()
    assert cache.open().reuse(list(range(64))) == 16


def test_what_is_not_published_is_free_at_once() -> None:
    """Kind: measurements leave blocks that later sequences find."""
    cache = make_cache()
    table = cache.open()
    compute(table, 40)
    table.close()
    assert (cache.pool.num_used, cache.pool.num_kept) == (0, 0)
    assert cache.open().reuse(list(range(41))) == 0


@dataclass
class Text:
    """A sequence of a random history: its tokens, and the table of those that are computed."""

    table: BlockTable
    tokens: list[int] = field(default_factory=list)


class History:
    """Opens, computes, cuts, publishes and closes at random. Keys hold what their slots were computed from."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.cache = make_cache(16 * int(self.random.integers(1, 25)))
        self.alive: list[Text] = []
        self.num_taken_over = 0

    def step(self) -> None:
        actions = [self.begin, self.compute, self.compute, self.truncate, self.publish, self.take_over, self.end]
        actions[int(self.random.integers(len(actions)))]()
        for text in self.alive:
            held = [self.cache.storage.keys[0, block, 0, 0] for block in text.table.blocks]
            flat = np.concatenate(held)[: len(text.table)].tolist() if held else []
            assert flat == text.tokens[: len(text.table)]
        self.cache.pool.check_integrity()

    def begin(self) -> None:
        tokens = [*range(self.random.integers(1, 60)), *self.random.integers(3, size=self.random.integers(20)).tolist()]
        self.alive.append(Text(self.cache.open(), tokens))
        self.num_taken_over += self.alive[-1].table.reuse(tokens)

    def compute(self) -> None:
        for text in self.chosen():
            length, number = len(text.table), int(self.random.integers(1, 40))
            goes_on = self.random.random() < 0.7
            text.tokens += [
                place if goes_on else int(self.random.integers(3)) for place in range(len(text.tokens), length + number)
            ]
            try:
                text.table.reserve(number + int(self.random.integers(10)))
            except OutOfBlocksError:
                continue
            for place in range(length, length + number):
                block, inside = divmod(text.table.slot(place), BLOCK_POSITIONS)
                self.cache.storage.keys[0, block, 0, 0, inside] = text.tokens[place]
            text.table.advance(number)

    def truncate(self) -> None:
        for text in self.chosen():
            text.table.truncate(int(self.random.integers(len(text.table) + 1)))
            # What follows may be other tokens.
            del text.tokens[len(text.table) :]

    def publish(self) -> None:
        for text in self.chosen():
            text.table.publish(text.tokens)

    def take_over(self) -> None:
        for text in self.chosen():
            self.num_taken_over += text.table.reuse(text.tokens)

    def end(self) -> None:
        for text in self.chosen():
            if self.random.random() < 0.7:
                text.table.publish(text.tokens)
            text.table.close()
            self.alive = [other for other in self.alive if other is not text]

    def chosen(self) -> list[Text]:
        return [self.alive[int(self.random.integers(len(self.alive)))]] if self.alive else []


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_history_keeps_contents_and_blocks(seed: int) -> None:
    """Every slot in use holds the token that its sequence counts there, whatever is opened, cut and closed."""
    history = History(seed)
    for _ in range(100):
        history.step()
    for text in history.alive:
        text.table.close()
    assert history.cache.pool.num_used == 0
    assert history.cache.pool.num_available == history.cache.pool.num_blocks
    history.cache.pool.check_integrity()


def test_histories_take_over() -> None:
    """Kind: the test above never comes to what it is about."""
    history = History(1)
    for _ in range(400):
        history.step()
    assert history.num_taken_over > 100
