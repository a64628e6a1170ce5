"""Every option, under every way of drafting, is what plain decoding makes of it."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import (
    completion,
    make_engine,
    output,
    result,
    run,
    run_to_the_end,
    submit,
    table_decoder,
    tiny_tokenizer,
)

from foredraft.drafters.base import Drafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.engine import Output
from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import ProcessorFactory, SamplingParams, pick
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter

V = 48
END = 7
TOKENIZER = tiny_tokenizer(end_ids=(END,))
MODEL = TableModel(2, V, seed=12, scale=1.5)
PROMPT = [40, 41, 40, 41, 33, 34, 40, 41]

OPTIONS: list[dict] = [
    {},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8},
    {"presence_penalty": 1.5},
    {"frequency_penalty": 1.1},
    {"frequency_penalty": -0.7},
    {"dry_multiplier": 2.0},
    {"dry_multiplier": 2.0, "dry_base": 1.2, "dry_allowed_length": 1, "dry_sequence_breakers": ["!"], "dry_range": 9},
    {"logit_bias": {3: 4.0, END: 2.5, 5: -100}},
    {"bad_words": ["(", ")(", "#$%", "\x05"]},
    {"min_tokens": 9, "logit_bias": {END: 6.0}},
    {"stop_token_ids": [11, 12, 13]},
    {"stop": ["(", "*+", "#"], "include_stop_str_in_output": True},
    {"ignore_eos": True},
    {"typical_p": 0.4},
    {"top_k": 3, "typical_p": 0.8, "top_p": 0.9, "min_p": 0.02},
    {"logprobs": 0},
    {"logprobs": 5, "prompt_logprobs": 3, "echo": True},
    {
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.3,
        "dry_multiplier": 1.0,
        "logit_bias": {9: 2.0},
        "bad_words": ["!", "(%"],
        "min_tokens": 4,
        "typical_p": 0.95,
        "top_k": 20,
        "top_p": 0.95,
        "min_p": 0.01,
        "stop": ["&'"],
        "logprobs": 2,
    },
]
KINDS = ["lookup", "oracle", "wrong", "scripted", "dist", "self", "wide"]


def drafter_of(kind: str, said: Sequence[int]) -> Drafter:
    random = np.random.default_rng(5)
    script = [random.integers(-1, V + 3, size=random.integers(6)).tolist() for _ in range(30)]
    return {
        "lookup": LookupDrafter,
        "oracle": lambda: OracleDrafter([*said, 1, 2, 3, 4, 5, 6, 7, 8]),
        "wrong": lambda: WrongDrafter(MODEL),
        "scripted": lambda: ScriptedDrafter(script, obey_budget=False),
        "dist": lambda: DistDrafter(TableModel(2, V, seed=99), (1, 1, 1)),
        "self": lambda: DistDrafter(MODEL, (1,) * 6),
        "wide": lambda: DistDrafter(MODEL, (3, 2, 1)),
    }[kind]()


def answered(
    params: SamplingParams, drafter: Drafter | None = None, *, budget: int = 6, sample_index: int = 0
) -> Output:
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, drafter, num_draft_tokens=budget, tokenizer=TOKENIZER)
    one = engine.prepare(PROMPT, params, sample_index=sample_index)
    engine.add(one)
    run_to_the_end(engine)
    assert one.sequence.status is Status.FINISHED
    assert decoder.cache.pool.num_used == 0
    return one


def by_hand(params: SamplingParams, *, sample_index: int = 0) -> list[int]:
    """Plain decoding with processors that are made anew for every token, and the reference choice."""
    factory = ProcessorFactory(TOKENIZER, V)
    ends = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else {END})
    said: list[int] = []
    while len(said) < (params.max_tokens or 0) and (not said or said[-1] not in ends):
        tokens = [*PROMPT, *said]
        processors = factory.make(params, PROMPT, ends)
        row = MODEL.logits(tokens) if processors is None else processors.apply(MODEL.logits(tokens), tokens, (), None)
        said.append(
            pick(
                row,
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                noise=(params.seed or 0, sample_index, len(tokens)),
            )
        )
    return said


@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "+".join(options) or "none")
def test_every_option_with_every_drafter(options: dict, temperature: float) -> None:
    """Kind: an option is dropped, or applied to the wrong row, once drafts are verified: penalties of a batch, masks
    one row too many, log-probabilities that are missing or belong to the draft."""
    params = SamplingParams(max_tokens=30, temperature=temperature, seed=3, **options)
    sample_index = 2 if temperature else 0
    expected = answered(params, sample_index=sample_index)
    said = by_hand(params, sample_index=sample_index)
    assert output(expected) == said[: expected.sequence.num_output_tokens]
    assert params.stop or output(expected) == said
    drafts = 0
    for kind in KINDS:
        for budget in (1, 6):
            found = answered(params, drafter_of(kind, said), budget=budget, sample_index=sample_index)
            assert result(found) == result(expected), (kind, budget)
            drafts += found.counts.num_accepted_tokens
    assert drafts > 0


def test_a_self_drafter_is_right_under_every_option() -> None:
    """Kind: the drafter samples outside of what the options allow, so its drafts are sure to be rejected."""
    for options in OPTIONS:
        for temperature in (0.0, 0.9):
            params = SamplingParams(max_tokens=30, temperature=temperature, seed=3, **options)
            counts = answered(params, drafter_of("self", [])).counts
            # What lies beyond the end of the text is drafted, but not kept.
            assert counts.num_accepted_tokens >= counts.num_draft_tokens - 6


def test_a_single_candidate_is_drafted_as_when_greedy() -> None:
    """Kind: the drafter samples from tokens that the sequence excludes: with top_k=1 and a temperature."""
    other = TableModel(2, V, seed=12, scale=1.4)  # of the same mind as the target, though not as sure
    greedy = answered(SamplingParams(max_tokens=40, ignore_eos=True), DistDrafter(other))
    one = answered(SamplingParams(max_tokens=40, temperature=1.0, top_k=1, seed=1, ignore_eos=True), DistDrafter(other))
    assert output(one) == output(greedy)
    assert one.counts == greedy.counts
    assert greedy.counts.num_accepted_tokens > 0


def test_together_as_alone() -> None:
    """Kind: rows of neighbours with and without options, with and without drafts, are mixed up."""
    params = [
        SamplingParams(max_tokens=20, temperature=t, seed=seed, **options)
        for seed, options in enumerate(OPTIONS)
        for t in (0.0, 1.1)
    ]
    random = np.random.default_rng(0)
    script = {i: [random.integers(V, size=random.integers(5)).tolist() for _ in range(20)] for i in range(0, 90, 2)}
    decoder, _ = table_decoder(MODEL)
    together = run(make_engine(decoder, ScriptedDrafter(script), tokenizer=TOKENIZER), [PROMPT] * len(params), params)
    assert [result(one) for one in together] == [result(answered(own)) for own in params]


# --- single kinds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num", range(1, 10))
def test_min_tokens_holds_to_the_token(num: int) -> None:
    """Kind: the end token is masked on one draft row too many or too few; a neighbour without drafts shifts rows."""
    params = SamplingParams(max_tokens=30, min_tokens=num, logit_bias={END: 100})  # the end is the likeliest everywhere
    for drafter in (None, DistDrafter(MODEL, (1,) * 4), ScriptedDrafter([[END] * 4] * 20)):
        decoder, _ = table_decoder(MODEL)
        engine = make_engine(decoder, drafter, tokenizer=TOKENIZER)
        free = SamplingParams(max_tokens=12, seed=1, temperature=1.0, ignore_eos=True)
        one, other = run(engine, [PROMPT, PROMPT[:3]], [params, free])
        assert one.sequence.num_output_tokens == num + 1
        assert output(one)[-1] == END
        assert END not in output(one)[:-1]
        assert output(other) == MODEL.generate(PROMPT[:3], free, 12)


def test_min_tokens_holds_back_stop_strings() -> None:
    said = output(answered(SamplingParams(max_tokens=20, ignore_eos=True)))
    text = [TOKENIZER.decode([token], at_start=False) for token in said]
    first = next(i for i, piece in enumerate(text) if piece)
    stop = text[first]
    again = [i for i, piece in enumerate(text) if piece == stop]
    for least in (first, first + 1):
        params = SamplingParams(max_tokens=20, ignore_eos=True, stop=stop, min_tokens=least)
        expected = [i for i in again if i >= least]
        for drafter in (None, OracleDrafter(said)):
            found = answered(params, drafter)
            assert found.sequence.num_output_tokens == (expected[0] + 1 if expected else 20)


def test_a_penalty_breaks_a_loop() -> None:
    """Kind: a penalty is ignored with drafts, so that a looping model loops for ever."""
    model = TableModel(1, V, seed=3, scale=0.5)
    decoder, _ = table_decoder(model)
    looping = output(run(make_engine(decoder, LookupDrafter()), [[1]], SamplingParams(max_tokens=60))[0])
    assert looping[-20:] in (looping[-20 - k : -k] for k in range(1, 20))
    for options in ({"repetition_penalty": 1.8}, {"presence_penalty": 2.0}, {"dry_multiplier": 5.0}):
        params = SamplingParams(max_tokens=60, **options)
        plain = output(run(make_engine(decoder), [[1]], params)[0])
        assert len(set(plain)) > 2 * len(set(looping))
        assert output(run(make_engine(decoder, LookupDrafter(), num_draft_tokens=8), [[1]], params)[0]) == plain


def test_logprobs_are_the_models_own() -> None:
    """Kind: log-probabilities are empty, 0, of the draft or of the filtered distribution."""
    params = SamplingParams(max_tokens=25, temperature=0.9, seed=3, top_k=4, repetition_penalty=1.5, logprobs=3)
    one = answered(params, DistDrafter(MODEL, (2, 2)))
    assert one.counts.num_accepted_tokens > 0
    tokens = [*PROMPT, *output(one)]
    logprobs = completion(one).logprobs
    assert logprobs is not None
    assert len(logprobs) == one.sequence.num_output_tokens
    for place, found in enumerate(logprobs, start=len(PROMPT)):
        probs = MODEL.probs(tokens[:place], SamplingParams(temperature=1.0))
        assert found.token_id == tokens[place]
        assert found.logprob == pytest.approx(np.log(probs[tokens[place]]), abs=1e-9)
        best = sorted(range(V), key=lambda token: (-probs[token], token))[:3]
        assert [token for token, _ in found.top] == best
        assert [logprob for _, logprob in found.top] == pytest.approx(np.log(probs[best]).tolist(), abs=1e-9)
    assert one.cumulative_logprob == pytest.approx(sum(found.logprob for found in logprobs))


def test_prompt_logprobs_are_there_whatever_is_cached() -> None:
    """Kind: a prompt found in the cache has no log-probabilities; or those of the chunks are shifted."""
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, LookupDrafter(), tokenizer=TOKENIZER)
    prompt = [*range(40), *PROMPT, *range(40)]
    params = SamplingParams(max_tokens=3, prompt_logprobs=2)
    first, again, plain = run(engine, [prompt, prompt, prompt], [params, params, SamplingParams(max_tokens=3)])
    assert result(first) == result(again)
    assert first.prompt_logprobs is not None
    assert plain.prompt_logprobs is None
    assert output(plain) == output(first)
    assert [found.token_id for found in first.prompt_logprobs.tokens] == prompt[1:]
    for place, found in enumerate(first.prompt_logprobs.tokens, start=1):
        probs = MODEL.probs(prompt[:place], SamplingParams(temperature=1.0))
        assert found.logprob == pytest.approx(np.log(probs[prompt[place]]), abs=1e-9)
        assert found.top[0] == (int(probs.argmax()), pytest.approx(np.log(probs.max()), abs=1e-9))
    assert run(engine, [[3]], params)[0].prompt_logprobs.tokens == ()  # type: ignore[union-attr]


def test_a_prompt_that_is_computed_anew_is_not_counted_twice() -> None:
    """Kind: a sequence is preempted in the middle of its prompt, and has log-probabilities of its beginning twice."""
    decoder, _ = table_decoder(MODEL)
    one = make_engine(decoder, tokenizer=TOKENIZER).prepare([1, 2, 3, 4, 5], SamplingParams(prompt_logprobs=0))
    blocks = one.sequence.blocks
    for start, num_rows, known in ((0, 2, [2, 3]), (2, 1, [2, 3, 4]), (0, 2, [2, 3, 4]), (2, 3, [2, 3, 4, 5])):
        blocks.close()
        blocks.reserve(start)
        blocks.advance(start)
        one.see_prompt_logits(np.zeros((num_rows, 9), np.float32))
        assert one.prompt_logprobs is not None
        assert [found.token_id for found in one.prompt_logprobs.tokens] == known


def test_log_probabilities_of_a_sequence_that_was_preempted() -> None:
    """Kind: as above, in an engine whose cache holds one sequence and a half."""
    decoder, _ = table_decoder(MODEL)
    decoder.resize_cache(112)
    engine = make_engine(decoder, LookupDrafter(), tokenizer=TOKENIZER, max_batched_tokens=16)
    prompts = [[*range(1, 40)], [*range(2, 40)]]
    params = SamplingParams(max_tokens=40, prompt_logprobs=1, logprobs=1, ignore_eos=True)
    found = run(engine, prompts, params)
    assert sum(one.sequence.num_preemptions for one in found) > 0
    large, _ = table_decoder(MODEL)
    for prompt, one in zip(prompts, found, strict=True):
        assert result(one) == result(run(make_engine(large, tokenizer=TOKENIZER), [prompt], params)[0])


# --- what cannot be done -----------------------------------------------------------------------------------------


def test_a_sequence_without_a_token_to_choose_fails_alone() -> None:
    """Kind: one sequence's options leave no token, and all of the round are lost."""
    model = TableModel(2, V, one_hot=True)
    decoder, _ = table_decoder(model)
    engine = make_engine(decoder, LookupDrafter(), tokenizer=TOKENIZER)
    fourth = model.generate(PROMPT, SamplingParams(), 4)[3]
    text = TOKENIZER.token_bytes(fourth).decode()
    free = SamplingParams(max_tokens=20, ignore_eos=True)
    banned = SamplingParams(max_tokens=20, ignore_eos=True, bad_words=(text,))
    first, bad, last = (submit(engine, PROMPT, own) for own in (free, banned, free))
    run_to_the_end(engine)
    assert bad.sequence.status is Status.FAILED
    assert isinstance(bad.sequence.error, OptionError)
    assert "leave no token to choose" in str(bad.sequence.error)
    assert output(bad) == model.generate(PROMPT, SamplingParams(), 3)
    for one in (first, last):
        assert output(one) == model.generate(PROMPT, SamplingParams(), 20)
    assert decoder.cache.pool.num_used == 0


def test_numbers_that_are_none_in_one_row_fail_alone() -> None:
    """Kind: NaN in the logits of one sequence takes the whole round with it."""

    class Partly(TableModel):
        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            row = super().logits(tokens)
            return np.full_like(row, np.nan) if tokens[-1] == 5 else row

    model = Partly(1, V, seed=2, one_hot=True)
    decoder, _ = table_decoder(model)
    engine = make_engine(decoder, tokenizer=TOKENIZER)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    bad, sound = submit(engine, [1, 5], params), submit(engine, [1, 2], params)
    run_to_the_end(engine)
    assert output(sound) == model.generate([1, 2], params, 4)
    assert isinstance(bad.sequence.error, ForedraftError)
    assert "not a number" in str(bad.sequence.error)
    assert decoder.cache.pool.num_used == 0


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"stop_token_ids": [3, V]}, f"--stop-token-ids token {V} is outside the vocabulary of {V}"),
        ({"logit_bias": {V + 5: 1.0}}, f"--logit-bias token {V + 5} is outside the vocabulary of {V}"),
        ({"regex": "("}, "--regex cannot be used: "),
        ({"json_schema": {"type": "objekt"}}, "--json-schema cannot be used: "),
        ({"grammar": "root ::= nothing"}, "--grammar cannot be used: "),
        ({"grammar": "start: nothing"}, "--grammar cannot be used: "),
    ],
)
def test_what_depends_on_the_model_is_refused_before_anything_runs(options: dict, line: str) -> None:
    decoder, forward = table_decoder(MODEL)
    engine = make_engine(decoder, tokenizer=TOKENIZER)
    with pytest.raises(OptionError) as refused:
        engine.prepare(PROMPT, SamplingParams(**options))
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)
    assert forward.num_passes == 0
