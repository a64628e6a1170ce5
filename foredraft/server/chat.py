"""Conversations: messages become a prompt, and the text of an answer becomes content, reasoning and calls of tools."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foredraft.engine import Chunk
from foredraft.server.errors import ApiError
from foredraft.server.generation import Generation, Wanted
from foredraft.server.parsing import AnswerParser, Part, form_of, schema_for
from foredraft.server.pool import AS_SERVED, Drafting, ServedModel
from foredraft.text.template import variables_of

_PROMPT_END_TOKENS = 16
"""So many of the last tokens of a prompt show whether the template has begun the answer itself."""


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """What is asked in a conversation, whatever API it came by.

    messages, tools: as OpenAI has them. tool_choice: "none", "auto", "required", or the name of a function.
    sampling: keywords of `SamplingParams`. options: further ones of `Tokenizer.encode_chat`.
    hints: variables of the chat template, for those that know them.
    """

    model: str
    messages: Sequence[Mapping[str, Any]]
    sampling: dict[str, Any]
    drafting: Drafting = AS_SERVED
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str = "auto"
    parallel_tool_calls: bool = True
    options: dict[str, Any]
    hints: Mapping[str, Any] = field(default_factory=dict)

    def wanted(self) -> Wanted:
        """As a request to the engine. Raises ApiError for forms of the answer that contradict each other."""
        form = schema_for(self.tools or (), self.tool_choice, parallel=self.parallel_tool_calls)
        sampling = dict(self.sampling)
        if form is not None:
            if taken := {"json_schema", "json_object", "regex", "grammar"} & sampling.keys():
                raise ApiError(
                    f"a tool that has to be called and {taken.pop()} cannot be combined", param="tool_choice"
                )
            sampling["json_schema"] = form
        said: dict[str, Any] = {"messages": list(self.messages)}
        if self.tools:
            said["tools"] = list(self.tools)
        return Wanted(
            model=self.model,
            prompts=lambda model: [{"prompt_token_ids": self.encode(model)}],
            sampling=sampling,
            drafting=self.drafting,
            said=said,
        )

    def encode(self, model: ServedModel) -> list[int]:
        """The ids of the prompt. Raises UserError as `Tokenizer.encode_chat` does."""
        options = {**model.chat_options, **self.options}
        known = variables_of(self._template(model) or "")
        hints = {name: value for name, value in self.hints.items() if name in known}
        given = [one.get("chat_template_kwargs") or {} for one in (model.chat_options, self.options)]
        options["chat_template_kwargs"] = {**given[0], **hints, **given[1]}
        tools = list(self.tools) if self.tools and self.tool_choice != "none" else None
        return model.llm.tokenizer.encode_chat([_message(one) for one in self.messages], tools=tools, **options)

    def _template(self, model: ServedModel) -> str | None:
        return {**model.chat_options, **self.options}.get("chat_template") or model.llm.tokenizer.chat_template

    def parsers(self, generation: Generation) -> list[AnswerParser]:
        """One for each answer."""
        tokenizer = generation.model.llm.tokenizer
        [prompt] = generation.prompts
        assert isinstance(prompt, Mapping)
        end = tokenizer.decode(prompt["prompt_token_ids"][-_PROMPT_END_TOKENS:], skip_special=False)
        # What has to be JSON is no reasoning, even where the prompt has begun to reason.
        plain = generation.params.json_schema is None and not generation.params.json_object
        tools, choice = self.tools or (), self.tool_choice
        form = form_of(self._template(generation.model), end, tools=tools, choice=choice, reasoning=plain)
        return [AnswerParser(form) for _ in range(generation.num_choices)]


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates know them: arguments of calls are objects, and what OpenAI calls developer is system."""
    found = dict(message)
    if found.get("role") == "developer":
        found["role"] = "system"
    if isinstance(calls := found.get("tool_calls"), list):
        found["tool_calls"] = [_call(call) for call in calls]
    return found


def _call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return call
    if not isinstance(parsed, dict):
        return call
    return {**call, "function": {**dict(function or {}), "arguments": parsed}}


class Said(NamedTuple):
    """What a chunk of an answer comes to."""

    chunk: Chunk
    parts: list[Part]


async def said(chunks: AsyncIterator[Chunk], parsers: Sequence[AnswerParser]) -> AsyncIterator[Said]:
    """The chunks of all answers as they come, with their parts; at the end, for each answer, what was held back."""
    async for chunk in chunks:
        yield Said(chunk, parsers[chunk.index].feed(chunk.text))
    for index, parser in enumerate(parsers):
        if parts := parser.finish():
            yield Said(Chunk("", (), index=index), parts)
