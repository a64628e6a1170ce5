"""Blocks: who uses them, which are found again, and that none is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.cache import PagedCache
from foredraft.cache.blocks import ROOT, BlockPool
from foredraft.cache.storage import CacheStorage
from foredraft.kernels.batch import BLOCK_POSITIONS


def make_cache() -> PagedCache:
    return PagedCache(1, 1, 16, np.float32)


def test_allocating_grows_and_keeps_contents() -> None:
    storage = CacheStorage(2, 3, 16, np.float32, num_blocks=2)
    pool = BlockPool(2, storage.grow, 4)
    storage.keys[:], storage.values[:] = 5, 6
    blocks = [pool.allocate() for _ in range(5)]
    assert sorted(blocks) == [0, 1, 2, 3, 4]
    assert storage.num_blocks == 8
    assert storage.num_bytes == 2 * 2 * 8 * 3 * 16 * 16 * 4
    assert (storage.keys[:, :2] == 5).all()
    assert (storage.values[:, :2] == 6).all()
    assert not storage.keys[:, 2:].any()
    for block in blocks:
        pool.release(block)
    assert (pool.num_used, pool.num_kept) == (0, 0)


def test_no_memory_changes_nothing() -> None:
    def grow(num_blocks: int) -> None:
        raise MemoryError(num_blocks)

    pool = BlockPool(1, grow, 4)
    block = pool.allocate()
    with pytest.raises(MemoryError):
        pool.allocate()
    pool.release(block)
    assert pool.allocate() == block


def test_published_blocks_are_found_shared_and_kept_in_turn() -> None:
    pool = BlockPool(8, lambda n: None, num_kept=2)
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
    assert (pool.num_used, pool.num_kept) == (0, 2)
    assert pool.find(ROOT, (0,)) is None  # the longest unused went
    assert pool.find(identities[0], (1,)) is None  # the same tokens after something else
    assert pool.find(ROOT, (1,)) == blocks[1]
    assert (pool.num_used, pool.num_kept) == (1, 1)


def test_what_is_kept_can_be_dropped_and_what_is_used_stays() -> None:
    pool = BlockPool(8, lambda n: None, num_kept=8)
    blocks = [pool.allocate() for _ in range(3)]
    for token, block in enumerate(blocks):
        pool.publish(block, ROOT, (token,))
    pool.release(blocks[0])
    pool.release(blocks[1])
    assert (pool.num_used, pool.num_kept) == (1, 2)
    pool.forget_kept()
    assert (pool.num_used, pool.num_kept) == (1, 0)
    assert pool.find(ROOT, (0,)) is None
    assert pool.find(ROOT, (2,)) == blocks[2]


def test_the_first_of_two_equal_blocks_stays() -> None:
    pool = BlockPool(4, lambda n: None, num_kept=4)
    one, two = pool.allocate(), pool.allocate()
    assert pool.publish(one, ROOT, (1,)) == pool.publish(two, ROOT, (1,)) == pool.publish(one, ROOT, (1,))
    assert pool.identity(two) is None
    pool.release(two)
    pool.release(one)
    assert pool.num_kept == 1
    assert pool.find(ROOT, (1,)) == one


def fill(cache: PagedCache, tokens: list[int]) -> int:
    """Open, "compute" and close; returns how much was there already."""
    sequence = cache.open([*tokens, 0])
    known = len(sequence)
    sequence.reserve(len(tokens) - known)
    sequence.commit(tokens[known:])
    sequence.close()
    return known


def test_whole_blocks_of_a_beginning_are_taken_over() -> None:
    cache = make_cache()
    tokens = list(range(50))
    assert fill(cache, tokens) == 0
    for length, hit in [(1, 0), (16, 0), (17, 16), (32, 16), (33, 32), (48, 32), (49, 48), (50, 48)]:
        sequence = cache.open(tokens[:length])  # the last token's logits are wanted: it is never taken over
        assert len(sequence) == hit
        assert sequence.tokens == tokens[:hit]
        sequence.close()
    assert fill(cache, [*tokens[:20], 99, *tokens[21:]]) == 16
    assert fill(cache, [99, *tokens[1:]]) == 0
    assert cache.pool.num_used == 0


def test_closing_twice_and_truncating() -> None:
    cache = make_cache()
    fill(cache, list(range(32)))
    sequence = cache.open(list(range(40)))
    sequence.reserve(20)
    sequence.commit(range(32, 45))
    assert sequence.slot(33) == sequence.blocks[2] * BLOCK_POSITIONS + 1
    sequence.truncate(34)
    assert (len(sequence), len(sequence.blocks)) == (34, 3)
    sequence.truncate(20)  # within a block that others may use: it must not be written to
    assert (len(sequence), len(sequence.blocks)) == (16, 1)
    sequence.truncate(0)
    assert (len(sequence), len(sequence.blocks)) == (0, 0)
    sequence.close()
    sequence.close()
    assert cache.pool.num_used == 0


def test_only_counted_positions_are_published() -> None:
    """Kind: room that was reserved for a draft, or for a prompt not read yet, is served to another request."""
    cache = make_cache()
    sequence = cache.open(list(range(64)))
    sequence.reserve(63)
    sequence.commit(range(17))
    sequence.close()
    assert len(cache.open(list(range(64)))) == 16


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_history_keeps_contents_and_blocks(seed: int) -> None:
    """Every slot in use holds the token that its sequence counts there, whatever is opened, cut and closed."""
    random = np.random.default_rng(seed)
    cache = make_cache()
    cache.pool._num_kept = int(random.integers(6))
    alive = []
    for _ in range(60):
        action = random.random()
        if action < 0.3 or not alive:
            prompt = [*range(random.integers(1, 60)), *random.integers(3, size=random.integers(20)).tolist()]
            alive.append(cache.open(prompt))
        else:
            sequence = alive[int(random.integers(len(alive)))]
            if action < 0.6:
                length = len(sequence)
                goes_on = random.random() < 0.7
                new = [length + i if goes_on else int(random.integers(3)) for i in range(random.integers(1, 40))]
                sequence.reserve(len(new) + int(random.integers(10)))
                for place, token in enumerate(new, start=length):
                    block, inside = divmod(sequence.slot(place), BLOCK_POSITIONS)
                    cache.storage.keys[0, block, 0, 0, inside] = token
                sequence.commit(new)
            elif action < 0.8:
                sequence.truncate(int(random.integers(len(sequence) + 1)))
            else:
                sequence.close()
                alive = [other for other in alive if other is not sequence]
        for sequence in alive:
            held = [cache.storage.keys[0, block, 0, 0] for block in sequence.blocks]
            flat = np.concatenate(held)[: len(sequence)].tolist() if held else []
            assert flat == sequence.tokens
    for sequence in alive:
        sequence.close()
    pool = cache.pool
    assert pool.num_used == 0
    assert sorted([*pool._free, *pool._kept]) == list(range(pool._num_blocks))
