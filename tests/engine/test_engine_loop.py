"""The thread that owns the step: clients of all kinds, cancelling, failures, forks, and its end."""

import asyncio
import gc
import multiprocessing
import os
import threading
import time
import weakref

import pytest
from helpers.engines import make_engine, table_decoder

from foredraft.drafters.none import NoDrafter
from foredraft.engine import Chunk, Engine, EngineLoop, Submission, completion_of, outputs_for
from foredraft.engine.clients import arriving, completions, pieces
from foredraft.errors import ForedraftError, OptionError
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, TableModel

V = 40
MODEL = TableModel(2, V, seed=6)
PARAMS = SamplingParams(max_tokens=24, temperature=0.7, seed=9, ignore_eos=True)
ENDLESS = SamplingParams(max_tokens=None, ignore_eos=True)
PROMPT = [5, 6, 7]
EXPECTED = MODEL.generate(PROMPT, PARAMS, 24)


def submission(
    engine: Engine, prompt: list[int] = PROMPT, params: SamplingParams = PARAMS, *, streams: bool = True
) -> Submission:
    outputs = outputs_for(engine, prompt, params)
    return Submission(outputs, lambda: completion_of(outputs, methods=["x"], load_s=0.0), streams=streams)


def slow_engine(seconds: float = 0.005, *, length: int = 100_000) -> tuple[Engine, CachedDecoder]:
    """An engine of which every pass takes a while."""
    decoder, forward = table_decoder(MODEL, length=length)
    forward.before = lambda: time.sleep(seconds)
    return make_engine(decoder), decoder


def tokens_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


def test_many_threads_get_their_own_texts() -> None:
    """Kind: two threads step at once, and one reads logits that the other's pass has overwritten."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder, DistDrafter(MODEL)), EngineLoop()
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(5):
            prompt = [(number + turn) % V, 3, 4]
            expected = MODEL.generate(prompt, PARAMS, 24)
            streamed = tokens_of(list(pieces(loop, engine, submission(engine, prompt))))
            [whole] = completions(loop, engine, [submission(engine, prompt, streams=False)])
            if streamed != expected or list(whole.token_ids) != expected:
                wrong.append((number, turn))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert decoder.cache.pool.num_used == 0
    loop.close()


def test_two_engines_of_one_model_run_at_the_same_time() -> None:
    """Kind: a second way of drafting for the same model overwrites what the first is about to read."""
    decoder, _ = table_decoder(MODEL)
    engines, loop = [make_engine(decoder, DistDrafter(MODEL)), make_engine(decoder)], EngineLoop()
    found: dict[int, list[list[int]]] = {0: [], 1: []}

    def ask(number: int) -> None:
        for _ in range(10):
            chunks = list(pieces(loop, engines[number], submission(engines[number])))
            found[number].append(tokens_of(chunks))

    threads = [threading.Thread(target=ask, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [EXPECTED] * 10, 1: [EXPECTED] * 10}
    loop.close()


def test_cancelling_does_not_wait_for_a_pass_and_takes_at_most_one() -> None:
    """Kind: a client that goes away keeps its blocks until its text is done, or waits for the lock of a pass."""
    engine, decoder = slow_engine(0.2)
    loop = EngineLoop()
    stream = pieces(loop, engine, submission(engine, PROMPT, ENDLESS))
    next(stream)
    started = time.perf_counter()
    stream.close()
    assert time.perf_counter() - started < 0.1
    deadline = time.perf_counter() + 2.0
    while decoder.cache.pool.num_used and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert decoder.cache.pool.num_used == 0
    assert time.perf_counter() - started < 1.0
    loop.close()


def test_an_abandoned_stream_is_cancelled_when_it_is_collected() -> None:
    engine, decoder = slow_engine()
    loop = EngineLoop()
    stream = pieces(loop, engine, submission(engine, PROMPT, ENDLESS))
    next(stream)
    del stream
    gc.collect()
    deadline = time.perf_counter() + 5.0
    while engine.has_work and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert not engine.has_work
    assert decoder.cache.pool.num_used == 0
    loop.close()


def test_a_client_that_cannot_take_its_piece_harms_nobody() -> None:
    """Kind: the error of one reader ends the loop, and all others wait for ever."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()

    def refuse(event: object) -> None:
        raise BrokenPipeError

    bad, good = submission(engine, PROMPT, ENDLESS), submission(engine)
    loop.submit(engine, {bad: refuse})
    assert tokens_of(list(pieces(loop, engine, good))) == EXPECTED
    deadline = time.perf_counter() + 5.0
    while engine.has_work and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert not engine.has_work
    loop.close()


def test_an_engine_that_breaks_fails_its_sequences_and_no_others() -> None:
    decoder, _ = table_decoder(MODEL)
    broken, sound, loop = make_engine(decoder), make_engine(decoder), EngineLoop()
    broken._scheduler.schedule = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    with pytest.raises(ZeroDivisionError):
        list(pieces(loop, broken, submission(broken)))
    assert not broken.has_work
    assert tokens_of(list(pieces(loop, sound, submission(sound)))) == EXPECTED
    loop.close()


def test_asyncio_clients_share_the_loop_with_others() -> None:
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()

    async def ask() -> list[int]:
        return tokens_of([chunk async for chunk in arriving(loop, engine, submission(engine))])

    async def all_of_them() -> list[list[int]]:
        return await asyncio.gather(*(ask() for _ in range(5)))

    assert asyncio.run(all_of_them()) == [EXPECTED] * 5

    async def leaves_early() -> None:
        stream = arriving(loop, engine, submission(engine, PROMPT, SamplingParams(max_tokens=200, ignore_eos=True)))
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(leaves_early())
    loop.close()
    assert decoder.cache.pool.num_used == 0


def test_closing_ends_what_runs_with_an_error() -> None:
    engine, decoder = slow_engine()
    loop = EngineLoop()
    stream = pieces(loop, engine, submission(engine, PROMPT, ENDLESS))
    next(stream)
    closing = threading.Thread(target=loop.close)
    closing.start()
    with pytest.raises(OptionError, match="closed while"):
        list(stream)
    closing.join(5)
    assert decoder.cache.pool.num_used == 0
    with pytest.raises(OptionError, match="was closed"):
        list(pieces(loop, engine, submission(engine)))
    loop.close()


def test_a_loop_that_nobody_holds_ends_its_thread() -> None:
    """Kind: every model that was loaded once leaves a thread, and with it all its memory."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    list(pieces(loop, engine, submission(engine)))
    gone = weakref.ref(engine)
    thread = loop._owner._thread
    assert thread is not None
    del loop, engine
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()
    assert gone() is None


def test_nobody_steps_while_one_is_exclusive() -> None:
    """Kind: a measurement on the model itself is disturbed, or waits for ever behind passes that follow each other."""
    engine, _ = slow_engine(0.001)
    loop = EngineLoop()
    stream = pieces(loop, engine, submission(engine, PROMPT, ENDLESS))
    next(stream)
    started = time.perf_counter()
    with loop.exclusive():
        assert time.perf_counter() - started < 1.0
        before = engine._target.decoder.compiled.num_passes  # type: ignore[attr-defined]
        time.sleep(0.05)
        assert engine._target.decoder.compiled.num_passes == before  # type: ignore[attr-defined]
    stream.close()
    loop.close()


def _in_child(results: "multiprocessing.SimpleQueue[object]", loop: EngineLoop, engine: Engine) -> None:
    try:
        results.put(tokens_of(list(pieces(loop, engine, submission(engine)))))
    except ForedraftError as error:
        results.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_generates_does_not_hang_the_child() -> None:
    """Kind: a lock that another thread held at the fork is never released in the child."""
    engine, _ = slow_engine(0.002)
    loop = EngineLoop()
    busy = pieces(loop, engine, submission(engine, [1, 2], ENDLESS))
    next(busy)
    context = multiprocessing.get_context("fork")
    for _ in range(4):
        results = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(results, loop, engine))
        child.start()
        child.join(20)
        assert child.exitcode == 0
        assert results.get() == EXPECTED
    next(busy)  # the parent goes on
    busy.close()
    loop.close()


def test_a_failed_step_by_hand_leaves_the_engine_usable() -> None:
    """Kind: an interrupt in the middle of a pass loses blocks."""
    decoder, forward = table_decoder(MODEL)
    engine = make_engine(decoder, NoDrafter())
    [one] = outputs_for(engine, PROMPT, PARAMS)
    engine.add(one)
    engine.step()

    def interrupt() -> None:
        raise KeyboardInterrupt

    forward.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert not engine.has_work
    assert decoder.cache.pool.num_used == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_threads_that_fork_at_the_same_time_leave_the_engine_free() -> None:
    """Kind: what one thread waited for is let go in the name of another, and of one nothing is: no step is made."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    completions(loop, engine, [submission(engine)])

    def fork() -> None:
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

    threads = [threading.Thread(target=fork, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert list(completions(loop, engine, [submission(engine)])[0].token_ids) == EXPECTED
    loop.close()


# --- who would wait for itself --------------------------------------------------------------------------------------


def test_a_thread_that_keeps_the_engine_from_stepping_does_not_wait_for_it() -> None:
    """Kind: `generate` inside `exclusive` waits for a step that comes when it is over."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    with loop.exclusive():
        with pytest.raises(OptionError, match="no step inside `exclusive`"):
            completions(loop, engine, [submission(engine)])
        with loop.exclusive():
            pass
        with pytest.raises(OptionError, match="no step inside `exclusive`"):
            next(pieces(loop, engine, submission(engine)))
    assert list(completions(loop, engine, [submission(engine)])[0].token_ids) == EXPECTED
    with loop.exclusive():
        loop.close()


def test_a_thread_that_cannot_be_started_is_started_for_the_next_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: after one failure everybody waits for ever."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError, match="new thread"):
            completions(loop, engine, [submission(engine)])
    assert list(completions(loop, engine, [submission(engine)])[0].token_ids) == EXPECTED
    loop.close()


def test_what_ends_in_a_step_by_hand_is_told_to_its_client() -> None:
    """Kind: a client waits for ever for an end that another thread has seen."""
    engine, _ = slow_engine(0.001)
    loop = EngineLoop()
    stream = pieces(loop, engine, submission(engine))
    chunks = [next(stream)]
    with loop.exclusive():
        while engine.has_work:
            engine.step()
    assert tokens_of(chunks + list(stream)) == EXPECTED
    loop.close()
