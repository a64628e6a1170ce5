"""Aborts, failures and interrupts: the engine stays usable, loses no memory, and never serves a wrong cache."""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, submit, table_decoder
from helpers.two_models import EXPECTED, MODEL, PARAMS, PROMPTS, V, check_usable, engine_with_models

from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine
from foredraft.errors import ContextLengthError, ForedraftError, OptionError
from foredraft.models import cached_decoder
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, ScriptedDrafter, TableModel
from foredraft.tree import DraftTree


def run_until_it_fails(engine: Engine, error: type[BaseException]) -> bool:
    requests = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
    try:
        while engine.has_work:
            engine.step()
    except error:
        return True
    finally:
        for request in requests:
            engine.release(request)
            engine.release(request)  # harmless
    return False


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_any_pass_may_fail(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a request that ends in the middle of a pass leaves memory, queue or cache in disorder."""
    monkeypatch.setattr(cached_decoder, "CHUNK_TOKENS", 8)
    engine, forward, decoders = engine_with_models()
    fails_at, failed = 1, True
    while failed:
        target = forward.num_passes + fails_at

        def before(target: int = target) -> None:
            if forward.num_passes == target:
                raise error

        forward.before = before
        failed = run_until_it_fails(engine, error)
        forward.before = lambda: None
        check_usable(engine, decoders)
        fails_at += 1
    assert fails_at > 5


def interrupting(at: int) -> tuple[Callable[..., object], list[int]]:
    """A trace function that raises KeyboardInterrupt at the `at`-th line run inside Engine.step."""
    count = [0]

    def in_step(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code is Engine.step.__code__:
                return True
            frame = frame.f_back
        return False

    def lines(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            count[0] += 1
            if count[0] == at:
                raise KeyboardInterrupt
        return lines

    def calls(frame: FrameType, event: str, _: object) -> object:
        ours = "/foredraft/" in frame.f_code.co_filename and "/sampling/" not in frame.f_code.co_filename
        # What gives memory back is not interrupted here: no program can undo what its clean-up was kept from doing. Nor
        # is the hand-over of a single block, which may get lost between two lines.
        clean_up = (
            "allocate",
            "find",
            "close",
            "release",
            "_take_out",
            "publish",
            "_publish",
            "_forget",
            "forget",
            "truncate",
            "step",
        )
        cleaning = frame.f_code.co_name in clean_up
        return lines if ours and not cleaning and in_step(frame) else None

    return calls, count


def test_an_interrupt_may_come_anywhere() -> None:
    """Kind: an interrupt between two lines publishes positions that were never computed, or loses blocks."""
    previous = sys.gettrace()
    counter, count = interrupting(0)
    run_until_it_fails(engine_with_models()[0], KeyboardInterrupt)  # what is computed once and kept is not counted
    engine, _, _ = engine_with_models()
    sys.settrace(counter)
    try:
        assert not run_until_it_fails(engine, KeyboardInterrupt)
    finally:
        sys.settrace(previous)
    places = np.unique(np.linspace(1, count[0], 120).astype(int)).tolist()
    for at in places:
        engine, _, decoders = engine_with_models()
        tracer, _ = interrupting(at)
        sys.settrace(tracer)
        try:
            assert run_until_it_fails(engine, KeyboardInterrupt)
        finally:
            sys.settrace(previous)
        check_usable(engine, decoders)


def test_neighbours_of_a_failed_round_are_told() -> None:
    """Kind: one request's failure leaves the others waiting for ever, or going on from a torn state."""
    engine, forward, decoders = engine_with_models()
    one, two, waiting = (submit(engine, prompt, PARAMS) for prompt in PROMPTS)
    engine.step()
    engine.step()
    engine.release(waiting)
    engine.step()

    def before() -> None:
        raise ForedraftError("torn")

    forward.before = before
    with pytest.raises(ForedraftError, match="torn"):
        engine.advance(one)
    with pytest.raises(ForedraftError, match="shared with other requests"):
        engine.advance(two)
    forward.before = lambda: None
    check_usable(engine, decoders)


def test_a_prompt_that_cannot_be_read_stops_nobody_else() -> None:
    engine, forward, decoders = engine_with_models()
    first = submit(engine, PROMPTS[0], PARAMS)
    engine.step()
    bad = submit(engine, PROMPTS[2], PARAMS)

    def before() -> None:
        raise MemoryError

    forward.before = before
    with pytest.raises(MemoryError):
        engine.advance(first)
    forward.before = lambda: None
    engine.release(bad)
    while not engine.advance(first):
        pass
    assert output(first) == EXPECTED[0]
    waiting = submit(engine, PROMPTS[1], PARAMS)
    assert engine.advance(first)  # finished: no step is made for it
    assert waiting.round is None
    engine.release(waiting)
    check_usable(engine, decoders)


def test_logits_that_are_not_numbers_are_an_error() -> None:
    engine, forward, decoders = engine_with_models()
    forward.model = type("Nan", (), {"vocab_size": V, "logits": lambda self, tokens: np.full(V, np.nan)})()
    with pytest.raises(ForedraftError, match="not a number"):
        run(engine, PROMPTS, PARAMS)
    forward.model = MODEL
    check_usable(engine, decoders)


def test_a_tree_with_another_root_is_refused() -> None:
    """Kind: a draft made for another text is judged as if it continued this one."""

    class Confused(ScriptedDrafter):
        def draft(self, request: object, budget: int) -> DraftTree:
            return DraftTree.chain(39, (1, 2))

    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, Confused([]))
    with pytest.raises(ForedraftError, match="another root"):
        run(engine, [[1, 2, 3]], PARAMS)
    assert decoder.cache.pool.num_used == 0


def test_a_thousand_requests_leave_nothing() -> None:
    """Kind: slots reserved for drafts are not given back; aborted requests keep their memory."""
    random = np.random.default_rng(0)
    engine, _, decoders = engine_with_models()
    alive = []
    for _ in range(1000):
        prompt = [*range(random.integers(30)), *random.integers(V, size=random.integers(1, 25)).tolist()]
        params = SamplingParams(
            max_tokens=int(random.integers(1, 20)),
            temperature=float(random.choice([0, 1.0])),
            seed=int(random.integers(100)),
            stop_token_ids=tuple(random.integers(V, size=random.integers(4)).tolist()),
        )
        alive.append(submit(engine, prompt, params))
        for _ in range(int(random.integers(4))):
            engine.step()
        if random.random() < 0.3:
            engine.release(alive.pop(int(random.integers(len(alive)))))
    while engine.has_work:
        engine.step()
    for request in alive:
        assert request.finished
        sampled = output(request)
        assert sampled == MODEL.generate(request.prompt, request.params, len(sampled))
    for decoder in decoders:
        pool = decoder.cache.pool
        assert pool.num_used == 0
        assert pool.num_kept + len(pool._free) == pool._num_blocks
        assert len(set(pool._free) | set(pool._kept)) == pool._num_blocks


def test_one_of_two_with_the_same_beginning_is_aborted() -> None:
    """Kind: what an unfinished request has in the cache is served to another before it is computed."""
    engine, _, decoders = engine_with_models()
    same = list(range(38))
    kept, aborted = submit(engine, same, PARAMS), submit(engine, same, PARAMS)
    for _ in range(4):
        engine.step()
    engine.release(aborted)
    later = submit(engine, same, PARAMS)
    while engine.has_work:
        engine.step()
    assert later.num_cached_prompt_tokens == 32
    assert output(kept) == output(later) == MODEL.generate(same, PARAMS, 24)
    check_usable(engine, decoders)


def test_what_is_refused_takes_nothing() -> None:
    decoder, _ = table_decoder(MODEL, length=20)
    engine = make_engine(decoder)
    for prompt in ([], [V], [-1, 3]):
        with pytest.raises(OptionError):
            engine.prepare(prompt, PARAMS)
    for length in (20, 21):
        with pytest.raises(ContextLengthError, match=f"{length} tokens.*holds 20"):
            engine.prepare([1] * length, PARAMS)
    assert not engine.has_work


def test_unrelated_requests_do_not_draft_from_each_other() -> None:
    """Kind: what was indexed for one request goes on drafting in the next."""
    model = TableModel(2, V, seed=1)
    decoder, _ = table_decoder(model)
    engine = make_engine(decoder, LookupDrafter())
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    [alone] = run(make_engine(decoder, LookupDrafter()), [PROMPTS[0]], params)
    run(engine, [[7, 8] * 20, PROMPTS[2]], params)
    [after] = run(engine, [PROMPTS[0]], params)
    assert (after.counts, output(after)) == (alone.counts, output(alone))


def test_a_draft_model_finds_what_it_has_read_before() -> None:
    """Kind: a hit in the target's cache leaves the drafter without its own, and acceptance falls to nothing."""
    target, _ = table_decoder(MODEL, length=512)
    draft, passes = table_decoder(MODEL, length=512)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V), num_draft_tokens=3)
    prompt = [*range(V)] * 5
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    first, second = (run(engine, [prompt], params)[0] for _ in range(2))
    assert (first.num_cached_prompt_tokens, second.num_cached_prompt_tokens) == (0, 192)
    assert first.counts == second.counts
    assert second.counts.num_accepted_tokens == second.counts.num_draft_tokens
    assert passes.num_passes > 0


def test_a_draft_model_with_a_short_context_stops_there() -> None:
    """Kind: a draft model made for a shorter context than the target's fails, or cuts the target short."""
    target, _ = table_decoder(MODEL, length=128)
    draft, _ = table_decoder(MODEL, length=32)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V))
    params = SamplingParams(max_tokens=80, ignore_eos=True)
    prompt = list(range(20))
    [request] = run(engine, [prompt], params)
    assert output(request) == MODEL.generate(prompt, params, 80)
    assert request.counts.num_draft_tokens == request.counts.num_accepted_tokens
    assert 8 <= request.counts.num_accepted_tokens <= 12
    [long] = run(engine, [list(range(40))], params)
    assert long.counts.num_draft_tokens == 0


def test_a_long_prompt_is_read_by_the_drafter_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: the drafter's cache starts elsewhere than the target's when a prompt takes several chunks."""
    monkeypatch.setattr(cached_decoder, "CHUNK_TOKENS", 16)
    target, _ = table_decoder(MODEL)
    draft, passes = table_decoder(MODEL)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V))
    [request] = run(engine, [[*range(V)] * 2], SamplingParams(max_tokens=20, ignore_eos=True))
    assert request.counts.num_accepted_tokens == request.counts.num_draft_tokens == 16
    assert passes.num_passes >= 5 + 16


def test_nothing_is_drafted_for_the_last_token() -> None:
    """Kind: the drafter is asked although only the bonus fits."""
    decoder, forward = table_decoder(MODEL)
    drafter = DistDrafter(MODEL)
    for max_tokens, calls, passes in [(1, 0, 1), (2, 1, 1), (5, 1, 1), (6, 1, 2), (7, 2, 2)]:
        drafter.num_calls = forward.num_passes = 0
        run(make_engine(decoder, drafter), [[3]], SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        assert (drafter.num_calls, forward.num_passes) == (calls, passes)


def test_parameters_of_a_wrong_type_are_refused() -> None:
    decoder, _ = table_decoder(MODEL)
    with pytest.raises(OptionError, match="SamplingParams"):
        make_engine(decoder).prepare([1], {"max_tokens": 3})  # type: ignore[arg-type]
