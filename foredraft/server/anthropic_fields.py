"""The bodies of requests to /v1/messages, as Anthropic has them, and what they ask for."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from foredraft.server.chat import Conversation
from foredraft.server.errors import ApiError
from foredraft.server.fields import Body, DraftFields, Listed, Object, Positive, Share
from foredraft.server.turns import Turns, choice_among, listed

_ALLOWED = {"user": ("text", "tool_result"), "assistant": ("text", "thinking", "tool_use"), "system": ("text",)}
"""What each side may say."""


def _text_block(text: str) -> Object:
    return {"type": "text", "text": text}


def _texts(value: Any) -> Any:
    return listed(value, ("text",), what="a block", text=_text_block)


def _blocks(value: Any) -> Any:
    return listed(value, ("text", "thinking", "tool_use", "tool_result"), what="a block", text=_text_block)


def _tools(value: Any) -> Any:
    if isinstance(value, list):
        # A tool of the client's own need not say that it is one.
        value = [{**one, "type": one.get("type") or "custom"} if isinstance(one, dict) else one for one in value]
    return listed(value, ("custom",), what="a tool")


class TextBlock(Body):
    """A text."""

    type: Literal["text"]
    text: str
    citations: None = None
    cache_control: Object | None = None


TextBlocks = Annotated[Listed[TextBlock], BeforeValidator(_texts, json_schema_input_type=str | list[TextBlock])]


class ThinkingBlock(Body):
    """What the model thought, given back. signature: of no effect."""

    type: Literal["thinking"]
    thinking: str
    signature: str | None = None


class ToolUseBlock(Body):
    """A call of a tool, given back. caller: of no effect, as only the model calls."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: Object
    caller: Object | None = None
    cache_control: Object | None = None


class ToolResultBlock(Body):
    """What came of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: TextBlocks = Field(default_factory=list)
    is_error: bool | None = None
    cache_control: Object | None = None


Block = Annotated[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock, Field(discriminator="type")]
Blocks = Annotated[Listed[Block], BeforeValidator(_blocks, json_schema_input_type=str | list[Block])]


class Message(Body):
    """What one side says."""

    role: Literal["user", "assistant", "system"]
    content: Blocks


class Tool(Body):
    """A tool that may be called. strict, eager_input_streaming: of no effect."""

    type: Literal["custom"]
    name: str = Field(pattern=r"^[a-zA-Z0-9_.:-]{1,128}$")
    description: str | None = None
    input_schema: Object
    strict: bool | None = None
    eager_input_streaming: bool | None = None
    cache_control: Object | None = None

    def as_function(self) -> Object:
        """In OpenAI's shape."""
        function: Object = {"name": self.name, "parameters": self.input_schema}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function}


class ToolChoice(Body):
    """Whether tools may or must be called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def chosen(self) -> str:
        """As `Conversation` has it. Raises ApiError for a name that is missing, or for nothing."""
        if (self.type == "tool") != (self.name is not None):
            raise ApiError('tool_choice takes a name with the type "tool", and only then', param="tool_choice")
        return self.name or {"any": "required"}.get(self.type, self.type)


class Thinking(Body):
    """Whether the model thinks first. budget_tokens: of no effect, as no model here keeps to it."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Positive | None = None
    display: Literal["summarized"] | None = None


class OutputFormat(Body):
    """The form of the answer."""

    type: Literal["json_schema"]
    schema_: Object = Field(alias="schema")


class OutputConfig(Body):
    """The form of the answer, and how much is thought, where a template knows that."""

    effort: str | None = None
    format: OutputFormat | None = None


class CountRequest(Body):
    """A conversation whose tokens are counted. docs/server.md has all fields in a table."""

    model: str
    messages: Listed[Message] = Field(min_length=1)
    system: TextBlocks = Field(default_factory=list)
    tools: Annotated[Listed[Tool], BeforeValidator(_tools)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Object | None = None

    def conversation(self, **how: Any) -> Conversation:
        """What is asked. Raises ApiError for fields that contradict each other."""
        choice = self.tool_choice or ToolChoice(type="auto")
        tools = [tool.as_function() for tool in self.tools or ()]
        return Conversation(
            model=self.model,
            messages=self._turns().messages,
            tools=tools or None,
            tool_choice=choice_among(choice.chosen(), tools),
            parallel_tool_calls=not choice.disable_parallel_tool_use,
            options={"continue_final_message": True} if self._continues() else {},
            hints=self._hints(),
            **{"sampling": {}, **how},
        )

    def _turns(self) -> Turns:
        turns = Turns()
        if self.system:
            turns.say("system", *[block.text for block in self.system])
        for place, message in enumerate(self.messages):
            _add(turns, message, place)
        return turns

    def _continues(self) -> bool:
        """Whether the answer goes on with the last message, which the client has begun for the model."""
        last = self.messages[-1]
        if last.role != "assistant":
            return False
        if not last.content or any(block.type != "text" for block in last.content):
            raise ApiError("the last message is the model's own: it may hold text only, to be continued")
        return True

    def _hints(self) -> Object:
        hints: Object = {}
        if self.output_config is not None and self.output_config.effort is not None:
            hints["reasoning_effort"] = self.output_config.effort
        if self.thinking is not None:
            hints["enable_thinking"] = self.thinking.type != "disabled"
        return hints


def _add(turns: Turns, message: Message, place: int) -> None:
    allowed = _ALLOWED[message.role]
    if other := [block.type for block in message.content if block.type not in allowed]:
        raise ApiError(f"messages.{place}: one of the role {message.role} holds no {other[0]}", param="messages")
    if not message.content:
        turns.say(message.role)
    for block in message.content:
        if isinstance(block, TextBlock):
            turns.say(message.role, block.text)
        elif isinstance(block, ThinkingBlock):
            turns.reason(block.thinking)
        elif isinstance(block, ToolUseBlock):
            turns.call(block.id, block.name, block.input)
        else:
            texts = [part.text for part in block.content]
            # No template has a place for it but the text.
            turns.result(block.tool_use_id, *(["Error: " + "\n".join(texts)] if block.is_error else texts))


class MessagesRequest(CountRequest, DraftFields):
    """The body of a request. docs/server.md has all fields in a table."""

    max_tokens: Positive
    stop_sequences: Listed[Annotated[str, Field(min_length=1)]] | None = None
    temperature: float | None = Field(None, ge=0)
    top_p: Share | None = None
    top_k: int | None = Field(None, ge=-1, le=2**31)
    stream: bool | None = None
    metadata: Object | None = None
    service_tier: str | None = None

    def asked(self) -> Conversation:
        """What is asked, and how. Raises ApiError for fields that contradict each other."""
        named = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "stop": self.stop_sequences}
        sampling: Object = {name: value for name, value in named.items() if value is not None}
        sampling["max_tokens"] = self.max_tokens
        if self.output_config is not None and self.output_config.format is not None:
            sampling["json_schema"] = self.output_config.format.schema_
        return self.conversation(sampling=sampling, drafting=self.drafting())
