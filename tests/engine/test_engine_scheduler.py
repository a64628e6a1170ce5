"""Which sequences take part in a pass: running ones, then chunks of prompts up to the budget, in order of arrival."""

from collections.abc import Sequence as Several

import pytest
from helpers.engines import make_engine, output, run, submit, table_decoder

from foredraft.drafters.none import NoDrafter
from foredraft.engine import outputs_for
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, TableModel

V = 40
MODEL = TableModel(2, V, seed=6)
LONG = SamplingParams(max_tokens=60, ignore_eos=True)


def test_a_long_prompt_is_computed_beside_those_that_run() -> None:
    """Kind: a stream stands still until somebody else's prompt is read."""
    decoder, forward = table_decoder(MODEL, length=512)
    engine = make_engine(decoder, max_batched_tokens=32)
    streams = [submit(engine, [i, i + 1], LONG) for i in range(4)]
    for _ in range(3):
        engine.step()
    long = submit(engine, [*range(V)] * 8, LONG)
    while long.sequence.status is not Status.RUNNING:
        before = [one.sequence.num_output_tokens for one in streams]
        engine.step()
        assert [one.sequence.num_output_tokens for one in streams] == [number + 1 for number in before]
        assert len(forward.last_rows) <= 32
    while engine.has_work:
        engine.step()
    assert output(long) == MODEL.generate([*range(V)] * 8, LONG, 60)


def test_a_budget_full_of_running_sequences_leaves_a_little_for_prompts() -> None:
    """Kind: prompts starve while enough others run."""
    decoder, _ = table_decoder(MODEL, length=512)
    engine = make_engine(decoder, max_batched_tokens=16, max_running=32)
    for start in range(20):
        submit(engine, [start], SamplingParams(max_tokens=200, ignore_eos=True))
    late = submit(engine, [*range(V)] * 2, LONG)
    for _ in range(8):
        engine.step()
    assert late.sequence.status is Status.RUNNING


@pytest.mark.parametrize("budget", [16, 17, 50, 256])
def test_several_prompts_share_a_pass(budget: int) -> None:
    decoder, forward = table_decoder(MODEL, length=512)
    prompts: list[Several[int]] = [[start, *range(20)] for start in range(5)]
    outputs = run(make_engine(decoder, max_batched_tokens=budget), prompts, LONG)
    assert [output(one) for one in outputs] == [MODEL.generate(prompt, LONG, 60) for prompt in prompts]
    if budget == 256:
        assert forward.num_passes == 1 + 60


def test_prompts_begin_in_the_order_of_their_arrival() -> None:
    decoder, _ = table_decoder(MODEL, length=512)
    engine = make_engine(decoder, max_batched_tokens=16, max_running=2)
    outputs = [submit(engine, [start] * 40, SamplingParams(max_tokens=5, ignore_eos=True)) for start in range(6)]
    begun: list[int] = []
    while engine.has_work:
        engine.step()
        begun += [i for i, one in enumerate(outputs) if one.sequence.num_output_tokens and i not in begun]
        active = [one for one in outputs if one.sequence.status in (Status.PREFILLING, Status.RUNNING)]
        assert len(active) <= 2
    assert begun == list(range(6))


def test_those_that_begin_alike_compute_it_once() -> None:
    """Kind: prompts that arrive together are computed each by itself, though they are the same."""
    decoder, forward = table_decoder(MODEL, length=512)
    engine = make_engine(decoder, max_batched_tokens=256)
    prompt = [*range(V)] * 4
    num_rows = 0
    outputs = [submit(engine, [*prompt, last], LONG) for last in range(4)]
    while any(one.sequence.status is not Status.RUNNING for one in outputs):
        engine.step()
        num_rows += len(forward.last_rows)
    assert num_rows < 160 + 4 * 16 + 8
    assert [one.sequence.num_cached_tokens for one in outputs] == [0, 160, 160, 160]


def test_no_tokens_wanted_only_the_prompt_is_looked_at() -> None:
    """Kind: scoring a text produces a token, or takes a pass more than its prompt."""
    decoder, forward = table_decoder(MODEL)
    engine = make_engine(decoder, DistDrafter(MODEL))
    [one] = run(engine, [[1, 2, 3, 4]], SamplingParams(max_tokens=0, prompt_logprobs=0))
    assert (output(one), one.sequence.finish_reason, forward.num_passes) == ([], "length", 1)
    assert one.prompt_logprobs is not None
    assert [found.token_id for found in one.prompt_logprobs.tokens] == [2, 3, 4]


def test_samples_of_one_prompt_wait_for_each_other_only_where_that_saves_something() -> None:
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, NoDrafter())
    params = SamplingParams(max_tokens=3, temperature=1.0, n=3, seed=4, ignore_eos=True)
    outputs = outputs_for(engine, [1, 2, 3], params)
    for one in outputs:
        engine.add(one)
    engine.step()  # too short to share a block: all are computed in the first pass
    assert [one.sequence.status for one in outputs] == [Status.RUNNING] * 3
