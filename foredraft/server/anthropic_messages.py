"""POST /v1/messages and /v1/messages/count_tokens, as Anthropic has them."""

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from foredraft.engine import Completion
from foredraft.server.answering import answer_stream, answer_whole
from foredraft.server.anthropic_fields import CountRequest, MessagesRequest
from foredraft.server.chat import Conversation, said
from foredraft.server.connection import Event
from foredraft.server.errors import api_error
from foredraft.server.fields import Object
from foredraft.server.generation import Generation, Server
from foredraft.server.parsing import Arguments, Part, Reasoning, Text, ToolCall
from foredraft.server.reports import ending
from foredraft.text import Tokenizer


async def messages(body: MessagesRequest, request: Request) -> Response:
    """Answer a conversation."""
    conversation = body.asked()
    writer = _Writer(body, conversation)
    if body.stream:
        return await answer_stream(request, conversation.wanted(), writer.events, failed=failed)
    return await answer_whole(request, conversation.wanted(), writer.whole)


async def count_tokens(body: CountRequest, request: Request) -> Object:
    """How many tokens a conversation has, as the model's template writes it."""
    conversation = body.conversation()
    async with Server.of(request).pool.use(body.model) as model:
        return {"input_tokens": len(await asyncio.to_thread(conversation.encode, model))}


def failed(error: Exception) -> list[Event]:
    """What a stream ends with when something went wrong behind its beginning."""
    return [("error", api_error(error).body("/v1/messages"))]


class _Writer:
    """Writes the answer to one request."""

    def __init__(self, body: MessagesRequest, conversation: Conversation) -> None:
        self._body = body
        self._conversation = conversation
        self._content = _Content()
        self._head = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": body.model,
        }

    async def whole(self, generation: Generation) -> Object:
        """The answer in one object."""
        [parser] = self._conversation.parsers(generation)
        [completion] = await generation.whole()
        for part in itertools.chain(parser.feed(completion.text), parser.finish()):
            self._content.add(part)
        self._content.close()
        return {**self._head, "content": self._content.blocks, **self._stop(generation), **_told(completion)}

    async def events(self, generation: Generation) -> AsyncGenerator[Event]:
        """The answer as it comes."""
        parsers = self._conversation.parsers(generation)
        [prompt] = generation.prompts
        assert isinstance(prompt, dict)
        # What is in the cache is known only when the prompt's turn comes; the end of the stream tells it.
        usage = _usage(len(prompt["prompt_token_ids"]))
        start: Object = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        yield _event("message_start", message=start)
        yield _event("ping")
        async for one in said(generation.chunks(), parsers):
            for part in one.parts:
                for event in self._content.add(part):
                    yield event
        for event in self._content.close():
            yield event
        [completion] = generation.completions
        yield _event("message_delta", delta=self._stop(generation), **_told(completion))
        yield _event("message_stop")

    def _stop(self, generation: Generation) -> Object:
        """Why the answer ends."""
        [completion] = generation.completions
        sequence, reason = None, "end_turn"
        if completion.finish_reason == "length":
            most = generation.params.max_tokens
            asked = most is None or len(completion.token_ids) >= most
            reason = "max_tokens" if asked else "model_context_window_exceeded"
        else:
            sequence = stop_sequence(completion, self._body.stop_sequences or (), generation.model.llm.tokenizer)
            if sequence is not None:
                reason = "stop_sequence"
            elif any(block["type"] == "tool_use" for block in self._content.blocks):
                reason = "tool_use"
        return {"stop_reason": reason, "stop_sequence": sequence}


def stop_sequence(completion: Completion, stops: Sequence[str], tokenizer: Tokenizer) -> str | None:
    """The stop string that ended an answer; None where something else did.

    The tokens hold it, right behind the text; where several of them begin there, the shortest was complete first.
    """
    if not stops or completion.finish_reason != "stop" or completion.token_ids[-1] in tokenizer.eos_ids:
        return None
    behind = tokenizer.decode(completion.token_ids, at_start=False)[len(completion.text) :]
    return min((stop for stop in stops if behind.startswith(stop)), key=len, default=None)


def _usage(num_prompt: int, *, num_cached: int = 0, num_completion: int = 0) -> Object:
    return {
        "input_tokens": num_prompt - num_cached,
        "output_tokens": num_completion,
        "cache_read_input_tokens": num_cached,
        "cache_creation_input_tokens": 0,
    }


def _told(completion: Completion) -> Object:
    """What stands at the end of an answer: as with other APIs, but tokens as Anthropic counts them."""
    used = completion.usage
    usage = _usage(used.prompt_tokens, num_cached=used.cached_tokens, num_completion=used.completion_tokens)
    return {**ending([completion]), "usage": usage}


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind, **fields}


class _Content:
    """The blocks of an answer, which grow part by part, and the events that tell of it."""

    def __init__(self) -> None:
        self.blocks: list[Object] = []
        self._open = False
        self._arguments = ""

    def add(self, part: Part) -> list[Event]:
        """The events of a part."""
        if isinstance(part, Arguments):
            self._arguments += part.text
            return [self._delta(type="input_json_delta", partial_json=part.text)]
        if isinstance(part, ToolCall):
            call_id = f"toolu_{secrets.token_hex(12)}"
            return self._begin({"type": "tool_use", "id": call_id, "name": part.name, "input": {}})
        kind, name = ("thinking", "thinking") if isinstance(part, Reasoning) else ("text", "text")
        events = [] if self._open and self.blocks[-1]["type"] == kind else self._begin(_empty(part))
        self.blocks[-1][name] += part.text
        return [*events, self._delta(**{"type": f"{kind}_delta", name: part.text})]

    def _begin(self, block: Object) -> list[Event]:
        events = self.close()
        self.blocks.append(block)
        self._open = True
        # The block will grow, the event must not.
        return [*events, _event("content_block_start", index=len(self.blocks) - 1, content_block=dict(block))]

    def _delta(self, **delta: Any) -> Event:
        return _event("content_block_delta", index=len(self.blocks) - 1, delta=delta)

    def close(self) -> list[Event]:
        """The end of the block that is open, if one is."""
        if not self._open:
            return []
        self._open = False
        events = []
        if self.blocks[-1]["type"] == "tool_use":
            self.blocks[-1]["input"] = tool_input(self._arguments)
            self._arguments = ""
        elif self.blocks[-1]["type"] == "thinking":
            events = [self._delta(type="signature_delta", signature="")]
        return [*events, _event("content_block_stop", index=len(self.blocks) - 1)]


def _empty(part: Text | Reasoning) -> Object:
    if isinstance(part, Text):
        return {"type": "text", "text": ""}
    return {"type": "thinking", "thinking": "", "signature": ""}


def tool_input(arguments: str) -> Object:
    """The arguments of a call; none where they break off, as half of them would look whole, or are no object."""
    try:
        found = json.loads(arguments)
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()  # not all that Python reads is JSON
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
