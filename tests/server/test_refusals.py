"""What /v1/messages and /v1/responses refuse: in the words and shapes that their clients know."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from helpers.serving import Running
from openai import OpenAI

HELLO: dict[str, Any] = {"role": "user", "content": "Hello"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
SCHEMA = {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}


@pytest.fixture(scope="module")
def claude(server: Running) -> Iterator[Anthropic]:
    with Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


def answered(*blocks: Any) -> dict[str, Any]:
    return {"messages": [HELLO, {"role": "assistant", "content": list(blocks)}]}


MESSAGES: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages: List should have at least 1 item"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: Input should be"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content: Input should be"),
    (user(IMAGE), "messages.0.content: a block of type 'image' cannot be used here, only text"),
    (user({"type": "document", "source": {}}), "a block of type 'document' cannot be used here"),
    (user({"text": "x"}), "a block of type None cannot be used here"),
    (user({"type": ["text"], "text": "x"}), "a block of type"),
    (user({"type": "text"}), "the field messages.0.content.0.text.text is missing"),
    (user({"type": "text", "text": "x", "no_such": 1}), "supplied: messages.0.content.0.text.no_such"),
    (user(RESULT), "the result of a call has the id 't', but no call before it has"),
    (user({**RESULT, "content": [IMAGE]}), "messages.0.content.0.tool_result.content: a block of type 'image'"),
    (user(USE), "messages.0: one of the role user holds no tool_use"),
    (answered(RESULT), "messages.1: one of the role assistant holds no tool_result"),
    (answered(USE), "the last message is the model's own"),
    (answered(), "the last message is the model's own"),
    (answered({"type": "redacted_thinking", "data": "x"}), "a block of type 'redacted_thinking' cannot be used"),
    (answered({**USE, "input": "{}"}), "messages.1.content.0.tool_use.input: Input should be a valid dictionary"),
    ({"system": [IMAGE]}, "system: a block of type 'image' cannot be used here, only text"),
    ({"max_tokens": 0}, "max_tokens: Input should be greater than or equal to 1"),
    ({"max_tokens": "5"}, "max_tokens: Input should be a valid integer"),
    ({"temperature": -1}, "temperature: Input should be greater than or equal to 0"),
    ({"top_p": 0}, "top_p must be above 0"),
    ({"stop_sequences": [""]}, "stop_sequences.0: String should have at least 1 character"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "a tool of type 'web_search_20250305'"),
    ({"tools": [{"name": "f"}]}, "the field tools.0.input_schema is missing"),
    ({"tools": TOOLS}, "the model's chat template has no place for tools"),
    ({"tool_choice": {"type": "any"}}, "tool_choice needs tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, 'takes a name with the type "tool"'),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "g"}}, "names 'g', which is not among the tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "any"}, "output_config": SCHEMA}, "cannot be combined"),
    ({"thinking": {"type": "between_tools"}}, "thinking.type: Input should be"),
    ({"output_config": SCHEMA}, "json_schema cannot be used: Invalid type: nonsense"),
    ({"container": "x"}, "Unrecognized request argument supplied: container"),
    ({"draft": "/etc/passwd"}, "not offered by this server"),
    ({"messages": [{"role": "user", "content": "x " * 9000}]}, "the context holds 8192"),
]


@pytest.mark.parametrize(("wrong", "message"), MESSAGES)
def test_messages_say_what_is_wrong(server: Running, claude: Anthropic, wrong: dict[str, Any], message: str) -> None:
    request = {"model": server.model, "max_tokens": 4, "messages": [HELLO], **wrong}
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as caught:
            claude.post("/v1/messages", body={**request, "stream": stream}, cast_to=object)
        assert isinstance(caught.value.body, dict)
        assert caught.value.body["type"] == "error"
        error = caught.value.body["error"]
        assert error["type"] == "invalid_request_error"
        assert message in error["message"]
        assert "\n" not in error["message"]


def test_messages_need_a_model_and_a_length(server: Running, claude: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="this server has smollm2-135m") as caught:
        claude.messages.create(model="claude", max_tokens=4, messages=[HELLO])
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.count_tokens(model="claude", messages=[HELLO])
    with pytest.raises(anthropic.BadRequestError, match="the field max_tokens is missing"):
        claude.post("/v1/messages", body={"model": server.model, "messages": [HELLO]}, cast_to=object)


def test_messages_take_what_means_nothing_here(server: Running, claude: Anthropic) -> None:
    said = {"type": "thinking", "thinking": "hm", "signature": "of another server"}
    text = {"type": "text", "text": "Hi.", "citations": None}
    found = claude.messages.create(
        model=server.model,
        max_tokens=2,
        messages=[HELLO, {"role": "assistant", "content": [said, text]}, HELLO],
        metadata={"user_id": "me"},
        service_tier="auto",
        cache_control={"type": "ephemeral"},
        thinking={"type": "enabled", "budget_tokens": 1024},
    )
    assert found.usage.output_tokens == 2


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
TOO_LONG = {"input": "x " * 9000}
STATELESS = "this server keeps no conversations: send the whole input"
RESPONSES: list[tuple[dict[str, Any], str, str | None]] = [
    ({"input": []}, "at least 1 item", "input"),
    ({"input": 5}, "Input should be a valid list", "input"),
    ({"input": ["x"]}, "input.0: Input should be a valid dictionary", "input.0"),
    (item(role="user"), "an item of type None cannot be used here, only message", "input"),
    (item(role="tool", content="x"), "Input should be 'user'", "input.0.message.role"),
    (
        item(role="user", content=[{"type": "input_image", "image_url": "x"}]),
        "content of type 'input_image' cannot be used here, only input_text",
        "input.0.message.content",
    ),
    (item(type="item_reference", id="x"), STATELESS, "input"),
    (item(type="web_search_call", id="x"), "an item of type 'web_search_call' cannot be used", "input"),
    (item(type="function_call_output", call_id="x", output="y"), "no call before it has", None),
    (item(type="function_call", name="x"), "call_id is missing", "input.0.function_call.call_id"),
    (item(type="reasoning", summary=[], encrypted_content="x"), "encrypted cannot be read", "input"),
    ({"previous_response_id": "resp_1"}, STATELESS, "previous_response_id"),
    ({"conversation": "conv_1"}, STATELESS, "conversation"),
    ({"prompt": {"id": "x"}}, STATELESS, "prompt"),
    ({"background": True}, "this server keeps no answers", "background"),
    ({"truncation": "auto"}, "Input should be 'disabled'", "truncation"),
    ({"include": ["message.output_text.logprobs"]}, "told by /v1/chat/completions only", "include"),
    ({"include": ["file_search_call.results"]}, "nothing that answers here have", "include"),
    ({"top_logprobs": 2}, "told by /v1/chat/completions only", "top_logprobs"),
    ({"max_output_tokens": 0}, "greater than or equal to 1", "max_output_tokens"),
    ({"tools": [{"type": "web_search"}]}, "a tool of type 'web_search' cannot be used here", "tools"),
    ({"tools": [FUNCTION]}, "the model's chat template has no place for tools", None),
    ({"tool_choice": "required"}, "tool_choice needs tools", "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "g"}}, "not among the tools", "tool_choice"),
    ({"tools": [FUNCTION], "tool_choice": {"type": "allowed_tools"}}, "Input should be 'none'", "tool_choice"),
    ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "takes a schema", "text.format"),
    ({"text": {"format": {"type": "text", "schema": {}}}}, "takes a schema", "text.format"),
    ({"metadata": {"a": 1}}, "valid string", "metadata"),
    ({"no_such": 1}, "Unrecognized request argument supplied: no_such", "no_such"),
    (TOO_LONG, "the context holds 8192", None),
]


@pytest.mark.parametrize(("wrong", "message", "param"), RESPONSES)
def test_responses_say_what_is_wrong(
    server: Running, client: OpenAI, wrong: dict[str, Any], message: str, param: str | None
) -> None:
    request = {"model": server.model, "input": "Hello", "max_output_tokens": 4, **wrong}
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.post("/responses", body={**request, "stream": stream}, cast_to=object)
        assert message in caught.value.message
        assert "\n" not in str(caught.value.body)
        assert caught.value.param == param or param is None
        assert caught.value.type == "invalid_request_error"


def test_responses_need_a_model_that_is_there(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model="gpt-4o", input="Hello")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    "odd",
    [
        {"instructions": "\ud800"},
        {"input": "\ud800"},
        {"metadata": {"a": "\ud800"}},
        {"reasoning": {"effort": "\ud800"}},
        {"tool_choice": "none", "tools": [{**FUNCTION, "description": "\ud800"}]},
        {"tool_choice": "none", "tools": [{**FUNCTION, "parameters": {"a": float("nan")}}]},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_could_not_be_told_again_is_refused(server: Running, odd: dict[str, Any], *, stream: bool) -> None:
    """Kind: Python reads half a surrogate pair and NaN, and fails when it has to send them back."""
    body = json.dumps({"model": server.model, "input": "Hello", "max_output_tokens": 2, "stream": stream, **odd})
    with contextlib.closing(server.connection()) as connection:
        connection.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 400
        assert json.loads(answer.read())["error"]["code"] == "invalid_value"
