"""What may be given as prompts, and as their sampling parameters: texts, ids, mappings, one or several."""

import json
from typing import Any

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import OptionError, UserError

TEXTS = ["and the other one and the other one and the", "the", "a b c d a b c", "x" * 40]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=24, temperature=0.8, seed=3, ignore_eos=True)


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def streamed(llm: LLM, prompt: Any) -> tuple[int, ...]:
    return tuple(token for chunk in llm.stream(prompt, SAMPLED) for token in chunk.token_ids)


def test_prompts_as_texts_ids_and_mappings_are_the_same(plain: LLM) -> None:
    ids = plain.tokenizer.encode(TEXTS[0])
    forms = [TEXTS[0], ids, tuple(ids), {"prompt": TEXTS[0]}, {"prompt_token_ids": ids}]
    [expected] = plain.generate(TEXTS[0], SAMPLED)
    for prompt in forms:
        assert plain.generate(prompt, SAMPLED)[0].token_ids == expected.token_ids
        assert streamed(plain, prompt) == expected.token_ids
    found = plain.generate(forms, SAMPLED)
    assert [done.token_ids for done in found] == [expected.token_ids] * 5
    assert {done.usage.prompt_tokens for done in found} == {len(ids)}
    assert plain.generate([], SAMPLED) == plain.generate((), []) == []


def test_each_prompt_may_have_params_of_its_own(plain: LLM) -> None:
    several = [
        GREEDY,
        SAMPLED,
        SamplingParams(max_tokens=3, n=2, temperature=1.0, seed=1),
        SamplingParams(max_tokens=1),
    ]
    found = plain.generate(TEXTS, several)
    assert [len(done.choices) for done in found] == [1, 1, 2, 1]
    for text, own, done in zip(TEXTS, several, found, strict=True):
        assert plain.generate(text, own)[0].choices == done.choices


@pytest.mark.parametrize(
    ("prompt", "part"),
    [
        ([True, False], "prompts must be"),
        ([1.5], "prompts must be"),
        ([["a"]], "prompts must be"),
        ({1, 2}, "prompts must be"),
        ([[]], "the prompt is empty"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt_token_ids": []}, "the prompt is empty"),
        ({"prompt": "a", "prompt_token_ids": [1]}, "either"),
        ({}, "either"),
        ({"prompt": "a", "multi_modal_data": 5}, "no other key"),
        ({"prompt": [1]}, '"prompt" must be a text'),
        ({"prompt_token_ids": "a"}, '"prompt_token_ids" must be a list of token ids'),
        ([1, 275], "token 275 is outside the vocabulary of 275"),
        ([-1], "token -1 is outside"),
    ],
)
def test_prompts_that_are_none(plain: LLM, prompt: Any, part: str) -> None:
    with pytest.raises(OptionError, match=part) as caught:
        plain.generate(prompt)
    assert "\n" not in str(caught.value)
    with pytest.raises(OptionError):
        plain.generate([TEXTS[0], prompt])
    assert not plain._engine.has_work


def test_a_stream_is_of_one_prompt(plain: LLM) -> None:
    for ask in (plain.stream, plain.astream, plain.stepwise):
        with pytest.raises(OptionError, match="this takes one prompt"):
            ask(["a", "b"])  # type: ignore[arg-type]


@pytest.mark.parametrize("params", [[GREEDY], [GREEDY] * 3, {}, "", 5, [GREEDY, {}], [GREEDY, None]])
def test_params_that_do_not_fit_the_prompts(plain: LLM, params: Any) -> None:
    with pytest.raises(OptionError, match="SamplingParams"):
        plain.generate(TEXTS[:2], params)
    assert not plain._engine.has_work


def test_conversations_as_clients_of_other_engines_send_them(plain: LLM) -> None:
    """Kind: content in parts, content that is null beside calls of tools, tools, variables, a message to continue."""
    source = (
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content or '' }}"
        "{% for call in m.tool_calls or [] %}{{ call.function.name }}{% endfor %}</s>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% if not enable_thinking %}no{% endif %}{% endif %}"
    )
    user = {"role": "user", "content": "a b"}
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f"}}
    for messages, options, written in (
        ([{"role": "user", "content": [{"type": "text", "text": "a b"}]}], {}, "<user>a b</s><assistant>no"),
        (
            [user, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "5"}],
            {},
            "<user>a b</s><assistant>f</s><tool>5</s><assistant>no",
        ),
        ([user], {"chat_template_kwargs": {"enable_thinking": True}}, "<user>a b</s><assistant>"),
        (
            [user, {"role": "assistant", "content": "so "}],
            {"continue_final_message": True},
            "<user>a b</s><assistant>so ",
        ),
        ([user], {"tools": [tool]}, f"{json.dumps([tool])}<user>a b</s><assistant>no"),
    ):
        ids = plain.tokenizer.encode_chat(messages, chat_template=source, **options)
        assert plain.tokenizer.decode(ids) == written
        done = plain.chat(messages, GREEDY, chat_template=source, **options)
        assert done.token_ids == plain.generate([ids], GREEDY)[0].token_ids
        [*_, last] = plain.stream(messages, GREEDY, chat_template=source, **options)
        assert last.completion is not None
        assert last.completion.token_ids == done.token_ids
        assert done.usage.prompt_tokens == len(ids)


def test_content_that_cannot_be_used_is_told_in_one_line(plain: LLM) -> None:
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    with pytest.raises(UserError, match="a part of type 'image_url' cannot be used") as caught:
        plain.chat(image, GREEDY, chat_template="{{ messages[0].content }}")
    assert "\n" not in str(caught.value)
