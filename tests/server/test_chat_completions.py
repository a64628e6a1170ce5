"""POST /v1/chat/completions through OpenAI's own client: every option of the engine, whole and as a stream."""

import json
from typing import Any

import openai
import pytest
from helpers.serving import Running
from openai import OpenAI

from foredraft.llm import LLM, SamplingParams

ASK: list[Any] = [{"role": "user", "content": "Name three colours of the rainbow."}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
                "required": ["city", "days"],
                "additionalProperties": False,
            },
        },
    }
]


@pytest.fixture(scope="module")
def client(server: Running) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def streamed(client: OpenAI, **request: Any) -> tuple[str, list[Any]]:
    chunks = list(client.chat.completions.create(stream=True, **request))
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), chunks


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0.8, "seed": 7},
        {"temperature": 0.8, "seed": 7, "top_p": 0.8, "extra_body": {"top_k": 20, "min_p": 0.05}},
        {"temperature": 0, "frequency_penalty": 0.5, "presence_penalty": 0.5},
        {"temperature": 0, "logit_bias": {"504": -100}},
        {"temperature": 0, "stop": ["\n", "green"]},
        {"temperature": 0, "extra_body": {"repetition_penalty": 1.3, "min_tokens": 5, "bad_words": ["red"]}},
        {"temperature": 0, "extra_body": {"draft": "none"}},
        {"temperature": 0, "extra_body": {"draft": ["lookup", "recycle"], "num_speculative_tokens": 4}},
    ],
)
def test_an_answer_is_that_of_the_engine(
    server: Running, served_llm: LLM, client: OpenAI, options: dict[str, Any]
) -> None:
    whole = client.chat.completions.create(model=server.model, messages=ASK, max_tokens=24, **options)
    text, _ = streamed(client, model=server.model, messages=ASK, max_tokens=24, **options)
    extra = {**options, **options.get("extra_body", {})}
    for name in ("extra_body", "draft", "num_speculative_tokens"):
        extra.pop(name, None)
    if "logit_bias" in extra:
        extra["logit_bias"] = {int(token): bias for token, bias in extra["logit_bias"].items()}
    expected = served_llm.chat(ASK, SamplingParams(max_tokens=24, **extra))
    choice = whole.choices[0]
    assert choice.message.content == text == expected.text
    assert choice.finish_reason == expected.finish_reason
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == expected.usage.prompt_tokens
    assert whole.usage.completion_tokens == len(expected.token_ids)


def test_several_answers_with_log_probabilities(server: Running, served_llm: LLM, client: OpenAI) -> None:
    options: dict[str, Any] = {"temperature": 0.9, "seed": 3, "n": 3, "max_tokens": 8}
    whole = client.chat.completions.create(model=server.model, messages=ASK, logprobs=True, top_logprobs=2, **options)
    expected = served_llm.chat(ASK, SamplingParams(logprobs=2, **options))
    assert [choice.message.content for choice in whole.choices] == [choice.text for choice in expected.choices]
    for choice, own in zip(whole.choices, expected.choices, strict=True):
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        told = [entry.logprob for entry in choice.logprobs.content]
        assert told == [found.logprob for found in own.logprobs or ()]
        assert all(len(entry.top_logprobs) == 2 for entry in choice.logprobs.content)
    chunks = list(
        client.chat.completions.create(
            model=server.model, messages=ASK, logprobs=True, top_logprobs=2, stream=True, **options
        )
    )
    for index, own in enumerate(expected.choices):
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices and chunk.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == own.text
        told = [entry.logprob for choice in mine if choice.logprobs for entry in choice.logprobs.content or ()]
        assert told == [found.logprob for found in own.logprobs or ()]
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == [own.finish_reason]


def test_usage_of_a_stream_comes_when_it_is_asked_for(server: Running, client: OpenAI) -> None:
    _, chunks = streamed(client, model=server.model, messages=ASK, max_tokens=4)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)
    _, chunks = streamed(client, model=server.model, messages=ASK, max_tokens=4, stream_options={"include_usage": True})
    assert [chunk for chunk in chunks if chunk.usage] == chunks[-1:]
    assert chunks[-1].usage.completion_tokens == 4
    assert chunks[-1].choices == []


def test_a_chunk_for_each_token_where_it_is_asked_for(server: Running, client: OpenAI) -> None:
    """Kind: several tokens of a round come at once, and a client that counts chunks counts wrong."""
    ask = [{"role": "user", "content": "Count: one two three four one two three four one two three four one two"}]
    request: dict[str, Any] = {"model": server.model, "messages": ask, "max_tokens": 40, "temperature": 0}
    draft = {"draft": "lookup", "num_speculative_tokens": 6, "include_drafts": True}
    together, chunks = streamed(client, **request, extra_body=draft)
    single, ones = streamed(client, **request, stream_options={"token_by_token": True}, extra_body=draft)
    assert single == together
    sizes = [len(c.choices[0].drafts["tokens"]) for c in chunks if hasattr(c.choices[0], "drafts")]
    assert max(sizes) > 1
    assert all(len(c.choices[0].drafts["tokens"]) == 1 for c in ones if hasattr(c.choices[0], "drafts"))


def test_a_stream_says_who_drafted_each_token(server: Running, client: OpenAI) -> None:
    ask = [{"role": "user", "content": "Repeat: the cat sat on the mat and the dog sat on the log."}]
    text, chunks = streamed(
        client,
        model=server.model,
        messages=ask,
        max_tokens=40,
        temperature=0,
        stream_options={"include_usage": True},
        extra_body={"include_drafts": True, "draft": "lookup", "num_speculative_tokens": 4},
    )
    told = [chunk.choices[0].drafts for chunk in chunks if chunk.choices and hasattr(chunk.choices[0], "drafts")]
    tokens = [token for drafts in told for token in drafts["tokens"]]
    assert "".join(token["text"] for token in tokens) == text
    spec = chunks[-1].speculation
    assert sum(drafts["num_draft_tokens"] for drafts in told) == spec["num_draft_tokens"]
    assert sum(token["source"] == "lookup" for token in tokens) == spec["num_accepted_tokens"] > 0
    assert chunks[-1].timings["draft_n_accepted"] == spec["num_accepted_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_has_the_form_that_is_asked_for(server: Running, client: OpenAI, *, stream: bool) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 64, "response_format": form}
    if stream:
        text, _ = streamed(client, **request)
    else:
        text = client.chat.completions.create(**request).choices[0].message.content or ""
    found = json.loads(text)
    assert isinstance(found["ok"], bool)
    assert 0 <= found["n"] <= 9
    [choice] = client.chat.completions.create(
        model=server.model, messages=ASK, max_tokens=40, extra_body={"regex": "[a-c]{5}"}
    ).choices
    assert choice.message.content is not None
    assert len(choice.message.content) == 5


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_tool_that_has_to_be_called_is_called(server: Running, client: OpenAI, choice: Any) -> None:
    request: dict[str, Any] = {
        "model": server.tools_model,
        "messages": [{"role": "user", "content": "How is the weather in Rome for the next 3 days?"}],
        "tools": WEATHER,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 96,
        "temperature": 0,
    }
    [whole] = client.chat.completions.create(**request).choices
    assert whole.message.tool_calls is not None
    [call] = whole.message.tool_calls
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city", "days"}
    assert whole.finish_reason == ("tool_calls" if choice == "required" else "stop")
    _, chunks = streamed(client, **request)
    deltas = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [call.function.name for call in deltas if call.function.name] == ["get_weather"]
    assert len({call.id for call in deltas if call.id}) == 1
    assert "".join(call.function.arguments for call in deltas) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_the_result_of_a_call_is_read(server: Running, served_llm: LLM, client: OpenAI) -> None:
    """Kind: arguments that come as a text are written as a text within a text by the template."""
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    messages: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Weather in Rome?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]
    whole = client.chat.completions.create(
        model=server.tools_model, messages=messages, tools=WEATHER, max_tokens=8, temperature=0
    )
    from helpers.serving import HERMES

    parsed = {**call, "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}
    as_templates_know_them = [{**messages[0], "role": "system"}, messages[1], {**messages[2], "tool_calls": [parsed]}]
    expected = served_llm.chat(
        [*as_templates_know_them, messages[3]], SamplingParams(max_tokens=8), tools=WEATHER, chat_template=HERMES
    )
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == expected.usage.prompt_tokens
    assert whole.choices[0].message.content == expected.text.strip() or expected.text


def test_a_prediction_is_drafted_from(server: Running, client: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 32, "temperature": 0}
    said = client.chat.completions.create(**request).choices[0].message.content
    again = client.chat.completions.create(**request, prediction={"type": "content", "content": said})
    assert again.choices[0].message.content == said
    assert again.usage is not None
    details = again.usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens or 0) > 10


WRONG: list[tuple[dict[str, Any], str, str | None]] = [
    ({"temperature": -1}, "greater than or equal to 0", "temperature"),
    ({"temperature": "hot"}, "valid number", "temperature"),
    ({"extra_body": {"top_p": 0}}, "top_p must be above 0", "top_p"),
    ({"n": 2, "temperature": 0}, "n above 1 needs a temperature above 0", "n"),
    ({"n": 100}, "at most 64", "n"),
    ({"max_tokens": 0}, "greater than or equal to 1", "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "not both", "max_tokens"),
    ({"top_logprobs": 3}, "needs logprobs", "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "less than or equal to 20", "top_logprobs"),
    ({"logit_bias": {"999999": 1}}, "outside the vocabulary", "logit_bias"),
    ({"logit_bias": {"x": 1}}, "logit_bias must be", "logit_bias"),
    ({"stop": [""]}, "stop must be", "stop"),
    ({"messages": []}, "at least 1 item", "messages"),
    ({"messages": [{"role": "user"}]}, "message 1 has no content", None),
    ({"messages": [{"content": "x"}]}, "message 1 has no role", None),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "parts of text only",
        None,
    ),
    ({"response_format": {"type": "json_schema"}}, "needs", "response_format"),
    ({"response_format": {"type": "json_object"}, "extra_body": {"regex": "a"}}, "cannot be combined", None),
    ({"extra_body": {"regex": "("}}, "regex", "regex"),
    ({"extra_body": {"grammar": "nonsense"}}, "grammar", "grammar"),
    ({"tools": WEATHER}, "has no place for tools", None),
    ({"tool_choice": "required"}, "tool_choice needs tools", "tool_choice"),
    ({"extra_body": {"draft": "/etc/passwd"}}, "not offered by this server", "draft"),
    ({"extra_body": {"num_speculative_tokens": 65}}, "less than or equal to 64", "num_speculative_tokens"),
    ({"extra_body": {"acceptance": "nonsense"}}, "acceptance", "acceptance"),
    ({"extra_body": {"no_such_thing": 1}}, "Unrecognized request argument supplied: no_such_thing", "no_such_thing"),
    ({"messages": [{"role": "user", "content": "x " * 9000}]}, "context holds", "messages"),
]


@pytest.mark.parametrize(("wrong", "message", "param"), WRONG)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_is_said_before_anything_is_sent(
    server: Running, client: OpenAI, wrong: dict[str, Any], message: str, param: str | None, *, stream: bool
) -> None:
    """Kind: an unsupported combination is reported inside a stream that began with 200."""
    request = {"model": server.model, "messages": ASK, "max_tokens": 4, **wrong}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(stream=stream, **request)  # type: ignore[call-overload]
    assert message in caught.value.message
    assert "\n" not in str(caught.value.body)
    assert caught.value.param == param or param is None
    assert caught.value.type == "invalid_request_error"


def test_a_model_that_is_not_there(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="smollm2-135m") as caught:
        client.chat.completions.create(model="gpt-4o", messages=ASK)
    assert caught.value.code == "model_not_found"


def test_fields_that_mean_nothing_here_are_taken(server: Running, client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=server.model,
        messages=ASK,
        max_completion_tokens=3,
        user="me",
        store=False,
        metadata={"a": "b"},
        service_tier="auto",
    )
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 3


@pytest.mark.parametrize("length", range(1, 31))
def test_nothing_of_a_short_answer_is_held_back_for_ever(server: Running, client: OpenAI, length: int) -> None:
    """Kind: the tail that a detokenizer or a stop string keeps back is never sent: short answers come out empty."""
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 160, "temperature": 0}
    request |= {"stop": ["never said"], "extra_body": {"regex": f"[a-zéü👋 ]{{{length}}}"}}
    text, _ = streamed(client, **request)
    assert len(text) == length
    assert client.chat.completions.create(**request).choices[0].message.content == text
