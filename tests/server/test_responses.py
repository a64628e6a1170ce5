"""POST /v1/responses through OpenAI's own client: answers as by /v1/chat/completions, in items."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import openai
import pydantic
import pytest
from helpers.serving import HERMES, Running
from helpers.thinking import thinking
from openai import OpenAI
from openai.types.responses import Response

from foredraft.llm import LLM, SamplingParams
from foredraft.server.generation import Generation

ASK = "Name three colours of the rainbow."
MESSAGES: list[Any] = [{"role": "user", "content": ASK}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather of a city.",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    }
]


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def thinker(smollm2_path: Path) -> Iterator[OpenAI]:
    with (
        thinking(smollm2_path) as running,
        OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def streamed(client: OpenAI, **request: Any) -> tuple[Response, list[Any]]:
    """The response at the end of a stream, and all events."""
    events = list(client.responses.create(stream=True, **request))
    return events[-1].response, events


def test_an_answer_is_that_of_chat_completions(server: Running, client: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.model, "temperature": 0, "input": ASK, "max_output_tokens": 24}
    whole = client.responses.create(**request)
    ended, events = streamed(client, **request)
    expected = client.chat.completions.create(model=server.model, messages=MESSAGES, temperature=0, max_tokens=24)
    assert whole.output_text == ended.output_text == expected.choices[0].message.content
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == whole.output_text
    assert events[-1].type == "response.incomplete"
    for found in (whole, ended):
        assert (found.object, found.model, found.id[:5]) == ("response", server.model, "resp_")
        assert found.status == "incomplete"
        assert found.incomplete_details is not None
        assert found.incomplete_details.reason == "max_output_tokens"
        assert found.error is None
        assert [item.type for item in found.output] == ["message"]
        assert found.usage is not None
        assert expected.usage is not None
        assert found.usage.input_tokens == expected.usage.prompt_tokens
        assert found.usage.output_tokens == 24
        assert found.usage.total_tokens == found.usage.input_tokens + 24
        assert found.usage.output_tokens_details.reasoning_tokens == 0
        # What a client leaves out is told as it is: it may be another one than it thinks.
        assert (found.temperature, found.top_p) == (0, 1)


def test_an_answer_that_ends_by_itself(server: Running, client: OpenAI) -> None:
    request: dict[str, Any] = {"model": server.model, "temperature": 0, "input": "What is 2+2?"}
    whole = client.responses.create(**request, max_output_tokens=64)
    with client.responses.stream(**request, max_output_tokens=64) as stream:
        ended = stream.get_final_response()
    assert whole.status == ended.status == "completed"
    assert whole.incomplete_details is None
    assert whole.output_text == ended.output_text
    assert whole.usage is not None
    assert whole.usage.output_tokens < 64
    assert client.responses.create(model=server.model, input="Hi", max_output_tokens=2).temperature == 1


HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}
ARGUMENTS = {"city": "Rome", "days": 1}
CALLED: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "name": "get_weather"}
CALLED["arguments"] = json.dumps(ARGUMENTS)
AS_CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ARGUMENTS}}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
AS_TOOL = {"role": "tool", "tool_call_id": "call_1", "name": "get_weather", "content": "sunny"}


@pytest.mark.parametrize(
    ("asked", "messages"),
    [
        ({"input": "Hello", "instructions": "Be brief."}, [{"role": "system", "content": "Be brief."}, HELLO]),
        (
            {"input": [{"role": "developer", "content": "Be kind."}, HELLO], "instructions": "Be brief."},
            [{"role": "system", "content": "Be brief.\nBe kind."}, HELLO],
        ),
        (
            {
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                    {
                        "type": "message",
                        "id": "msg_1",
                        "status": "completed",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}],
                    },
                    HELLO,
                ]
            },
            [HELLO, {"role": "assistant", "content": "Hi."}, HELLO],
        ),
        (
            {
                "input": [
                    HELLO,
                    {
                        "type": "reasoning",
                        "id": "rs_1",
                        "summary": [],
                        "content": [{"type": "reasoning_text", "text": "hm"}],
                    },
                    {"role": "assistant", "content": "I look."},
                    CALLED,
                    OUTPUT,
                    {"role": "user", "content": "So?"},
                ]
            },
            [
                HELLO,
                {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [AS_CALL]},
                AS_TOOL,
                {"role": "user", "content": "So?"},
            ],
        ),
        (
            {"input": [HELLO, CALLED, {**OUTPUT, "output": [{"type": "input_text", "text": "sunny"}]}]},
            [HELLO, {"role": "assistant", "tool_calls": [AS_CALL]}, AS_TOOL],
        ),
    ],
)
def test_a_conversation_reads_as_that_of_chat_completions(
    server: Running, served_llm: LLM, client: OpenAI, asked: dict[str, Any], messages: list[Any]
) -> None:
    expected = served_llm.chat(messages, SamplingParams(max_tokens=6), chat_template=HERMES)
    whole = client.responses.create(model=server.tools_model, max_output_tokens=6, temperature=0, **asked)
    assert whole.usage is not None
    assert whole.usage.input_tokens == expected.usage.prompt_tokens
    assert whole.output_text == expected.text


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_tool_that_has_to_be_called_is_called(server: Running, client: OpenAI, choice: Any) -> None:
    request: dict[str, Any] = {
        "model": server.tools_model,
        "input": "How is the weather in Rome for the next 3 days?",
        "tools": WEATHER,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_output_tokens": 96,
        "temperature": 0,
    }
    whole = client.responses.create(**request)
    ended, events = streamed(client, **request)
    [call], [again] = whole.output, ended.output
    assert call.type == again.type == "function_call"
    assert call.name == "get_weather"
    assert call.call_id.startswith("call_")
    assert set(json.loads(call.arguments)) == {"city", "days"}
    assert call.arguments == again.arguments
    deltas = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    assert "".join(deltas) == again.arguments
    assert whole.status == ended.status == "completed"
    # What came of it goes back with the call as it was.
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    more = client.responses.create(
        model=server.tools_model,
        input=[HELLO, *whole.output, output],
        max_output_tokens=4,
    )
    assert more.output_text
    assert whole.tool_choice == "required" if choice == "required" else not isinstance(whole.tool_choice, str)
    assert whole.tools[0].type == "function"
    assert whole.parallel_tool_calls is False


CALL_EVENTS = (
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
)


def test_reasoning_text_and_calls_are_items_of_their_own(thinker: OpenAI) -> None:
    request: dict[str, Any] = {
        "model": "thinks",
        "input": "Weather?",
        "tools": WEATHER,
        "max_output_tokens": 120,
        "temperature": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    whole = thinker.responses.create(**request)
    ended, events = streamed(thinker, **request)
    for found in (whole, ended):
        thought, _, *calls = found.output
        assert [item.type for item in found.output] == ["reasoning", "message", "function_call", "function_call"]
        assert thought.content
        assert set(thought.content[0].text + found.output_text) <= set("abcdefghijklmnopqrstuvwxyz ")
        assert [set(json.loads(call.arguments)) for call in calls] == [{"city", "days"}] * 2
        assert [item.status for item in found.output] == ["completed"] * 4
        assert found.usage is not None
        assert 0 < found.usage.output_tokens_details.reasoning_tokens < found.usage.output_tokens
    kinds = [event.type for event in events]
    assert [kind for place, kind in enumerate(kinds) if not place or kinds[place - 1] != kind] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        *CALL_EVENTS,
        *CALL_EVENTS,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == ended.output
    texts = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(texts) == ended.output[0].content[0].text
    again = thinker.responses.create(model="thinks", input=[HELLO, *whole.output[:2], HELLO], max_output_tokens=2)
    assert again.usage is not None
    assert again.usage.input_tokens > 20


def test_how_much_is_thought_where_the_template_knows_that(thinker: OpenAI) -> None:
    def count(**how: Any) -> int:
        usage = thinker.responses.create(model="thinks", input=ASK, max_output_tokens=1, **how).usage
        assert usage is not None
        return usage.input_tokens

    assert count(reasoning={"effort": "high"}) > count() == count(reasoning={"effort": "none"})


def test_the_form_that_is_asked_for(server: Running, client: OpenAI) -> None:
    class Answer(pydantic.BaseModel):
        ok: bool
        colour: Literal["crimson", "teal"]

    request: dict[str, Any] = {"model": server.model, "input": ASK, "max_output_tokens": 48}
    assert isinstance(client.responses.parse(**request, text_format=Answer).output_parsed, Answer)
    with client.responses.stream(**request, text_format=Answer) as stream:
        assert isinstance(stream.get_final_response().output_parsed, Answer)
    whole = client.responses.create(**request, text={"format": {"type": "json_object"}})
    assert whole.output_text.startswith("{")
    assert whole.text is not None
    assert whole.text.format is not None
    assert whole.text.format.type == "json_object"


def test_the_request_is_told_again(server: Running, client: OpenAI) -> None:
    whole = client.responses.create(
        model=server.model,
        input="Hi",
        instructions="Be brief.",
        max_output_tokens=2,
        top_p=0.5,
        metadata={"a": "b"},
        user="me",
        store=True,
        truncation="disabled",
        prompt_cache_key="k",
        safety_identifier="s",
        service_tier="auto",
        text={"verbosity": "low"},
        stream_options={"include_obfuscation": False},
        background=False,
        extra_body={"previous_response_id": None, "draft": "none"},
    )
    assert (whole.instructions, whole.max_output_tokens, whole.top_p) == ("Be brief.", 2, 0.5)
    assert (whole.metadata, whole.user, whole.prompt_cache_key) == ({"a": "b"}, "me", "k")
    assert whole.text is not None
    assert whole.text.verbosity == "low"
    assert whole.speculation["methods"] == ["none"]
    assert whole.timings["predicted_n"] > 0


def test_a_failure_within_a_stream(server: Running, client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(generation: Generation) -> Any:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(Generation, "chunks", fail)
    response, events = streamed(client, model=server.model, input=ASK, max_output_tokens=4)
    assert [event.type for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert [event.sequence_number for event in events] == [0, 1, 2]
    assert response.status == "failed"
    assert response.error is not None
    assert (response.error.code, response.error.message[:14]) == ("server_error", "internal error")
    with pytest.raises(openai.InternalServerError, match="internal error"):
        client.responses.create(model=server.model, input=ASK, max_output_tokens=4)
