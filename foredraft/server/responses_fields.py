"""The body of requests to /v1/responses, as OpenAI has it, and what it asks for."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from foredraft.server.chat import Conversation
from foredraft.server.errors import ApiError
from foredraft.server.fields import Body, DraftFields, Ignored, Listed, Object, Positive, Share, TextObject
from foredraft.server.turns import Turns, choice_among, listed

Status = Literal["in_progress", "completed", "incomplete"]
_STATELESS = "this server keeps no conversations: send the whole input"
_MESSAGE_FIELDS = {"role", "content"}


def _parts(value: Any) -> Any:
    kinds = ("input_text", "output_text", "text")
    return listed(value, kinds, what="content", text=lambda text: {"type": "text", "text": text})


def _items(value: Any) -> Any:
    if isinstance(value, list):
        value = [_with_type(item) for item in value]
        if any(isinstance(item, dict) and item.get("type") == "item_reference" for item in value):
            raise ApiError(_STATELESS, param="input")
    kinds = ("message", "function_call", "function_call_output", "reasoning")
    return listed(value, kinds, what="an item", text=lambda text: {"type": "message", "role": "user", "content": text})


def _with_type(item: Any) -> Any:
    """An item; messages need not say that they are."""
    if isinstance(item, dict) and item.get("type") is None and item.keys() >= _MESSAGE_FIELDS:
        return {**item, "type": "message"}
    return item


def _tools(value: Any) -> Any:
    return listed(value, ("function",), what="a tool")


class TextPart(Body):
    """A text. annotations, logprobs: of no effect, but they stand in what is given back."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Listed[Object] | None = None
    logprobs: Listed[Object] | None = None


TextParts = Annotated[Listed[TextPart], BeforeValidator(_parts, json_schema_input_type=str | list[TextPart])]


class MessageItem(Body):
    """What one side says. id, status, phase: of no effect."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system", "developer"]
    content: TextParts
    id: str | None = None
    status: Status | None = None
    phase: str | None = None


class FunctionCall(Body):
    """A call of a tool, given back. id, status: of no effect."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status | None = None


class FunctionCallOutput(Body):
    """What came of a call. id, status: of no effect."""

    type: Literal["function_call_output"]
    call_id: str
    output: TextParts
    id: str | None = None
    status: Status | None = None


class ReasoningPart(Body):
    """What the model thought."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Body):
    """What the model thought, given back: the summary, where nothing else is there. id, status: of no effect."""

    type: Literal["reasoning"]
    summary: Listed[ReasoningPart] = Field(default_factory=list)
    content: Listed[ReasoningPart] | None = None
    encrypted_content: str | None = None
    id: str | None = None
    status: Status | None = None

    def text(self) -> str:
        """All of it. Raises ApiError where it cannot be read."""
        if self.encrypted_content is not None:
            raise ApiError("reasoning that is encrypted cannot be read: leave it out of the input", param="input")
        return "\n".join(part.text for part in self.content or self.summary)


Item = Annotated[MessageItem | FunctionCall | FunctionCallOutput | ReasoningItem, Field(discriminator="type")]
Items = Annotated[Listed[Item], BeforeValidator(_items, json_schema_input_type=str | list[Item]), Field(min_length=1)]


class Tool(Body):
    """A tool that may be called. strict: of no effect."""

    type: Literal["function"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")
    description: str | None = None
    parameters: Object | None = None
    strict: bool | None = None

    def as_function(self) -> Object:
        """In the shape of OpenAI's conversations."""
        function = self.model_dump(include={"name", "description", "parameters"}, exclude_none=True)
        return {"type": "function", "function": function}


class NamedTool(Body):
    """A tool that has to be called."""

    type: Literal["function"]
    name: str


class TextFormat(Body):
    """The form of the answer. name, description, strict: of no effect, as a schema is always kept to."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Object | bool | None = Field(None, alias="schema")
    strict: bool | None = None

    def sampling(self) -> Object:
        """As keywords of `SamplingParams`. Raises ApiError where the schema is missing, or is not asked for."""
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ApiError('text.format takes a schema with the type "json_schema", and only then', param="text.format")
        if self.type == "json_object":
            return {"json_object": True}
        return {} if self.schema_ is None else {"json_schema": self.schema_}


class TextConfig(Body):
    """What the answer is to look like. verbosity: of no effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningConfig(Body):
    """How much the model thinks, where its template knows that. summary: of no effect, as all is shown."""

    effort: str | None = None
    summary: str | None = None


class ResponsesStreamOptions(Body):
    """Of a stream. include_obfuscation: of no effect, as nothing is obfuscated."""

    include_obfuscation: bool | None = None


class ResponsesRequest(Ignored, DraftFields):
    """The body of a request. docs/server.md has all fields in a table."""

    model: str
    input: Items
    instructions: str | None = None
    metadata: TextObject | None = None
    max_output_tokens: Positive | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: Share | None = None
    text: TextConfig | None = None
    tools: Annotated[Listed[Tool], BeforeValidator(_tools)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    include: Listed[str] | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    truncation: Literal["disabled"] | None = None
    top_logprobs: int | None = None
    background: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None

    def asked(self) -> Conversation:
        """What is asked. Raises ApiError for what this server does not do, and for what contradicts itself."""
        self._check()
        tools = [tool.as_function() for tool in self.tools or ()]
        choice = self.tool_choice.name if isinstance(self.tool_choice, NamedTool) else self.tool_choice or "auto"
        return Conversation(
            model=self.model,
            messages=self._turns().messages,
            sampling=self._sampling(),
            drafting=self.drafting(),
            tools=tools or None,
            tool_choice=choice_among(choice, tools),
            parallel_tool_calls=self.parallel_tool_calls is not False,
            options={},
            hints=self._hints(),
        )

    def _check(self) -> None:
        for name in ("previous_response_id", "conversation", "prompt"):
            if getattr(self, name) is not None:
                raise ApiError(f"{name}: {_STATELESS}", code="unsupported_parameter", param=name)
        if self.background:
            raise ApiError(
                "background: this server keeps no answers: wait for it, or stream it",
                code="unsupported_parameter",
                param="background",
            )
        self._check_include()
        self._check_echo()

    def _check_include(self) -> None:
        # Reasoning is told in plain text, so that there is nothing to encrypt for whoever wants to give it back.
        other = [name for name in self.include or () if name != "reasoning.encrypted_content"]
        if self.top_logprobs or "message.output_text.logprobs" in other:
            message = "log-probabilities are told by /v1/chat/completions only"
        elif other:
            message = f"include: {other[0]} is nothing that answers here have"
        else:
            return
        raise ApiError(message, code="unsupported_parameter", param="include" if other else "top_logprobs")

    def _check_echo(self) -> None:
        """Raise ApiError for what could not be told again: Python reads more than what JSON and UTF-8 hold."""
        try:
            json.dumps(self.model_dump(exclude={"input"}), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:
            raise ApiError(f"the request holds what no answer can: {error}", code="invalid_value") from None

    def _turns(self) -> Turns:
        turns = Turns()
        if self.instructions is not None:
            turns.say("system", self.instructions)
        for item in self.input:
            if isinstance(item, MessageItem):
                turns.say(item.role, *[part.text for part in item.content])
            elif isinstance(item, FunctionCall):
                turns.call(item.call_id, item.name, item.arguments)
            elif isinstance(item, FunctionCallOutput):
                turns.result(item.call_id, *[part.text for part in item.output])
            else:
                turns.reason(item.text())
        return turns

    def _sampling(self) -> Object:
        sampling: Object = {"max_tokens": self.max_output_tokens}
        if self.temperature is not None:
            sampling["temperature"] = self.temperature
        if self.top_p is not None:
            sampling["top_p"] = self.top_p
        if self.text is not None and self.text.format is not None:
            sampling |= self.text.format.sampling()
        return sampling

    def _hints(self) -> Object:
        effort = None if self.reasoning is None else self.reasoning.effort
        if effort is None:
            return {}
        return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
