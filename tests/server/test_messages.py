"""POST /v1/messages through Anthropic's own client: answers as by /v1/chat/completions, in Anthropic's words."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import anthropic
import pydantic
import pytest
from anthropic import Anthropic
from helpers.serving import HERMES, Running
from helpers.thinking import thinking
from openai import OpenAI

from foredraft.llm import LLM, SamplingParams
from foredraft.server.anthropic_messages import tool_input
from foredraft.server.generation import Generation

ASK: list[Any] = [{"role": "user", "content": "Name three colours of the rainbow."}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER: list[Any] = [{"name": "get_weather", "description": "The weather of a city.", "input_schema": PARAMETERS}]
GREEDY: dict[str, Any] = {"temperature": 0}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def chat(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def thinker(smollm2_path: Path) -> Iterator[Anthropic]:
    with (
        thinking(smollm2_path) as running,
        Anthropic(base_url=running.url, api_key="none", max_retries=0) as client,
    ):
        yield client


def streamed(client: Anthropic, **request: Any) -> Any:
    """The message that the client puts together from a stream."""
    with client.messages.stream(**request) as stream:
        return stream.get_final_message()


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_an_answer_is_that_of_chat_completions(server: Running, client: Anthropic, chat: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 24}
    whole = client.messages.create(**request, extra_body=GREEDY)
    message = streamed(client, **request, extra_body=GREEDY)
    expected = chat.chat.completions.create(**request, temperature=0)
    assert text_of(whole) == text_of(message) == expected.choices[0].message.content
    assert [block.type for block in whole.content] == [block.type for block in message.content] == ["text"]
    for found in (whole, message):
        assert (found.type, found.role, found.model, found.id[:4]) == ("message", "assistant", server.model, "msg_")
        assert (found.stop_reason, found.stop_sequence) == ("max_tokens", None)
        assert expected.usage is not None
        num_prompt = found.usage.input_tokens + (found.usage.cache_read_input_tokens or 0)
        assert num_prompt == expected.usage.prompt_tokens
        assert found.usage.output_tokens == 24


def test_what_is_in_the_cache_is_counted_apart(server: Running, client: Anthropic) -> None:
    ask: list[Any] = [{"role": "user", "content": "Tell me about lighthouses. " * 40}]
    request: dict[str, Any] = {"model": server.model, "messages": ask, "max_tokens": 1}
    first = client.messages.create(**request).usage
    again = client.messages.create(**request).usage
    assert again.cache_read_input_tokens
    assert first.input_tokens > again.input_tokens
    counted = client.messages.count_tokens(model=server.model, messages=ask).input_tokens
    assert again.input_tokens + again.cache_read_input_tokens == counted


def blocks(*texts: str) -> list[Any]:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}} for text in texts]


USE = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome", "days": 1}}
CALLED = {"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": USE["input"]}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "toolu_1"}
HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}


def as_tool(content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "toolu_1", "name": "get_weather", "content": content}


@pytest.mark.parametrize(
    ("asked", "messages"),
    [
        ({"system": "Be brief.", "messages": [HELLO]}, [{"role": "system", "content": "Be brief."}, HELLO]),
        (
            {"system": blocks("Be brief.", "Be kind."), "messages": [HELLO]},
            [{"role": "system", "content": "Be brief.\nBe kind."}, HELLO],
        ),
        ({"messages": [{"role": "user", "content": blocks("a", "b")}]}, [{"role": "user", "content": "a\nb"}]),
        ({"messages": [HELLO, HELLO]}, [{"role": "user", "content": "Hello\nHello"}]),
        (
            {"messages": [HELLO, {"role": "system", "content": "Now rhyme."}, HELLO]},
            [HELLO, {"role": "system", "content": "Now rhyme."}, HELLO],
        ),
        (
            {"messages": [HELLO, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT]}]},
            [HELLO, {"role": "assistant", "tool_calls": [CALLED]}, as_tool("")],
        ),
        (
            {
                "messages": [
                    HELLO,
                    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, USE]},
                    {
                        "role": "user",
                        "content": [
                            {**RESULT, "content": blocks("no", "sun"), "is_error": True},
                            {"type": "text", "text": "So?"},
                        ],
                    },
                ]
            },
            [
                HELLO,
                {"role": "assistant", "content": "I look.", "tool_calls": [CALLED]},
                as_tool("Error: no\nsun"),
                {"role": "user", "content": "So?"},
            ],
        ),
    ],
)
def test_a_conversation_reads_as_that_of_chat_completions(
    server: Running, served_llm: LLM, client: Anthropic, asked: dict[str, Any], messages: list[Any]
) -> None:
    expected = served_llm.tokenizer.encode_chat(messages, chat_template=HERMES)
    assert client.messages.count_tokens(model=server.tools_model, **asked).input_tokens == len(expected)
    whole = client.messages.create(model=server.tools_model, max_tokens=6, extra_body=GREEDY, **asked)
    [own] = served_llm.generate([{"prompt_token_ids": expected}], SamplingParams(max_tokens=6))
    assert text_of(whole) == own.text


def test_the_answer_goes_on_with_what_was_begun_for_it(server: Running, client: Anthropic, chat: OpenAI) -> None:
    messages = [*ASK, {"role": "assistant", "content": "The three colours I would name are"}]
    request: dict[str, Any] = {"model": server.model, "messages": messages, "max_tokens": 8}
    whole = client.messages.create(**request, extra_body=GREEDY)
    more = {"continue_final_message": True}
    expected = chat.chat.completions.create(**request, temperature=0, extra_body=more)
    assert text_of(whole) == text_of(streamed(client, **request, extra_body=GREEDY))
    assert text_of(whole) == expected.choices[0].message.content


def test_the_stop_string_that_ended_it_is_told(server: Running, client: Anthropic, chat: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 24}
    text = chat.chat.completions.create(**request, temperature=0).choices[0].message.content or ""
    assert len(text) > 40
    cases: list[tuple[list[str], str]] = [
        ([text[20:24]], text[20:24]),
        (["nowhere", text[30:33], text[10:14]], text[10:14]),
        ([text[10:20], text[10:13]], text[10:13]),  # the shorter is complete first
        ([text[11:14], text[10:14]], text[10:14]),  # of those complete at once the longest counts
        ([text[0]], text[0]),
        ([text + "..."], ""),
    ]
    for stops, ended in cases:
        whole = client.messages.create(**request, stop_sequences=stops, extra_body=GREEDY)
        message = streamed(client, **request, stop_sequences=stops, extra_body=GREEDY)
        for found in (whole, message):
            assert text_of(found) == (text[: text.index(ended)] if ended else text)
            assert (found.stop_reason, found.stop_sequence) == (
                ("stop_sequence", ended) if ended else ("max_tokens", None)
            )


def test_a_turn_that_ends_by_itself(server: Running, client: Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "What is 2+2?"}]
    request: dict[str, Any] = {"model": server.model, "messages": messages, "max_tokens": 64}
    for stops in ([], ["no such text"]):
        whole = client.messages.create(**request, stop_sequences=stops, extra_body=GREEDY)
        assert (whole.stop_reason, whole.stop_sequence) == ("end_turn", None)


@pytest.mark.parametrize("choice", ["any", "tool"])
def test_a_tool_that_has_to_be_called_is_called(server: Running, client: Anthropic, choice: str) -> None:
    request: dict[str, Any] = {
        "model": server.tools_model,
        "messages": [{"role": "user", "content": "How is the weather in Rome for the next 3 days?"}],
        "tools": WEATHER,
        "tool_choice": {
            "type": choice,
            "disable_parallel_tool_use": True,
            **({"name": "get_weather"} if choice == "tool" else {}),
        },
        "max_tokens": 96,
        "extra_body": GREEDY,
    }
    whole = client.messages.create(**request)
    message = streamed(client, **request)
    [call], [again] = whole.content, message.content
    assert call.type == again.type == "tool_use"
    assert call.name == again.name == "get_weather"
    assert call.input == again.input
    assert set(call.input) == {"city", "days"}
    assert call.id.startswith("toolu_")
    assert call.id != again.id
    assert whole.stop_reason == message.stop_reason == "tool_use"


def test_arguments_that_break_off_are_none(server: Running, client: Anthropic) -> None:
    """Kind: half of the arguments looks like all of them."""
    whole = client.messages.create(
        model=server.tools_model,
        messages=ASK,
        tools=WEATHER,
        tool_choice={"type": "tool", "name": "get_weather"},
        max_tokens=4,
    )
    [call] = whole.content
    assert call.type == "tool_use"
    assert call.input == {}
    assert whole.stop_reason == "max_tokens"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ('{"a": [1, "b"]}', {"a": [1, "b"]}),
        ("", {}),
        ('{"a": ', {}),
        ("[1]", {}),
        ('{"a": NaN}', {}),
        ('{"a": 1e999}', {}),
        (r'{"a": "\ud800"}', {}),
        ('{"a": ' * 100_000, {}),
    ],
)
def test_arguments_are_an_object_that_can_be_sent(arguments: str, found: Any) -> None:
    """Kind: what Python reads of a model's JSON cannot be written again, and the whole answer is lost."""
    assert tool_input(arguments) == found


def test_tools_that_must_not_be_called_are_not_offered(server: Running, client: Anthropic, chat: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.tools_model, "messages": ASK, "max_tokens": 8}
    whole = client.messages.create(**request, tools=WEATHER, tool_choice={"type": "none"}, extra_body=GREEDY)
    expected = chat.chat.completions.create(**request, temperature=0)
    assert text_of(whole) == expected.choices[0].message.content
    offered = client.messages.create(**request, tools=WEATHER, extra_body=GREEDY)
    assert offered.usage.input_tokens + (offered.usage.cache_read_input_tokens or 0) > 60


def test_thoughts_text_and_calls_are_blocks_of_their_own(thinker: Anthropic) -> None:
    request: dict[str, Any] = {
        "model": "thinks",
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": WEATHER,
        "max_tokens": 120,
        "extra_body": {"temperature": 0.5, "top_k": 50},
    }
    whole, message = thinker.messages.create(**request), streamed(thinker, **request)
    for found in (whole, message):
        thought, text, *calls = found.content
        assert [block.type for block in found.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert thought.thinking
        assert set(thought.thinking + text.text) <= set("abcdefghijklmnopqrstuvwxyz ")
        assert [set(call.input) for call in calls] == [{"city", "days"}] * 2
        assert calls[0].id != calls[1].id
        assert found.stop_reason == "tool_use"
    # And they can be given back as they came.
    said: list[Any] = [*request["messages"], {"role": "assistant", "content": whole.content}]
    results: list[Any] = [
        {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in whole.content[2:]
    ]
    counted = thinker.messages.count_tokens(model="thinks", messages=[*said, {"role": "user", "content": results}])
    assert counted.input_tokens > 30


def test_how_much_is_thought_where_the_template_knows_that(
    server: Running, client: Anthropic, thinker: Anthropic
) -> None:
    def count(client: Anthropic, model: str, **how: Any) -> int:
        return client.messages.count_tokens(model=model, messages=ASK, **how).input_tokens

    plain = count(thinker, "thinks")
    assert count(thinker, "thinks", thinking={"type": "enabled", "budget_tokens": 2000}) > plain
    assert count(thinker, "thinks", thinking={"type": "adaptive"}) > plain
    assert count(thinker, "thinks", thinking={"type": "disabled"}) == plain
    assert count(thinker, "thinks", output_config={"effort": "high"}) > plain
    how: dict[str, Any] = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}
    assert count(client, server.model, **how) == count(client, server.model)


def test_an_answer_that_the_context_has_no_room_for(thinker: Anthropic) -> None:
    ask: list[Any] = [{"role": "user", "content": "word " * 235}]
    whole = thinker.messages.create(model="thinks", messages=ask, max_tokens=100)
    assert whole.stop_reason == "model_context_window_exceeded"
    assert whole.usage.input_tokens + whole.usage.output_tokens == 256


def test_the_form_that_is_asked_for(server: Running, client: Anthropic) -> None:
    class Answer(pydantic.BaseModel):
        ok: bool
        colour: Literal["crimson", "teal"]

    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 48, "output_format": Answer}
    assert isinstance(client.messages.parse(**request).parsed_output, Answer)
    assert isinstance(streamed(client, **request).parsed_output, Answer)


def test_a_stream_comes_in_order(server: Running) -> None:
    """As raw events: each has its name, and blocks do not overlap."""
    body = {"model": server.model, "messages": ASK, "max_tokens": 6, "temperature": 0, "stream": True}
    with contextlib.closing(server.connection()) as connection:
        connection.request("POST", "/v1/messages", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.read().decode().split("\n\n")
    events = [line.split("\n") for line in lines if line.startswith("event:")]
    kinds = [name.removeprefix("event: ") for name, _ in events]
    data = [json.loads(value.removeprefix("data: ")) for _, value in events]
    assert [one["type"] for one in data] == kinds
    assert kinds[:3] == ["message_start", "ping", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[3:-3]) == {"content_block_delta"}
    assert data[0]["message"]["usage"]["output_tokens"] == 0
    assert data[0]["message"]["content"] == []
    assert data[-2]["usage"]["output_tokens"] == 6
    assert {"timings", "speculation"} <= data[-2].keys()


def test_how_is_drafted_changes_no_text(server: Running, client: Anthropic) -> None:
    request: dict[str, Any] = {"model": server.model, "messages": ASK, "max_tokens": 12}
    plain = client.messages.create(**request, extra_body={**GREEDY, "draft": "none"})
    lookup = client.messages.create(**request, extra_body={**GREEDY, "draft": "lookup", "num_speculative_tokens": 3})
    assert text_of(plain) == text_of(lookup)
    assert plain.speculation["methods"] == ["none"]
    assert lookup.speculation["methods"] == ["lookup"]


def test_a_failure_within_a_stream(
    server: Running, client: Anthropic, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(generation: Generation) -> Any:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(Generation, "chunks", fail)
    with pytest.raises(anthropic.APIStatusError, match="internal error") as caught:
        streamed(client, model=server.model, messages=ASK, max_tokens=4)
    # The answer sends whoever runs the server to its log.
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "api_error", "message": "internal error of the server; its log says more"},
    }
    with pytest.raises(anthropic.InternalServerError, match="internal error"):
        client.messages.create(model=server.model, messages=ASK, max_tokens=4)
