"""Conversations as other APIs have them, turned into messages as OpenAI's conversations have them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from foredraft.server.errors import ApiError
from foredraft.server.fields import Object


@dataclass
class _Turn:
    """All that one side says before another one does."""

    role: str
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Object] = field(default_factory=list)

    def message(self) -> Object:
        found: Object = {"role": self.role, "content": _content(self.texts)}
        if self.reasoning:
            found["reasoning_content"] = "\n".join(self.reasoning)
        if self.calls:
            found["tool_calls"] = self.calls
            found["content"] = found["content"] or None
        return found


def _content(texts: Sequence[str]) -> str | list[Object]:
    """One text as it is; several as parts, which stay apart where a template knows parts."""
    return "".join(texts) if len(texts) < 2 else [{"type": "text", "text": text} for text in texts]


class Turns:
    """Messages that are put together piece by piece. Pieces of one role in a row are one message, as templates want
    them: many refuse two of the same role, and all want reasoning, text and calls of an answer in one."""

    def __init__(self) -> None:
        self._turns: list[_Turn | Object] = []
        self._names: dict[str, str] = {}

    @property
    def messages(self) -> list[Object]:
        """All of them, so far."""
        return [turn.message() if isinstance(turn, _Turn) else turn for turn in self._turns]

    def _turn(self, role: str) -> _Turn:
        last = self._turns[-1] if self._turns else None
        if isinstance(last, _Turn) and last.role == role:
            return last
        turn = _Turn(role)
        self._turns.append(turn)
        return turn

    def say(self, role: str, *texts: str) -> None:
        """What somebody says; without a text, that somebody says nothing."""
        self._turn("system" if role == "developer" else role).texts.extend(texts)

    def reason(self, text: str) -> None:
        """What the model thought before it said something."""
        self._turn("assistant").reasoning.append(text)

    def call(self, call_id: str, name: str, arguments: Any) -> None:
        """A call of a tool. arguments: an object, or the JSON text of one."""
        self._names[call_id] = name
        function = {"name": name, "arguments": arguments}
        self._turn("assistant").calls.append({"id": call_id, "type": "function", "function": function})

    def result(self, call_id: str, *texts: str) -> None:
        """What came of a call. Raises ApiError where there was none."""
        if call_id not in self._names:
            raise ApiError(f"the result of a call has the id {call_id!r}, but no call before it has")
        found = {"role": "tool", "tool_call_id": call_id, "name": self._names[call_id], "content": _content(texts)}
        self._turns.append(found)


def choice_among(choice: str, tools: Sequence[Object]) -> str:
    """The choice of a tool, checked. Raises ApiError for one that is not among the tools."""
    names = [tool["function"]["name"] for tool in tools]
    if choice not in ("none", "auto") and not names:
        raise ApiError("tool_choice needs tools", param="tool_choice")
    if choice not in ("none", "auto", "required", *names):
        raise ApiError(f"tool_choice names {choice!r}, which is not among the tools", param="tool_choice")
    return choice


def listed(value: Any, kinds: Sequence[str], *, what: str, text: Callable[[str], Object] | None = None) -> Any:
    """What stands in a request in place of a list of objects, each with a type, as such a list.

    kinds: types that are known. what: the objects are. text: what a text in place of the list stands for.

    Raises PydanticCustomError for an object of another type or none, in words that say what can be done.
    """
    if text is not None and isinstance(value, str):
        return [text(value)]
    for one in value if isinstance(value, list) else ():
        if isinstance(one, dict) and one.get("type") not in kinds:
            told = {"what": what, "kind": repr(one.get("type")), "known": ", ".join(kinds)}
            raise PydanticCustomError("unsupported", "{what} of type {kind} cannot be used here, only {known}", told)
    return value
