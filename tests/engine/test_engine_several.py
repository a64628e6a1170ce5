"""Several completions of one prompt: what they share, which are kept, and what is told of all together."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, run_to_the_end, table_decoder, tiny_tokenizer

from foredraft.engine import Engine, Output, completion_of, outputs_for
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, TableModel

V = 48
TOKENIZER = tiny_tokenizer(end_ids=(7,))
MODEL = TableModel(2, V, seed=12, scale=1.5)
PROMPT = [40, 41, 40, 41, 33, 34, 40, 41]


def run_together(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> list[Output]:
    """All completions of one prompt, to their ends."""
    outputs = outputs_for(engine, prompt, params)
    for one in outputs:
        engine.add(one)
    run_to_the_end(engine)
    return outputs


def test_several_completions_share_their_prompt() -> None:
    """Kind: n completions compute the prompt n times, or share their noise."""
    prompt = [*range(40), *range(5)]
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=8, n=4, logprobs=1, ignore_eos=True)
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, DistDrafter(MODEL), tokenizer=TOKENIZER)
    outputs = run_together(engine, prompt, params)
    assert [one.sequence.num_cached_tokens for one in outputs] == [0, 32, 32, 32]
    for index, one in enumerate(outputs):
        assert output(one) == MODEL.generate(prompt, params, 12, sample_index=index)
    done = completion_of(outputs, methods=["dist"], load_s=0.0)
    assert [choice.index for choice in done.choices] == [0, 1, 2, 3]
    assert (done.text, done.token_ids, done.logprobs) == (
        done.choices[0].text,
        done.choices[0].token_ids,
        done.choices[0].logprobs,
    )
    assert done.usage.completion_tokens == sum(len(choice.token_ids) for choice in done.choices) == 48
    assert done.usage.prompt_tokens == len(prompt)
    assert done.timings.num_prompt_tokens == (len(prompt) - 1) + 3 * (len(prompt) - 1 - 32)
    spec = done.speculation
    assert spec.num_emitted_tokens == spec.num_accepted_tokens + spec.num_rounds  # none ended in a draft
    assert sum(spec.accepted_per_position) == spec.num_accepted_tokens
    assert decoder.cache.pool.num_used == 0


def test_unseeded_completions_of_one_prompt_share_a_seed() -> None:
    """Kind: completions that were given together cannot be asked for again, since each drew a seed of its own."""
    engine = make_engine(table_decoder(MODEL)[0], tokenizer=TOKENIZER)
    asked = [outputs_for(engine, PROMPT, SamplingParams(temperature=1.0, n=3)) for _ in range(2)]
    seeds = [{one.params.seed for one in outputs} for outputs in asked]
    assert [len(own) for own in seeds] == [1, 1]
    assert seeds[0] != seeds[1]


def test_times_of_several_completions_are_those_of_all() -> None:
    """Kind: the time of decoding is that of the completion that began last, and prompts do not count."""
    decoder, _ = table_decoder(MODEL)
    outputs = run(make_engine(decoder), [PROMPT] * 2, SamplingParams(max_tokens=2, ignore_eos=True))
    for one, prefill_s, started, ended in zip(outputs, (1.0, 2.0), (5.0, 7.0), (9.0, 8.0), strict=True):
        one.prefill_s, one.decode_started, one.decode_ended = prefill_s, started, ended
    timings = completion_of(outputs, methods=["none"], load_s=0.0).timings
    assert (timings.prefill_s, timings.decode_s) == (3.0, 4.0)


def test_one_of_several_completions_looks_at_the_prompt_for_all() -> None:
    """Kind: each completion computes the whole prompt once more for log-probabilities that are there already."""
    engine = make_engine(table_decoder(MODEL)[0], tokenizer=TOKENIZER)
    prompt = [*range(40), *range(5)]
    params = SamplingParams(max_tokens=2, temperature=1.0, n=3, prompt_logprobs=0, ignore_eos=True)
    outputs = run_together(engine, prompt, params)
    assert [one.sequence.num_cached_tokens for one in outputs] == [0, 32, 32]
    done = completion_of(outputs, methods=["none"], load_s=0.0)
    assert done.prompt_logprobs is not None
    assert [found.token_id for found in done.prompt_logprobs.tokens] == prompt[1:]


@pytest.mark.parametrize("num", [1, 2])
def test_the_best_completions_come_first(num: int) -> None:
    params = SamplingParams(max_tokens=6, temperature=1.5, seed=8, n=num, best_of=6, ignore_eos=True)
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, tokenizer=TOKENIZER)
    outputs = run_together(engine, PROMPT, params)
    done = completion_of(outputs, methods=["none"], load_s=0.0)

    def log_probability(said: Sequence[int]) -> float:
        tokens = [*PROMPT, *said]
        places = range(len(PROMPT), len(tokens))
        return sum(np.log(MODEL.probs(tokens[:i], SamplingParams(temperature=1.0))[tokens[i]]) for i in places)

    ranked = sorted((output(one) for one in outputs), key=log_probability, reverse=True)
    assert [list(choice.token_ids) for choice in done.choices] == ranked[:num]
    assert [choice.index for choice in done.choices] == list(range(num))
    assert done.logprobs is None  # not asked for
    assert done.cumulative_logprob == pytest.approx(log_probability(ranked[0]))
    assert done.usage.completion_tokens == 36


def test_sums_that_nobody_needs_are_not_there() -> None:
    """Kind: every completion of several pays for log-probabilities that nobody asked for."""
    decoder, _ = table_decoder(MODEL)
    params = [SamplingParams(max_tokens=2, temperature=1.0, **several) for several in ({"n": 2}, {"best_of": 2})]
    plain, best = run(make_engine(decoder, tokenizer=TOKENIZER), [PROMPT] * 2, params)
    assert plain.cumulative_logprob is None
    assert (best.cumulative_logprob is None, best.take_new(0).logprobs) == (False, ())
