"""Several threads and streams on one engine, and requests that are released while it is at work."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, submit, table_decoder
from helpers.two_models import EXPECTED, MODEL, PARAMS, PROMPTS, check_usable, engine_with_models

from foredraft.drafters.base import Outcome, RequestView
from foredraft.drafters.none import NoDrafter
from foredraft.engine import Chunk, Completion, Request, stream_of
from foredraft.errors import ForedraftError
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, TableModel
from foredraft.tree import DraftTree


def test_a_request_may_be_released_in_the_middle_of_a_step() -> None:
    """Kind: an abandoned stream is collected while a round runs, and its blocks go to a neighbour at once."""
    decoder, _ = table_decoder(MODEL)
    for at in range(6):
        engine = make_engine(decoder, drafter := DistDrafter(MODEL))
        kept, left = submit(engine, PROMPTS[0], PARAMS), submit(engine, PROMPTS[2], PARAMS)
        late = submit(engine, PROMPTS[1], PARAMS)
        draft = drafter.draft

        def draft_and_release(
            request: Any,
            budget: int,
            own: Any = drafter,
            draft: Any = draft,
            left: Any = left,
            at: int = at,
            engine: Any = engine,
        ) -> DraftTree:
            if own.num_calls == at:
                engine.release(left)
            return draft(request, budget)

        drafter.draft = draft_and_release  # type: ignore[method-assign]
        while engine.has_work:
            engine.step()
        assert [output(kept), output(late)] == EXPECTED[:2]
        assert decoder.cache.pool.num_used == 0


def test_threads_share_an_engine() -> None:
    """Kind: two threads step at once, and one reads logits that the other's pass has overwritten."""
    engine, _, decoders = engine_with_models()
    wrong: list[object] = []

    def ask(number: int) -> None:
        for turn in range(6):
            request = submit(engine, PROMPTS[(number + turn) % 3], PARAMS)
            tokens: list[int] = []
            finished = False
            while not finished:
                finished = engine.advance(request)
                tokens.extend(request.take_new()[1])
            engine.release(request)
            if tokens != EXPECTED[(number + turn) % 3] or sum(request.counts.accepted_per_position) > 23:
                wrong.append((number, turn))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    check_usable(engine, decoders)


def test_a_stream_is_not_read_in_the_middle_of_another_thread_s_round() -> None:
    """Kind: a completion that lacks the last round, and log-probabilities beside the wrong tokens."""
    in_round, read = threading.Event(), threading.Event()

    class Meeting(NoDrafter):
        def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
            if threading.current_thread() is other:
                in_round.set()
                read.wait(0.3)

    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, Meeting())
    params = SamplingParams(max_tokens=2, ignore_eos=True, logprobs=0)
    request = engine.prepare(PROMPTS[1], params)
    other = threading.Thread(target=engine.step)

    def advance(request: Request, advance: Callable[[Request], bool] = engine.advance) -> bool:
        finished = advance(request)
        if request.num_output_tokens == 1 and not in_round.is_set():
            other.start()
            assert in_round.wait(5)
        return finished

    def complete() -> Completion:
        read.set()
        return request.completion(methods=["none"], load_s=0.0)

    engine.advance = advance  # type: ignore[method-assign]
    chunks = list(stream_of(engine, [request], complete))
    other.join()
    token_ids = [token for chunk in chunks for token in chunk.token_ids]
    assert [found.token_id for chunk in chunks for found in chunk.logprobs] == token_ids == output(request)
    assert chunks[-1].completion is not None
    assert chunks[-1].completion.speculation.num_rounds == 2
    assert chunks[-1].completion.speculation.reason == "asked for"


def test_requests_are_given_back_though_the_end_of_one_fails() -> None:
    """Kind: a drafter of somebody's fails when it is to forget a request, and others run on for nobody."""

    class Clinging(NoDrafter):
        def forget(self, request_id: int) -> None:
            raise ForedraftError("never")

    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, Clinging())
    requests = [engine.prepare(prompt, PARAMS) for prompt in PROMPTS]
    stream = stream_of(engine, requests, lambda: pytest.fail("not complete"))
    next(stream)
    with pytest.raises(ForedraftError, match="never"):
        stream.close()
    assert not engine.has_work
    assert decoder.cache.pool.num_used == 0


def test_no_more_requests_share_a_round_than_may() -> None:
    """Kind: a crowd of requests takes all memory at once; or one that waited is forgotten."""
    sizes = []

    class Counting(NoDrafter):
        def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
            sizes.append(len(requests))

    decoder, _ = table_decoder(MODEL)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    done = run(make_engine(decoder, Counting(), max_running=2), [PROMPTS[0]] * 5, params)
    assert {tuple(output(request)) for request in done} == {tuple(MODEL.generate(PROMPTS[0], params, 4))}
    assert max(sizes) == 2


def test_a_later_answer_of_a_stream_may_end_first() -> None:
    """Kind: the answer that goes on is taken out of the stream instead of the one that has ended."""
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder)
    params = [SamplingParams(max_tokens=num, ignore_eos=True) for num in (12, 3)]
    requests = [engine.prepare(PROMPTS[1], own) for own in params]
    done = requests[0].completion
    chunks = list(stream_of(engine, requests, lambda: done(methods=["none"], load_s=0.0)))
    for index, request in enumerate(requests):
        token_ids = [token for chunk in chunks if chunk.index == index for token in chunk.token_ids]
        assert token_ids == output(request)
        assert len(token_ids) == (12, 3)[index]
    assert [chunk.completion is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_a_stream_ends_as_soon_as_one_of_its_answers_fails() -> None:
    """Kind: the error of one answer is told only when the others have come to their ends."""

    class Partly(TableModel):
        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            row = super().logits(tokens)
            return np.full_like(row, np.nan) if list(tokens) == [1, 5] else row

    decoder, _ = table_decoder(Partly(1, 20, seed=2))
    engine = make_engine(decoder)
    requests = [engine.prepare(prompt, SamplingParams(max_tokens=20, ignore_eos=True)) for prompt in ([1, 2], [1, 5])]
    chunks: list[Chunk] = []
    with pytest.raises(ForedraftError, match="not a number"):
        chunks.extend(stream_of(engine, requests, lambda: pytest.fail("not complete")))
    assert 0 < sum(len(chunk.token_ids) for chunk in chunks) < 5
    assert decoder.cache.pool.num_used == 0


def test_texts_are_not_forgotten_in_the_middle_of_a_round() -> None:
    """Kind: a block is given away while another thread's request takes it over."""
    engine, _, [decoder, _] = engine_with_models()
    run(engine, PROMPTS[:1], PARAMS)
    forgetting = threading.Thread(target=engine.forget_texts)
    with engine.paused():
        forgetting.start()
        forgetting.join(0.05)
        assert decoder.cache.pool.num_kept > 0
    forgetting.join()
    assert decoder.cache.pool.num_kept == 0
