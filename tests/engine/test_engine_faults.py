"""Cancelling, failures and interrupts: the engine stays usable, loses no memory, and never serves a wrong cache."""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import pytest
from helpers.engines import TableForward, make_engine, output, run, run_to_the_end, submit, table_decoder
from helpers.two_models import EXPECTED, MODEL, PARAMS, PROMPTS, V, check_usable, engine_with_models

from foredraft.drafters.base import SequenceView
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine, Output
from foredraft.errors import ContextLengthError, ForedraftError, OptionError
from foredraft.models import cached_decoder
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, ScriptedDrafter, TableModel
from foredraft.tree import DraftTree


def run_all(engine: Engine) -> tuple[list[Output], bool]:
    """All prompts, as far as they come, and whether a step was interrupted. Those that were not in it go on."""
    outputs, interrupted = [submit(engine, prompt, PARAMS) for prompt in PROMPTS], False
    for _ in range(1000):
        if not engine.has_work:
            break
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupted = True
    assert not engine.has_work
    for one, expected in zip(outputs, EXPECTED, strict=True):
        if one.sequence.status is Status.FINISHED:
            assert output(one) == expected
        else:
            assert one.sequence.status is Status.FAILED
            assert output(one) == expected[: one.sequence.num_output_tokens]
        engine.cancel(one)  # harmless
    return outputs, interrupted


def failing(forward: TableForward, at: int, error: type[BaseException]) -> list[int]:
    """Has a pass fail once: the `at`-th from now on. Returns a list that holds its rows when it has."""
    target, failed = forward.num_passes + at, []

    def before() -> None:
        if forward.num_passes == target:
            failed.append(len(forward.upcoming_rows))
            raise error

    forward.before = before
    return failed


def test_any_pass_may_be_interrupted() -> None:
    """Kind: a sequence that ends in the middle of a pass leaves memory, queue or cache in disorder."""
    engine, forward, decoders = engine_with_models(max_batched_tokens=16)
    num_failed = []
    for at in range(1, 100):
        seen = failing(forward, at, KeyboardInterrupt)
        outputs, interrupted = run_all(engine)
        assert interrupted == bool(seen)
        forward.before = lambda: None
        check_usable(engine, decoders)
        num_failed.append(sum(one.sequence.status is Status.FAILED for one in outputs))
        if not seen:
            break
    assert num_failed[0] < 3  # who was not in the pass goes on
    assert max(num_failed) == 3
    assert num_failed[-1] == 0
    assert len(num_failed) > 10


def test_any_pass_may_fail() -> None:
    """Kind: as above; and a pass that fails once ends all who share it, though it can be made again."""
    engine, forward, decoders = engine_with_models(max_batched_tokens=16)
    num_rows_alone = []
    for at in range(1, 100):
        seen = failing(forward, at, MemoryError)
        outputs, _ = run_all(engine)
        forward.before = lambda: None
        failed = [one.sequence for one in outputs if one.sequence.status is Status.FAILED]
        assert all(isinstance(sequence.error, MemoryError) for sequence in failed)
        assert len(failed) <= 1  # alone in the pass: of several it would have been made again for each
        num_rows_alone += seen if failed else []
        check_usable(engine, decoders)
        if not seen:
            break
    assert at > 10
    assert 0 < len(num_rows_alone) < at - 1


@pytest.mark.parametrize("supervised", [True, False])
def test_any_pass_of_a_draft_model_may_fail(supervised: bool) -> None:
    """Kind: what breaks in a drafter breaks the target's text; or one that failed once is out of step for good."""
    engine, _, decoders = engine_with_models(max_batched_tokens=16, supervised=supervised)
    forward = decoders[1].compiled
    assert isinstance(forward, TableForward)
    for at in range(1, 100):
        if supervised:  # it is switched off after some failures
            engine, _, decoders = engine_with_models(max_batched_tokens=16, supervised=True)
            forward = decoders[1].compiled
            assert isinstance(forward, TableForward)
        seen = failing(forward, at, MemoryError)
        outputs, _ = run_all(engine)
        forward.before = lambda: None
        failed = [one for one in outputs if one.sequence.status is Status.FAILED]
        assert bool(failed) == (bool(seen) and not supervised)
        if seen and supervised:
            assert all("failed in `propose`: MemoryError" in one.reason for one in outputs[-1:])
        check_usable(engine, decoders)
        if not seen:
            break
    assert at > 5


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
            "publish",
            "truncate",
            "_forget",
            "_end",
            "_end_drafting",
            "_try",
            "end",
            "remove",
            "step",
        )
        cleaning = frame.f_code.co_name in clean_up
        return lines if ours and not cleaning and in_step(frame) else None

    return calls, count


def test_an_interrupt_may_come_anywhere() -> None:
    """Kind: an interrupt between two lines publishes positions that were never computed, or loses blocks."""
    previous = sys.gettrace()
    counter, count = interrupting(0)
    run_all(engine_with_models()[0])  # what is computed once and kept is not counted
    engine, _, _ = engine_with_models()
    sys.settrace(counter)
    try:
        assert not run_all(engine)[1]
    finally:
        sys.settrace(previous)
    places = np.unique(np.linspace(1, count[0], 120).astype(int)).tolist()
    for at in places:
        engine, _, decoders = engine_with_models()
        tracer, _ = interrupting(at)
        sys.settrace(tracer)
        try:
            assert run_all(engine)[1]
        finally:
            sys.settrace(previous)
        check_usable(engine, decoders)


def test_neighbours_of_a_sequence_whose_pass_fails_go_on() -> None:
    """Kind: one sequence's failure ends the others, leaves them waiting for ever, or going on from a torn state."""
    for bad in range(3):
        engine, forward, decoders = engine_with_models()
        outputs = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
        for _ in range(4):
            engine.step()
        position = len(outputs[bad].sequence.tokens) - 1
        assert sum(len(one.sequence.tokens) - 1 == position for one in outputs) == 1

        def before(engine: Engine = engine, forward: TableForward = forward, position: int = position) -> None:
            if position in forward.upcoming_positions:
                raise ForedraftError("torn")

        forward.before = before
        engine.step()
        forward.before = lambda: None
        run_to_the_end(engine)
        assert [one.sequence.status is Status.FAILED for one in outputs] == [i == bad for i in range(3)]
        assert str(outputs[bad].sequence.error) == "torn"
        for index, one in enumerate(outputs):
            assert output(one) == EXPECTED[index][: one.sequence.num_output_tokens if index == bad else 24]
        check_usable(engine, decoders)


def test_a_prompt_that_cannot_be_computed_stops_nobody_else() -> None:
    """Kind: a prompt that fails raises in the call of another sequence, or keeps its place in the queue."""
    engine, forward, decoders = engine_with_models(max_batched_tokens=16)
    first = submit(engine, PROMPTS[0], PARAMS)
    for _ in range(5):
        engine.step()
    bad, waiting = submit(engine, [39, *PROMPTS[0]], PARAMS), submit(engine, PROMPTS[1], PARAMS)

    def before() -> None:
        if (39, 0) in zip(forward.upcoming_rows, forward.upcoming_positions, strict=True):
            raise MemoryError

    forward.before = before
    before_failing = first.sequence.num_output_tokens
    engine.step()
    forward.before = lambda: None
    assert bad.sequence.status is Status.FAILED
    assert isinstance(bad.sequence.error, MemoryError)
    assert first.sequence.num_output_tokens > before_failing
    run_to_the_end(engine)
    assert [output(first), output(waiting)] == EXPECTED[:2]
    check_usable(engine, decoders)


def test_logits_that_are_not_numbers_are_an_error() -> None:
    engine, forward, decoders = engine_with_models()
    forward.model = type("Nan", (), {"vocab_size": V, "logits": lambda self, tokens: np.full(V, np.nan)})()
    outputs, _ = run_all(engine)
    for one in outputs:
        assert isinstance(one.sequence.error, ForedraftError)
        assert "not a number" in str(one.sequence.error)
    forward.model = MODEL
    check_usable(engine, decoders)


def test_a_tree_with_another_root_is_refused() -> None:
    """Kind: a draft made for another text is judged as if it continued this one."""

    class Confused(ScriptedDrafter):
        def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
            return DraftTree.chain(39 if sequence.id == 0 else sequence.tokens[-1], (1, 2))

    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, Confused([]))
    bad, sound = submit(engine, [1, 2, 3], PARAMS), submit(engine, PROMPTS[1], PARAMS)
    run_to_the_end(engine)
    assert isinstance(bad.sequence.error, ForedraftError)
    assert "another root" in str(bad.sequence.error)
    assert output(sound) == EXPECTED[1]
    assert decoder.cache.pool.num_used == 0


def test_a_thousand_sequences_leave_nothing() -> None:
    """Kind: slots reserved for drafts are not given back; cancelled sequences keep their memory."""
    random = np.random.default_rng(0)
    engine, _, decoders = engine_with_models(max_batched_tokens=32)
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
            engine.cancel(alive.pop(int(random.integers(len(alive)))))
    run_to_the_end(engine)
    for one in alive:
        assert one.sequence.status is Status.FINISHED
        sampled = output(one)
        assert sampled == MODEL.generate(one.prompt, one.params, len(sampled))
    for decoder in decoders:
        assert decoder.cache.pool.num_used == 0
        decoder.cache.pool.check_integrity()


def test_one_of_two_with_the_same_beginning_is_cancelled() -> None:
    """Kind: what an unfinished sequence has in the cache is served to another before it is computed."""
    engine, _, decoders = engine_with_models()
    same = list(range(38))
    kept, cancelled = submit(engine, same, PARAMS), submit(engine, same, PARAMS)
    for _ in range(4):
        engine.step()
    engine.cancel(cancelled)
    later = submit(engine, same, PARAMS)
    run_to_the_end(engine)
    assert later.sequence.num_cached_tokens == 32
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


def test_unrelated_sequences_do_not_draft_from_each_other() -> None:
    """Kind: what was indexed for one sequence goes on drafting in the next."""
    model = TableModel(2, V, seed=1)
    decoder, _ = table_decoder(model)
    engine = make_engine(decoder, LookupDrafter())
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    [alone] = run(make_engine(decoder, LookupDrafter()), [PROMPTS[0]], params)
    run(engine, [[7, 8] * 20, PROMPTS[2]], params)
    [after] = run(engine, [PROMPTS[0]], params)
    assert (after.counts, output(after)) == (alone.counts, output(alone))


def test_a_draft_model_finds_what_it_has_computed_before() -> None:
    """Kind: a hit in the target's cache leaves the drafter without its own, and acceptance falls to nothing."""
    target, _ = table_decoder(MODEL, length=512)
    draft, passes = table_decoder(MODEL, length=512)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V), num_draft_tokens=3)
    prompt = [*range(V)] * 5
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    first, second = (run(engine, [prompt], params)[0] for _ in range(2))
    assert (first.sequence.num_cached_tokens, second.sequence.num_cached_tokens) == (0, 192)
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
    [one] = run(engine, [prompt], params)
    assert output(one) == MODEL.generate(prompt, params, 80)
    assert one.counts.num_draft_tokens == one.counts.num_accepted_tokens
    assert 8 <= one.counts.num_accepted_tokens <= 12
    [long] = run(engine, [list(range(40))], params)
    assert long.counts.num_draft_tokens == 0


def test_a_long_prompt_is_prefilled_by_the_drafter_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: the drafter's cache starts elsewhere than the target's when a prompt takes several chunks."""
    monkeypatch.setattr(cached_decoder, "CHUNK_TOKENS", 16)
    target, _ = table_decoder(MODEL)
    draft, passes = table_decoder(MODEL)
    engine = make_engine(target, ModelDrafter(draft, vocab_size=V), max_batched_tokens=32)
    [one] = run(engine, [[*range(V)] * 2], SamplingParams(max_tokens=20, ignore_eos=True))
    assert one.counts.num_accepted_tokens == one.counts.num_draft_tokens == 16
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
