"""POST /v1/responses, as OpenAI has it, without what a server would have to keep between requests."""

import itertools
import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from foredraft.engine import Completion
from foredraft.server.answering import answer_stream, answer_whole
from foredraft.server.chat import Conversation, said
from foredraft.server.connection import Event
from foredraft.server.errors import api_error
from foredraft.server.fields import Object
from foredraft.server.generation import Generation
from foredraft.server.openai_chat import new_call_id
from foredraft.server.parsing import Arguments, Part, Reasoning, ToolCall
from foredraft.server.reports import ending
from foredraft.server.responses_fields import NamedTool, ResponsesRequest
from foredraft.text import Tokenizer


async def responses(body: ResponsesRequest, request: Request) -> Response:
    """Answer a conversation."""
    conversation = body.asked()
    writer = _Writer(body, conversation)
    if body.stream:
        return await answer_stream(request, conversation.wanted(), writer.events, failed=writer.failed)
    return await answer_whole(request, conversation.wanted(), writer.whole)


class _Writer:
    """Writes the answer to one request."""

    def __init__(self, body: ResponsesRequest, conversation: Conversation) -> None:
        self._conversation = conversation
        self._output = _Output()
        self._head = {"id": f"resp_{secrets.token_hex(16)}", "object": "response", "created_at": int(time.time())}
        self._settings = _settings(body)
        self._num_sent = 0

    async def whole(self, generation: Generation) -> Object:
        """The answer in one object."""
        self._settings |= _sampled(generation)
        [parser] = self._conversation.parsers(generation)
        [completion] = await generation.whole()
        for part in itertools.chain(parser.feed(completion.text), parser.finish()):
            self._output.add(part)
        self._output.close(_status(completion))
        return self._ended(generation)

    async def events(self, generation: Generation) -> AsyncGenerator[Event]:
        """The answer as it comes."""
        self._settings |= _sampled(generation)
        for kind in ("created", "in_progress"):
            yield self._event({"type": f"response.{kind}", "response": self._response("in_progress")})
        async for one in said(generation.chunks(), self._conversation.parsers(generation)):
            for part in one.parts:
                for event in self._output.add(part):
                    yield self._event(event)
        [completion] = generation.completions
        for event in self._output.close(_status(completion)):
            yield self._event(event)
        ended = self._ended(generation)
        yield self._event({"type": f"response.{ended['status']}", "response": ended})

    def failed(self, error: Exception) -> list[Event]:
        """What a stream ends with when something went wrong behind its beginning."""
        found = api_error(error)
        code = "server_error" if found.status >= 500 else "invalid_prompt"
        response = self._response("failed", error={"code": code, "message": str(found)})
        return [self._event({"type": "response.failed", "response": response})]

    def _event(self, event: Object) -> Event:
        number = self._num_sent
        self._num_sent += 1
        return event["type"], {**event, "sequence_number": number}

    def _response(self, status: str, **fields: Any) -> Object:
        told = {"status": status, "error": None, "incomplete_details": None, "output": self._output.items}
        return {**self._head, **told, "usage": None, **self._settings, **fields}

    def _ended(self, generation: Generation) -> Object:
        [completion] = generation.completions
        status = _status(completion)
        told: Object = {**ending([completion]), "usage": self._usage(completion, generation.model.llm.tokenizer)}
        if status == "incomplete":
            told["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            told["completed_at"] = int(time.time())
        return self._response(status, **told)

    def _usage(self, completion: Completion, tokenizer: Tokenizer) -> Object:
        """Numbers of tokens. Those of reasoning are counted by its text, which is the same but for rare cases."""
        used, reasoning = completion.usage, self._output.reasoning
        num_reasoning = len(tokenizer.encode(reasoning, add_special=False)) if reasoning else 0
        return {
            "input_tokens": used.prompt_tokens,
            "input_tokens_details": {"cached_tokens": used.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": used.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": min(num_reasoning, used.completion_tokens)},
            "total_tokens": used.total_tokens,
        }


def _settings(body: ResponsesRequest) -> Object:
    """What a response tells of the request that it answers."""
    text, reasoning = body.text, body.reasoning
    form = {"type": "text"} if text is None or text.format is None else text.format.model_dump(by_alias=True)
    choice = body.tool_choice
    return {
        "model": body.model,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "tools": [tool.model_dump() for tool in body.tools or ()],
        "tool_choice": choice.model_dump() if isinstance(choice, NamedTool) else choice or "auto",
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "text": {"format": form, "verbosity": (text and text.verbosity) or "medium"},
        "reasoning": {"effort": reasoning and reasoning.effort, "summary": reasoning and reasoning.summary},
        "metadata": body.metadata or {},
        "user": body.user,
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
        "service_tier": "default",
        "truncation": "disabled",
        "previous_response_id": None,
        "background": False,
        "store": False,
        "top_logprobs": 0,
        "max_tool_calls": None,
    }


def _sampled(generation: Generation) -> Object:
    """The parameters that the answer is sampled with, sent or not."""
    return {"temperature": generation.params.temperature, "top_p": generation.params.top_p}


def _status(completion: Completion) -> str:
    return "incomplete" if completion.finish_reason == "length" else "completed"


class _Output:
    """The items of an answer, which grow part by part, and the events that tell of it."""

    def __init__(self) -> None:
        self.items: list[Object] = []
        self._text = ""

    @property
    def reasoning(self) -> str:
        """All that was thought."""
        return "".join(item["content"][0]["text"] for item in self.items if item["type"] == "reasoning")

    def add(self, part: Part) -> list[Object]:
        """The events of a part."""
        if isinstance(part, ToolCall):
            call = {"call_id": new_call_id(), "name": part.name, "arguments": ""}
            return self._begin({"id": _id("fc"), "type": "function_call", **call})
        events: list[Object] = []
        if isinstance(part, Arguments):
            kind = "function_call_arguments"
        elif isinstance(part, Reasoning):
            kind = "reasoning_text"
            if not self._grows("reasoning"):
                events = self._begin({"id": _id("rs"), "type": "reasoning", "summary": [], "content": []})
        else:
            kind = "output_text"
            if not self._grows("message"):
                events = self._begin({"id": _id("msg"), "type": "message", "role": "assistant", "content": []})
        self._text += part.text
        return [*events, self._told(f"{kind}.delta", delta=part.text)]

    def _grows(self, kind: str) -> bool:
        return bool(self.items) and self.items[-1]["type"] == kind

    def _begin(self, item: Object) -> list[Object]:
        events = self.close("completed")
        self.items.append({**item, "status": "in_progress"})
        self._text = ""
        events.append({"type": "response.output_item.added", "output_index": self._place, "item": self._item()})
        if "content" in item:
            events.append(self._told("content_part.added", part=self._part()))
        return events

    def close(self, status: str) -> list[Object]:
        """The end of the last item, if there is one."""
        if not self.items:
            return []
        item = self.items[-1]
        item["status"] = status
        if item["type"] == "function_call":
            item["arguments"] = self._text
            events = [self._told("function_call_arguments.done", arguments=self._text)]
        else:
            part = self._part()
            item["content"] = [part]
            events = [self._told(f"{part['type']}.done", text=self._text), self._told("content_part.done", part=part)]
        return [*events, {"type": "response.output_item.done", "output_index": self._place, "item": self._item()}]

    @property
    def _place(self) -> int:
        return len(self.items) - 1

    def _item(self) -> Object:
        """The last item as it is now: it will grow, an event must not."""
        return dict(self.items[-1])

    def _part(self) -> Object:
        """The one part of the last item, a message or reasoning, as it is now."""
        if self.items[-1]["type"] == "reasoning":
            return {"type": "reasoning_text", "text": self._text}
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": []}

    def _told(self, kind: str, **fields: Any) -> Object:
        item = self.items[-1]
        place = {} if item["type"] == "function_call" else {"content_index": 0}
        if kind.startswith("output_text."):
            place["logprobs"] = []  # type: ignore[assignment]
        return {
            "type": f"response.{kind}",
            "item_id": item["id"],
            "output_index": self._place,
            **place,
            **fields,
        }


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
