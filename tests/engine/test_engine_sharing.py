"""Several threads and streams on one engine, and clients that go away while it is at work."""

import threading
import time
from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import (
    TableForward,
    make_engine,
    output,
    run,
    run_to_the_end,
    submission,
    submit,
    table_decoder,
)
from helpers.two_models import EXPECTED, MODEL, PARAMS, PROMPTS, check_usable, engine_with_models

from foredraft.drafters.base import Outcome, SequenceView
from foredraft.drafters.none import NoDrafter
from foredraft.engine import Chunk, Engine, EngineLoop, outputs_for
from foredraft.engine.clients import completions, pieces
from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, TableModel


def wait_for_the_end(engine: Engine) -> None:
    deadline = time.perf_counter() + 10.0
    while engine.has_work and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert not engine.has_work


def tokens_of(chunks: Sequence[Chunk], index: int = 0) -> list[int]:
    return [token for chunk in chunks if chunk.index == index for token in chunk.token_ids]


def stop_before(forward: TableForward, pass_: int) -> tuple[threading.Event, threading.Event]:
    """Has a pass wait: the first event says that it does, the second that it may go on."""
    waits, goes_on = threading.Event(), threading.Event()

    def before() -> None:
        if forward.num_passes == pass_:
            waits.set()
            assert goes_on.wait(10)

    forward.before = before
    return waits, goes_on


@pytest.mark.parametrize("at", range(1, 7))
def test_a_stream_may_be_left_in_the_middle_of_a_pass(at: int) -> None:
    """Kind: an abandoned stream is collected while a pass runs, and its blocks go to a neighbour at once."""
    decoder, forward = table_decoder(MODEL)
    engine, loop = make_engine(decoder, DistDrafter(MODEL)), EngineLoop()
    waits, goes_on = stop_before(forward, at)
    kept, left, late = (submission([engine.prepare(prompt, PARAMS)]) for prompt in (PROMPTS[0], PROMPTS[2], PROMPTS[1]))
    arrived: dict[str, list[object]] = {"kept": [], "left": [], "late": []}
    loop.submit(engine, {kept: arrived["kept"].append, left: arrived["left"].append})
    assert waits.wait(10)
    num_arrived = len(arrived["left"])
    started = time.perf_counter()
    loop.cancel(engine, left)
    loop.submit(engine, {late: arrived["late"].append})
    assert time.perf_counter() - started < 1.0  # it does not wait for the pass
    assert not left.outputs[0].sequence.status.is_over
    goes_on.set()
    wait_for_the_end(engine)
    loop.close()
    assert left.outputs[0].sequence.status is Status.CANCELLED
    assert len(arrived["left"]) <= num_arrived + 1  # of the pass that was under way
    for name, expected in (("kept", EXPECTED[0]), ("late", EXPECTED[1])):
        assert tokens_of(arrived[name]) == expected  # type: ignore[arg-type]
    assert decoder.cache.pool.num_used == 0
    decoder.cache.pool.check_integrity()


def test_threads_share_an_engine() -> None:
    """Kind: two threads step at once, and one reads logits that the other's pass has overwritten."""
    (engine, _, decoders), loop = engine_with_models(max_batched_tokens=32), EngineLoop()
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(6):
            one = submission([engine.prepare(PROMPTS[(number + turn) % 3], PARAMS)])
            if tokens_of(list(pieces(loop, engine, one))) != EXPECTED[(number + turn) % 3]:
                wrong.append((number, turn))
            if sum(one.outputs[0].counts.accepted_per_position) > 23:
                wrong.append("counts of another thread")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.close()
    assert wrong == []
    check_usable(engine, decoders)


def test_what_is_delivered_belongs_together() -> None:
    """Kind: a completion that lacks the last round, and log-probabilities beside the wrong tokens."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder, DistDrafter(MODEL)), EngineLoop()
    busy = threading.Thread(
        target=lambda: [list(pieces(loop, engine, submission([engine.prepare([1, 2], PARAMS)]))) for _ in range(20)]
    )
    busy.start()
    params = SamplingParams(max_tokens=24, temperature=0.9, seed=4, ignore_eos=True, logprobs=0, n=3)
    for _ in range(10):
        one = submission(outputs_for(engine, PROMPTS[1], params))
        chunks = list(pieces(loop, engine, one))
        done = chunks[-1].completion
        assert done is not None
        assert [chunk.completion is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
        for index, choice in enumerate(done.choices):
            own = [chunk for chunk in chunks if chunk.index == index]
            assert all(len(chunk.logprobs) == len(chunk.token_ids) for chunk in own)
            assert [found.token_id for chunk in own for found in chunk.logprobs] == tokens_of(chunks, index)
            assert tokens_of(chunks, index) == MODEL.generate(PROMPTS[1], params, 24, sample_index=index)
            assert choice.token_ids == tuple(tokens_of(chunks, index))
            assert "".join(chunk.text for chunk in own) == choice.text
        assert done.speculation.num_rounds == sum(output.counts.num_rounds for output in one.outputs)
        assert done.speculation.num_accepted_tokens + done.speculation.num_rounds in range(72, 76)
        assert done.speculation.reason == "asked for"
    busy.join()
    loop.close()


class Clinging(NoDrafter):
    """Fails when a sequence is over. Nothing keeps a planner of somebody's from that."""

    def end(self, sequence_id: int) -> None:
        raise ForedraftError("never")


def test_blocks_are_given_back_though_the_end_of_one_fails() -> None:
    """Kind: a drafter of somebody's fails when it is to forget a sequence, and others run on for nobody."""
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, Clinging())
    several = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
    for _ in range(3):
        engine.step()
    engine.cancel(several[0])
    run_to_the_end(engine)
    assert [str(one.sequence.error) for one in several] == ["never"] * 3
    assert [output(one) for one in several[1:]] == EXPECTED[1:]
    assert decoder.cache.pool.num_used == 0


def test_a_stream_that_is_left_harms_nobody_though_its_end_fails() -> None:
    """Kind: the error comes up in the thread that all share, and everybody waits for ever."""
    decoder, _ = table_decoder(MODEL)
    engine, sound, loop = make_engine(decoder, Clinging()), make_engine(decoder), EngineLoop()
    stream = pieces(loop, engine, submission(outputs_for(engine, PROMPTS[1], PARAMS)))
    next(stream)
    stream.close()
    assert tokens_of(list(pieces(loop, sound, submission(outputs_for(sound, PROMPTS[1], PARAMS))))) == EXPECTED[1]
    with pytest.raises(ForedraftError, match="never"):
        list(pieces(loop, engine, submission(outputs_for(engine, PROMPTS[1], PARAMS))))
    wait_for_the_end(engine)
    loop.close()
    assert decoder.cache.pool.num_used == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nobody_waits_for_a_thread_that_has_ended() -> None:
    """Kind: something ends the thread that all share (a plug-in that calls `exit`), and its clients wait for ever."""
    decoder, forward = table_decoder(MODEL)
    engine, loop = make_engine(decoder, max_running=1), EngineLoop()

    def leave() -> None:
        if forward.num_passes == 4:
            raise SystemExit

    forward.before = leave
    several = [submission(outputs_for(engine, prompt, PARAMS), streams=False) for prompt in PROMPTS]
    with pytest.raises(OptionError, match="closed while it was generating"):
        completions(loop, engine, several)
    wait_for_the_end(engine)
    assert decoder.cache.pool.num_used == 0
    with pytest.raises(OptionError, match="was closed"):
        completions(loop, engine, [submission(outputs_for(engine, PROMPTS[0], PARAMS))])
    loop.close()


def test_of_several_prompts_the_first_that_fails_ends_the_call() -> None:
    """Kind: the other prompts of a failed call run on for nobody."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    several = [outputs_for(engine, prompt, PARAMS) for prompt in PROMPTS]
    several[1][0].sequence.tokens[-1] = 99  # not in the table
    with pytest.raises(ValueError, match="outside the vocabulary"):
        completions(loop, engine, [submission(outputs, streams=False) for outputs in several])
    wait_for_the_end(engine)
    assert [outputs[0].sequence.status for outputs in several] == [Status.CANCELLED, Status.FAILED, Status.CANCELLED]
    found = completions(loop, engine, [submission(outputs_for(engine, p, PARAMS), streams=False) for p in PROMPTS])
    assert [list(one.token_ids) for one in found] == EXPECTED
    loop.close()
    assert decoder.cache.pool.num_used == 0


def test_no_more_sequences_share_a_round_than_may() -> None:
    """Kind: a crowd of sequences takes all memory at once; or one that waited is forgotten."""
    sizes = []

    class Counting(NoDrafter):
        def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
            sizes.append(len(sequences))

    decoder, _ = table_decoder(MODEL)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    done = run(make_engine(decoder, Counting(), max_running=2), [PROMPTS[0]] * 5, params)
    assert {tuple(output(one)) for one in done} == {tuple(MODEL.generate(PROMPTS[0], params, 4))}
    assert max(sizes) == 2


def test_a_later_completion_of_a_stream_may_end_first() -> None:
    """Kind: the one that goes on is taken out of the stream instead of the one that has ended."""
    decoder, _ = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    outputs = [engine.prepare(PROMPTS[1], SamplingParams(max_tokens=num, ignore_eos=True)) for num in (12, 3)]
    chunks = list(pieces(loop, engine, submission(outputs)))
    for index, one in enumerate(outputs):
        assert tokens_of(chunks, index) == output(one)
        assert len(output(one)) == (12, 3)[index]
    assert [chunk.completion is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    loop.close()


def test_a_stream_ends_as_soon_as_one_of_its_completions_fails() -> None:
    """Kind: the error of one is told only when the others have come to their ends."""

    class Partly(TableModel):
        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            row = super().logits(tokens)
            return np.full_like(row, np.nan) if list(tokens) == [1, 5] else row

    decoder, _ = table_decoder(Partly(1, 20, seed=2))
    engine, loop = make_engine(decoder), EngineLoop()
    outputs = [engine.prepare(prompt, SamplingParams(max_tokens=200, ignore_eos=True)) for prompt in ([1, 2], [1, 5])]
    chunks: list[Chunk] = []
    with pytest.raises(ForedraftError, match="not a number"):
        chunks.extend(pieces(loop, engine, submission(outputs)))
    assert len(tokens_of(chunks)) < 5
    wait_for_the_end(engine)
    assert outputs[0].sequence.status is Status.CANCELLED
    assert len(output(outputs[0])) < 5
    loop.close()
    assert decoder.cache.pool.num_used == 0


def test_the_prefix_cache_is_not_reset_in_the_middle_of_a_pass() -> None:
    """Kind: a block is given away while another thread's sequence takes it over."""
    decoder, forward = table_decoder(MODEL)
    engine, loop = make_engine(decoder), EngineLoop()
    run(engine, [PROMPTS[0]], PARAMS)
    assert decoder.cache.pool.num_kept > 0
    waits, goes_on = stop_before(forward, forward.num_passes + 1)
    stream = pieces(loop, engine, submission(outputs_for(engine, PROMPTS[1], PARAMS)))

    def reset() -> None:
        with loop.exclusive():
            engine.reset_prefix_cache()

    reading = threading.Thread(target=lambda: list(stream))
    reading.start()
    assert waits.wait(10)
    resetting = threading.Thread(target=reset)
    resetting.start()
    resetting.join(0.05)
    assert resetting.is_alive()
    assert decoder.cache.pool.num_kept > 0
    goes_on.set()
    resetting.join(10)
    assert not resetting.is_alive()
    reading.join(10)
    loop.close()
    [again] = run(engine, [PROMPTS[0]], PARAMS)
    assert again.sequence.num_cached_tokens == 0
