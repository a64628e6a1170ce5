"""Who may use a loaded model, in which forms and at the same time as whom: threads, asyncio, steps by hand, its end."""

import asyncio
import copy
import gc
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import OptionError
from foredraft.llm import Chunk

TEXTS = ["and the other one and the other one and the", "the", "a b c d a b c", "x" * 40]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=24, temperature=0.8, seed=3, ignore_eos=True)
LONG = SamplingParams(max_tokens=None, ignore_eos=True)
CHAT = [{"role": "user", "content": "Say something."}]


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def load(**options: Any) -> LLM:
    return LLM(tiny_file(context_length=8192), **{"draft": "none", "threads": 1, **options})


def tokens_of(chunks: list[Chunk]) -> tuple[int, ...]:
    return tuple(token for chunk in chunks for token in chunk.token_ids)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 10.0
    while not condition() and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert condition()


# --- threads --------------------------------------------------------------------------------------------------------


def test_ways_of_drafting_for_one_model_run_at_the_same_time() -> None:
    """Kind: one reads the logits that another's pass has overwritten: IndexError, or another text."""
    llm = load(max_batched_tokens=32)
    params = [GREEDY, SAMPLED, GREEDY, SAMPLED]
    expected = [llm.generate(text, own)[0].token_ids for text, own in zip(TEXTS, params, strict=True)]
    in_chat = llm.chat(CHAT, SAMPLED).token_ids
    others = [
        llm.with_drafts("suffix", num_draft_tokens=4),
        llm.with_drafts(tiny_file(seed=1), num_draft_tokens=3),
        llm.with_drafts("auto"),
    ]
    wrong: list[object] = []

    def ask(number: int) -> None:
        own = (llm, *others)[number % 4]
        try:
            for turn in range(4):
                place = (number + turn) % 4
                if number < 4:
                    found = [own.generate(TEXTS[place], params[place])[0].token_ids]
                    found += [done.token_ids for done in own.generate(TEXTS, params)]
                    right = [expected[place], *expected]
                else:
                    found = [
                        tokens_of(list(own.stream(TEXTS[place], params[place]))),
                        own.chat(CHAT, SAMPLED).token_ids,
                    ]
                    right = [expected[place], in_chat]
                if found != right:
                    wrong.append((number, turn, found, right))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert llm.decoder.cache.pool.num_used == 0
    llm.decoder.cache.pool.check_integrity()
    llm.close()


def test_another_way_of_drafting_may_be_made_while_the_model_runs() -> None:
    """Kind: what is measured for it, or its own passes, disturb the text of the first."""
    llm = load(context_length=512)
    expected = llm.generate(TEXTS[0], LONG)[0].token_ids
    stream = llm.stream(TEXTS[0], LONG)
    chunks = [next(stream)]
    for draft in ("suffix", tiny_file(seed=1), "auto"):
        assert llm.with_drafts(draft).generate(TEXTS[1], GREEDY)[0].token_ids
    chunks += list(stream)
    assert tokens_of(chunks) == expected
    llm.close()


def test_measurements_by_hand_have_the_model_to_themselves(plain: LLM) -> None:
    """Kind: what the engine computes meanwhile overwrites the logits that are about to be read."""
    expected = plain.decoder.logits(list(range(40))).copy()
    busy = threading.Thread(target=lambda: [plain.generate(TEXTS, GREEDY) for _ in range(3)])
    busy.start()
    for _ in range(20):
        with plain.exclusive():
            found = plain.decoder.logits(list(range(40)))
            assert (found == expected).all()
    busy.join()


def test_resetting_the_prefix_cache_waits_for_the_pass_under_way() -> None:
    llm = load()
    llm.generate(TEXTS[0], GREEDY)
    resetting = threading.Thread(target=llm.reset_prefix_cache)
    with llm.exclusive():
        resetting.start()
        resetting.join(0.05)
        assert resetting.is_alive()
        assert llm.decoder.cache.pool.num_kept > 0
    resetting.join(10)
    assert llm.decoder.cache.pool.num_kept == 0
    llm.close()


# --- asyncio --------------------------------------------------------------------------------------------------------


def test_streams_in_asyncio_are_those_of_threads(plain: LLM) -> None:
    async def read(text: str) -> list[Chunk]:
        return [chunk async for chunk in plain.astream(text, SAMPLED)]

    async def all_of_them() -> list[list[Chunk]]:
        return await asyncio.gather(*(read(text) for text in TEXTS))

    expected = plain.generate(TEXTS, SAMPLED)
    for chunks, done in zip(asyncio.run(all_of_them()), expected, strict=True):
        assert tokens_of(chunks) == done.token_ids
        assert "".join(chunk.text for chunk in chunks) == done.text
        assert chunks[-1].completion is not None
        assert chunks[-1].completion.usage == done.usage


def test_the_event_loop_goes_on_while_a_stream_waits() -> None:
    """Kind: one stream keeps everything else of a server waiting."""
    llm = load()

    async def count() -> tuple[int, int]:
        num_ticks = 0

        async def tick() -> None:
            nonlocal num_ticks
            while True:
                num_ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        num_chunks = 0
        with llm.exclusive():  # the model can do nothing, the event loop can
            stream = llm.astream(TEXTS[0], LONG)
            first = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0.1)
            assert not first.done()
            before = num_ticks
        await first
        async for _ in stream:
            num_chunks += 1
            if num_chunks == 50:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        ticking.cancel()
        return before, num_chunks

    num_ticks, num_chunks = asyncio.run(count())
    assert num_ticks > 10
    assert num_chunks == 50
    wait_until(lambda: not llm._engine.has_work)
    assert llm.decoder.cache.pool.num_used == 0
    llm.close()


def test_a_task_that_is_cancelled_cancels_its_stream() -> None:
    llm = load()

    async def read() -> None:
        async for _ in llm.astream(TEXTS[0], LONG):
            pass

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(), 0.1)

    asyncio.run(give_up())
    wait_until(lambda: not llm._engine.has_work)
    assert llm.decoder.cache.pool.num_used == 0
    llm.close()


# --- steps by hand --------------------------------------------------------------------------------------------------


def test_steps_by_hand_are_made_only_when_a_piece_is_asked_for() -> None:
    """Kind: a measurement of single steps measures those of another thread."""
    llm = load()
    run, num_passes = llm.decoder.compiled, 0

    def counted(*args: Any) -> Any:
        nonlocal num_passes
        num_passes += 1
        assert threading.current_thread() is threading.main_thread()
        return run(*args)

    llm.decoder.compiled = counted
    steps = llm.stepwise(TEXTS[0], GREEDY)
    assert num_passes == 0
    chunks = []
    for number, chunk in enumerate(steps, start=1):
        assert num_passes == number + 1  # one for the prompt
        time.sleep(0.002)
        chunks.append(chunk)
    llm.decoder.compiled = run
    assert tokens_of(chunks) == llm.generate(TEXTS[0], GREEDY)[0].token_ids
    assert chunks[-1].completion is not None
    left = llm.stepwise(TEXTS[0], GREEDY)
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert not llm._engine.has_work
    assert llm.decoder.cache.pool.num_used == 0
    llm.close()


def test_steps_by_hand_beside_another_way_of_drafting() -> None:
    llm = load()
    other = llm.with_drafts("suffix", num_draft_tokens=3)
    expected = llm.generate(TEXTS, GREEDY)
    by_hand = llm.stepwise(TEXTS[0], GREEDY)
    chunks = [next(by_hand)]
    assert [done.token_ids for done in other.generate(TEXTS, GREEDY)] == [done.token_ids for done in expected]
    chunks += list(by_hand)
    assert tokens_of(chunks) == expected[0].token_ids
    llm.close()


def test_what_cannot_go_on_by_hand_is_told() -> None:
    llm = load()
    with pytest.raises(OptionError, match="leave no token"):
        list(llm.stepwise(TEXTS[0], SamplingParams(max_tokens=5, regex="a", bad_words=("a",))))
    assert not llm._engine.has_work
    llm.close()


# --- its end --------------------------------------------------------------------------------------------------------


def test_a_model_that_was_closed_says_so(plain: LLM) -> None:
    expected = plain.generate(TEXTS[0], GREEDY)[0].token_ids
    with load() as llm:
        assert llm.generate(TEXTS[0], GREEDY)[0].token_ids == expected
        other = llm.with_drafts("lookup")
        assert other.generate(TEXTS[0], GREEDY)[0].token_ids == expected
        thread = llm._loaded.loop._owner._thread
        assert thread is not None
    assert not thread.is_alive()
    for use in (
        lambda: llm.generate(TEXTS[0], GREEDY),
        lambda: llm.chat(CHAT, GREEDY),
        lambda: list(llm.stream(TEXTS[0], GREEDY)),
        lambda: list(llm.stepwise(TEXTS[0], GREEDY)),
        lambda: asyncio.run(anext(llm.astream(TEXTS[0], GREEDY))),  # type: ignore[arg-type]
        lambda: other.generate(TEXTS[0], GREEDY),
        lambda: llm.with_drafts("lookup"),
        lambda: llm.reset_prefix_cache(),
    ):
        with pytest.raises(OptionError, match="this model was closed: load it anew"):
            use()
    llm.close()
    other.close()
    with load() as never_used:
        pass
    with pytest.raises(OptionError, match="closed"):
        never_used.generate(TEXTS[0])


def test_closing_ends_what_runs() -> None:
    """Kind: somebody waits for ever for a completion of a model that was closed."""
    llm = load()
    other = llm.with_drafts("lookup", num_draft_tokens=2)
    errors: list[BaseException] = []

    def ask(own: LLM) -> None:
        try:
            own.generate(TEXTS, LONG)
        except OptionError as error:
            errors.append(error)

    threads = [threading.Thread(target=ask, args=(own,)) for own in (llm, other)]
    stream = llm.stream(TEXTS[0], LONG)
    next(stream)
    for thread in threads:
        thread.start()
    wait_until(lambda: other._engine.has_work)
    llm.close()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 2
    assert all("closed" in str(error) for error in errors)
    with pytest.raises(OptionError, match="closed while it was generating"):
        list(stream)
    assert llm.decoder.cache.pool.num_used == 0


def test_a_model_that_nobody_holds_ends_its_thread() -> None:
    """Kind: each model that was loaded once stays in memory."""
    llm = load()
    other = llm.with_drafts("lookup")
    llm.generate(TEXTS[0], GREEDY)
    thread = llm._loaded.loop._owner._thread
    assert thread is not None
    del llm
    gc.collect()
    assert thread.is_alive()  # the other one uses it
    assert other.generate(TEXTS[0], GREEDY)
    del other
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_what_cannot_be_copied_is_refused_in_words(plain: LLM, copied: Callable[[object], object]) -> None:
    """Kind: "cannot pickle '_thread.RLock' object" where somebody passes a model to another process."""
    with pytest.raises(
        OptionError, match="cannot be pickled or copied: load it where it is wanted, or use with_drafts"
    ):
        copied(plain)


def test_another_way_of_drafting_may_be_made_while_the_cache_is_full() -> None:
    """Kind: measurements for it need blocks that sequences hold: "all blocks of the cache are in use"."""
    llm = load(draft="auto", kv_memory=65536)  # what calibration looks behind is longer than this cache
    stream = llm.stream(TEXTS[0], LONG)
    for _ in range(200):
        next(stream)
    pool = llm.decoder.cache.pool
    assert pool.num_used > pool.num_blocks // 2
    for draft in ("auto", tiny_file(seed=1)):
        assert llm.with_drafts(draft).methods
    assert list(stream)
    llm.close()
