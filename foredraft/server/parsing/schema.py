"""The JSON schema of an answer that has to call a tool."""

from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.errors import UserError
from foredraft.server.parsing.formats import Tool, ToolChoice

_VALUES = frozenset(("const", "default", "enum", "example", "examples"))
"""Keywords with values behind them, in which nothing refers to anything."""
_NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
"""Keywords with schemas behind them, by names that are no keywords."""


def schema_for(tools: Sequence[Tool], choice: ToolChoice, *, parallel: bool) -> dict[str, Any] | None:
    """What the answer is to be forced into; None where it need not call anything.

    "required": an array of objects with name and arguments, with one at most where parallel is False. A function's
    name: its arguments. Raises UserError where there is no tool to call.
    """
    if choice in ("none", "auto"):
        return None
    if not tools:
        raise UserError("tool_choice asks for a call, but there are no tools")
    if choice == "required":
        most = {} if parallel else {"maxItems": 1}
        calls = [_call(tool, f"#/items/anyOf/{number}") for number, tool in enumerate(tools)]
        return {"type": "array", "minItems": 1, **most, "items": {"anyOf": calls}}
    if found := next((tool for tool in tools if tool["function"]["name"] == choice), None):
        return _parameters(found)
    raise UserError(f"tool_choice names the function {choice!r}, which is not among the tools")


def _call(tool: Tool, place: str) -> dict[str, Any]:
    """The schema of one call, for this place in the whole."""
    arguments = _moved(_parameters(tool), f"{place}/properties/arguments")
    # They would begin a document of its own, to which references are relative.
    own = {key: value for key, value in arguments.items() if key not in ("$schema", "$id")}
    return {
        "type": "object",
        "properties": {"name": {"const": tool["function"]["name"]}, "arguments": own},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _parameters(tool: Tool) -> dict[str, Any]:
    """Arguments are an object, whether the schema says so or not."""
    return {"type": "object", **(tool["function"].get("parameters") or {})}


def _moved(schema: Any, place: str) -> Any:
    """A schema whose references to its own parts find these now that it stands at another place."""
    if isinstance(schema, list):
        return [_moved(one, place) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _moved_member(key, value, place) for key, value in schema.items()}


def _moved_member(key: str, value: Any, place: str) -> Any:
    if key == "$ref" and isinstance(value, str):
        return place + value[1:] if value == "#" or value.startswith("#/") else value
    if key in _VALUES:
        return value
    if key in _NAMED and isinstance(value, Mapping):
        return {name: _moved(one, place) for name, one in value.items()}
    return _moved(value, place)
