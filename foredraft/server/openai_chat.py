"""POST /v1/chat/completions, as OpenAI has it."""

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from foredraft.server.answering import answer_stream, answer_whole
from foredraft.server.chat import Conversation, Said, said
from foredraft.server.connection import Event
from foredraft.server.errors import ApiError
from foredraft.server.fields import (
    Body,
    Ignored,
    Listed,
    Logprobs,
    Object,
    Positive,
    ResponseFormat,
    SamplingFields,
    StreamOptions,
)
from foredraft.server.generation import Generation
from foredraft.server.parsing import Arguments, Part, Reasoning, Text, ToolCall
from foredraft.server.reports import drafts, ending, logprobs, one_by_one
from foredraft.server.turns import choice_among


class Prediction(Body):
    """What the answer will mostly look like."""

    type: Literal["content"]
    content: str | Listed[Object]

    def text(self) -> str:
        """In one piece. Raises ApiError for what is no text."""
        if isinstance(self.content, str):
            return self.content
        texts = [part.get("text") for part in self.content]
        if not all(isinstance(text, str) for text in texts):
            raise ApiError("prediction takes parts of text only", param="prediction")
        return "".join(map(str, texts))


class NamedFunction(Body):
    """A function that has to be called."""

    name: str


class NamedTool(Body):
    """A tool that has to be called."""

    type: Literal["function"]
    function: NamedFunction


class Function(Body):
    """A function that may be called."""

    name: str = Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool that may be called."""

    type: Literal["function"]
    function: Function


class ChatRequest(SamplingFields, Ignored):
    """The body of a request. docs/server.md has all fields in a table."""

    model: str
    messages: Listed[Object] = Field(min_length=1)
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    response_format: ResponseFormat | None = None
    prediction: Prediction | None = None
    tools: Listed[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include_drafts: bool | None = None
    chat_template_kwargs: Object | None = None
    documents: Listed[Object] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    modalities: Listed[Literal["text"]] | None = None

    def conversation(self) -> Conversation:
        """What is asked. Raises ApiError for fields that contradict each other."""
        return Conversation(
            model=self.model,
            messages=self.messages,
            sampling=self._sampling(),
            drafting=self.drafting(),
            tools=None if self.tools is None else [tool.model_dump(exclude_none=True) for tool in self.tools],
            tool_choice=self._choice(),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            options=self._options(),
            hints={} if self.reasoning_effort is None else {"reasoning_effort": self.reasoning_effort},
        )

    def _sampling(self) -> Object:
        found = self.sampling()
        if self.max_tokens and self.max_completion_tokens and self.max_tokens != self.max_completion_tokens:
            raise ApiError("give max_completion_tokens or max_tokens, not both", param="max_tokens")
        found["max_tokens"] = self.max_completion_tokens or self.max_tokens
        if self.top_logprobs is not None and not self.logprobs:
            raise ApiError("top_logprobs needs logprobs to be true", param="top_logprobs")
        if self.logprobs:
            found["logprobs"] = self.top_logprobs or 0
        if self.response_format is not None:
            found |= self.response_format.sampling()
        if self.prediction is not None and (text := self.prediction.text()):
            found["prediction"] = text
        return found

    def _choice(self) -> str:
        if isinstance(self.tool_choice, str):
            chosen: str = self.tool_choice
        elif self.tool_choice is not None:
            chosen = self.tool_choice.function.name
        else:
            chosen = "auto"
        return choice_among(chosen, [tool.model_dump() for tool in self.tools or ()])

    def _options(self) -> Object:
        names = ("chat_template_kwargs", "documents", "add_generation_prompt", "continue_final_message")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


async def chat_completions(body: ChatRequest, request: Request) -> Response:
    """Answer a conversation."""
    conversation = body.conversation()
    writer = _Writer(body, conversation)
    if body.stream:
        return await answer_stream(request, conversation.wanted(), writer.events)
    return await answer_whole(request, conversation.wanted(), writer.whole)


class _Writer:
    """Writes the answers to one request."""

    def __init__(self, body: ChatRequest, conversation: Conversation) -> None:
        self._body = body
        self._conversation = conversation
        self._options = body.stream_options or StreamOptions()
        self._head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": body.model}

    async def whole(self, generation: Generation) -> Object:
        """The answers in one object."""
        parsers = self._conversation.parsers(generation)
        [completion] = await generation.whole()
        choices = []
        for choice, parser in zip(completion.choices, parsers, strict=True):
            parts = [*parser.feed(choice.text), *parser.finish()]
            called = any(isinstance(part, ToolCall) for part in parts)
            choices.append(
                {
                    "index": choice.index,
                    "message": message_of(parts),
                    "logprobs": choice.logprobs_json().get("logprobs"),
                    "finish_reason": self._finish_reason(choice.finish_reason, called=called),
                }
            )
        return {**self._head, "object": "chat.completion", "choices": choices, **ending(generation.completions)}

    def _finish_reason(self, reason: str, *, called: bool) -> str:
        # OpenAI says "stop" where one certain function had to be called.
        named = isinstance(self._body.tool_choice, NamedTool)
        return "tool_calls" if called and reason == "stop" and not named else reason

    async def events(self, generation: Generation) -> AsyncGenerator[Event]:
        """The answers as they come."""
        parsers = self._conversation.parsers(generation)
        called: set[int] = set()
        for index in range(generation.num_choices):
            yield self._chunk(index, {"role": "assistant", "content": ""})
        chunks = generation.chunks()
        async for one in said(one_by_one(chunks) if self._options.token_by_token else chunks, parsers):
            if any(isinstance(part, ToolCall) for part in one.parts):
                called.add(one.chunk.index)
            for event in self._pieces(one, generation):
                yield event
        [completion] = generation.completions
        for choice in completion.choices:
            reason = self._finish_reason(choice.finish_reason, called=choice.index in called)
            yield self._chunk(choice.index, {}, finish_reason=reason)
        if self._options.include_usage:
            yield None, self._object(choices=[], **ending(generation.completions))
        yield None, "[DONE]"

    def _pieces(self, one: Said, generation: Generation) -> list[Event]:
        """The events of one chunk. What is told of its tokens comes with the first."""
        told: Object = {}
        if self._body.logprobs and one.chunk.logprobs:
            told["logprobs"] = {"content": logprobs(one.chunk.logprobs, generation.model.llm.tokenizer)}
        if self._body.include_drafts and one.chunk.token_ids:
            told["drafts"] = drafts(one.chunk)
        deltas = [_delta(part) for part in one.parts] or ([{}] if told else [])
        return [
            self._chunk(one.chunk.index, delta, **(told if not place else {})) for place, delta in enumerate(deltas)
        ]

    def _chunk(self, index: int, delta: Object, *, finish_reason: str | None = None, **told: Any) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason, **told}
        usage = {"usage": None} if self._options.include_usage else {}
        return None, self._object(choices=[choice], **usage)

    def _object(self, **fields: Any) -> Object:
        return {**self._head, "object": "chat.completion.chunk", **fields}


def _delta(part: Part) -> Object:
    if isinstance(part, Text):
        return {"content": part.text}
    if isinstance(part, Reasoning):
        return {"reasoning_content": part.text}
    if isinstance(part, Arguments):
        return {"tool_calls": [{"index": part.index, "function": {"arguments": part.text}}]}
    function = {"name": part.name, "arguments": ""}
    return {"tool_calls": [{"index": part.index, "id": new_call_id(), "type": "function", "function": function}]}


def message_of(parts: Sequence[Part]) -> Object:
    """The message that an answer is."""
    content = "".join(part.text for part in parts if isinstance(part, Text))
    reasoning = "".join(part.text for part in parts if isinstance(part, Reasoning))
    calls = calls_of(parts)
    message: Object = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def calls_of(parts: Sequence[Part]) -> list[Object]:
    """The calls of tools in an answer."""
    calls: dict[int, Object] = {}
    for part in parts:
        if isinstance(part, ToolCall):
            function = {"name": part.name, "arguments": ""}
            calls[part.index] = {"id": new_call_id(), "type": "function", "function": function}
        elif isinstance(part, Arguments):
            calls[part.index]["function"]["arguments"] += part.text
    return list(calls.values())


def new_call_id() -> str:
    """An id by which the result of a call will be known."""
    return f"call_{secrets.token_hex(12)}"
