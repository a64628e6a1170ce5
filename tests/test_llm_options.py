"""Options of sampling from the front door: several completions, log-probabilities, echo, forms of the text."""

import json
import time

import numpy as np
import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import OptionError
from foredraft.llm import Chunk

TEXT = "and the other one and the other one and the"
CHAT = [{"role": "user", "content": "Say something."}]
SEVERAL = SamplingParams(max_tokens=16, temperature=1.2, seed=3, n=3, ignore_eos=True, logprobs=2)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def used_blocks(llm: LLM) -> int:
    return llm.decoder.cache.pool.num_used


OPTIONS = [
    {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"dry_multiplier": 1.5, "dry_allowed_length": 1},
    {"typical_p": 0.7, "top_k": 50},
    {"min_tokens": 5, "bad_words": ["the", "a"], "logit_bias": {101: 5.0}},
    {"regex": "[a-z ]{5,20}!"},
    {"json_object": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_the_same_with_real_decoders_and_every_planner(llm: LLM, options: dict) -> None:
    """Kind: an option is applied to a draft's vocabulary, noise or tokens, or dropped by a planner."""
    other = tiny_file(seed=1)
    for temperature in (0.0, 0.9):
        params = SamplingParams(
            max_tokens=24, temperature=temperature, seed=5, n=2 if temperature else 1, logprobs=1, **options
        )
        expected = llm.generate([TEXT, "a b c d a b c"], params)
        for draft, num in (("auto", None), ("auto", 4), ("lookup", 3), (str(other), 3), ([str(tiny_file())], 2)):
            found = llm.with_drafts(draft, num_draft_tokens=num).generate([TEXT, "a b c d a b c"], params)
            assert [done.choices for done in found] == [done.choices for done in expected]
            assert [done.usage for done in found] == [done.usage for done in expected]
        few = llm.with_drafts(str(tiny_file()), num_draft_tokens=3, draft_vocab_size=200)
        assert [d.choices for d in few.generate([TEXT, "a b c d a b c"], params)] == [d.choices for d in expected]
    assert used_blocks(llm) == 0


def test_a_model_that_drafts_for_itself_keeps_to_the_options(llm: LLM) -> None:
    """Kind: drafts ignore penalties and masks, so that they are sure to be rejected."""
    itself = llm.with_drafts(str(tiny_file()), num_draft_tokens=3)
    for options in OPTIONS[:5]:
        for temperature in (0.0, 1.0):
            params = SamplingParams(max_tokens=24, temperature=temperature, seed=5, **options)
            speculation = itself.generate(TEXT, params)[0].speculation
            assert speculation.num_accepted_tokens >= speculation.num_draft_tokens - 3, options


def test_several_completions(llm: LLM) -> None:
    [done] = llm.generate(TEXT, SEVERAL)
    assert [choice.index for choice in done.choices] == [0, 1, 2]
    assert len({choice.token_ids for choice in done.choices}) == 3
    assert (done.text, done.token_ids, done.finish_reason) == (
        done.choices[0].text,
        done.choices[0].token_ids,
        done.choices[0].finish_reason,
    )
    [one] = llm.generate(TEXT, SamplingParams(max_tokens=16, temperature=1.2, seed=3, ignore_eos=True))
    assert one.token_ids == done.token_ids
    assert len(one.choices) == 1
    [fewer] = llm.generate(TEXT, SamplingParams(max_tokens=16, temperature=1.2, seed=3, ignore_eos=True, n=2))
    assert [c.token_ids for c in fewer.choices] == [c.token_ids for c in done.choices[:2]]
    assert llm.chat(CHAT, SEVERAL).choices[2].text
    first, second = llm.generate([TEXT, "x"], SEVERAL)
    assert first.choices == done.choices
    assert len(second.choices) == 3


def test_unseeded_completions_differ(llm: LLM) -> None:
    """Kind: all completions without a seed are drawn with one and the same noise."""
    params = SamplingParams(max_tokens=16, temperature=1.2, n=4, ignore_eos=True)
    texts = {choice.token_ids for _ in range(2) for choice in llm.generate(TEXT, params)[0].choices}
    assert len(texts) == 8


def test_the_best_of_several(llm: LLM) -> None:
    [all_] = llm.generate(TEXT, SamplingParams(max_tokens=8, temperature=1.2, seed=3, n=5, logprobs=0, ignore_eos=True))
    [best] = llm.generate(TEXT, SamplingParams(max_tokens=8, temperature=1.2, seed=3, n=2, best_of=5, ignore_eos=True))
    ranked = sorted(all_.choices, key=lambda choice: choice.cumulative_logprob or 0, reverse=True)
    assert [choice.token_ids for choice in best.choices] == [choice.token_ids for choice in ranked[:2]]
    assert best.usage == all_.usage
    with pytest.raises(OptionError, match="--best-of cannot be streamed"):
        llm.stream(TEXT, SamplingParams(temperature=1.0, best_of=2))


def test_a_stream_of_several_completions(llm: LLM) -> None:
    """Kind: pieces of several are mixed up, or the last of one ends the stream of all."""
    [done] = llm.generate(TEXT, SEVERAL)
    for streaming in (llm, llm.with_drafts("lookup", num_draft_tokens=4)):
        chunks = list(streaming.stream(TEXT, SEVERAL))
        for choice in done.choices:
            own = [chunk for chunk in chunks if chunk.index == choice.index]
            assert "".join(chunk.text for chunk in own) == choice.text
            assert tuple(token for chunk in own for token in chunk.token_ids) == choice.token_ids
            assert tuple(found for chunk in own for found in chunk.logprobs) == choice.logprobs
        assert [chunk.completion is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        assert chunks[-1].completion is not None
        assert chunks[-1].completion.choices == done.choices


def test_a_stream_of_several_that_is_left(llm: LLM) -> None:
    """Kind: only one of the completions is given back when a client goes."""
    for num_read in (1, 4):
        stream = llm.stream(TEXT, SEVERAL)
        for _ in range(num_read):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        deadline = time.perf_counter() + 10.0
        while llm._engine.has_work and time.perf_counter() < deadline:
            time.sleep(0.001)
        assert used_blocks(llm) == 0


def test_a_single_completion_streams_as_ever(llm: LLM) -> None:
    chunks = list(llm.stream(TEXT, SamplingParams(max_tokens=5, ignore_eos=True)))
    assert all(isinstance(chunk, Chunk) and chunk.index == 0 and chunk.logprobs == () for chunk in chunks)


def test_log_probabilities(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, temperature=0.7, seed=1, top_k=5, logprobs=3, prompt_logprobs=2)
    [done] = llm.generate(TEXT, params)
    prompt = llm.tokenizer.encode(TEXT)
    tokens = [*prompt, *done.token_ids]
    logits = llm.decoder.logits(tokens)[:, : llm.tokenizer.vocab_size].astype(np.float64)
    expected = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    assert done.logprobs is not None
    assert done.prompt_logprobs is not None
    for place, found in enumerate((*done.prompt_logprobs.tokens, *done.logprobs), start=1):
        assert found.token_id == tokens[place]
        assert found.logprob == pytest.approx(expected[place - 1, tokens[place]], abs=1e-9)
        assert [logprob for _, logprob in found.top] == pytest.approx(
            sorted(expected[place - 1], reverse=True)[: len(found.top)], abs=1e-9
        )
    assert done.cumulative_logprob == pytest.approx(sum(found.logprob for found in done.logprobs))


def test_the_json_object(llm: LLM) -> None:
    [plain] = llm.generate(TEXT, SamplingParams(max_tokens=4))
    assert not {"choices", "logprobs", "prompt_logprobs"} & plain.to_json_dict().keys()
    params = SamplingParams(max_tokens=4, temperature=1.0, seed=1, n=2, logprobs=1, prompt_logprobs=0, ignore_eos=True)
    [done] = llm.generate("é", params)
    found = json.loads(json.dumps(done.to_json_dict(), allow_nan=False))
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert [choice["text"] for choice in found["choices"]] == [choice.text for choice in done.choices]
    assert found["choices"][0]["logprobs"] == found["logprobs"]
    for choice, entry in zip(done.choices, found["choices"], strict=True):
        assert entry["cumulative_logprob"] == choice.cumulative_logprob
        assert [e["id"] for e in entry["logprobs"]["content"]] == list(choice.token_ids)
        for content in entry["logprobs"]["content"]:
            assert bytes(content["bytes"]) == llm.tokenizer.token_bytes(content["id"])
            assert content["token"] == bytes(content["bytes"]).decode("utf-8", "replace")
            assert len(content["top_logprobs"]) == 1
    first, second = found["prompt_logprobs"]  # two tokens, of a byte each
    assert first is None
    assert second["token"] == "\ufffd"
    assert second["top_logprobs"] == []


def test_echo(llm: LLM) -> None:
    plain, echoed = (SamplingParams(max_tokens=8, ignore_eos=True, echo=echo) for echo in (False, True))
    [done], [again] = llm.generate(TEXT, plain), llm.generate(TEXT, echoed)
    assert again.text == TEXT + done.text
    assert again.token_ids == done.token_ids
    assert again.usage == done.usage
    assert "".join(chunk.text for chunk in llm.stream(TEXT, echoed)) == again.text
    for ask in (llm.chat, llm.stream):
        with pytest.raises(OptionError, match="--echo needs a plain text"):
            ask(CHAT, echoed)


def test_a_stop_string_in_the_echo_is_none(llm: LLM) -> None:
    """Kind: the prompt that is echoed ends the text."""
    [done] = llm.generate(TEXT, SamplingParams(max_tokens=8, ignore_eos=True, echo=True, stop="other"))
    assert done.text.startswith(TEXT)
    assert done.usage.completion_tokens == 8


def test_forms_of_the_text(llm: LLM) -> None:
    [done] = llm.generate(TEXT, SamplingParams(max_tokens=50, regex="(yes|no)[.!]"))
    assert done.text in ("yes.", "yes!", "no.", "no!")
    assert done.finish_reason == "stop"
    schema = {"enum": ["one", "two"]}
    assert json.loads(llm.chat(CHAT, SamplingParams(json_schema=schema)).text) in ("one", "two")


def test_one_of_several_prompts_that_fails_is_told_and_leaves_nothing(llm: LLM) -> None:
    params = SamplingParams(max_tokens=5, regex="a", bad_words=("a",))
    with pytest.raises(OptionError, match="leave no token"):
        llm.generate([TEXT, "x"], params)
    with pytest.raises(OptionError, match="leave no token"):
        list(llm.stream(TEXT, params))
    assert used_blocks(llm) == 0
    assert llm.generate("x", SamplingParams(max_tokens=2, ignore_eos=True))[0].usage.completion_tokens == 2


def test_params_of_another_kind_are_refused(llm: LLM) -> None:
    for ask in (llm.generate, llm.stream, llm.astream, llm.stepwise):
        with pytest.raises(OptionError, match="SamplingParams"):
            ask(TEXT, {"temperature": 1})  # type: ignore[arg-type]
