"""JSON that is being written: where a value ends, while its text is passed on as it is.

Only strings and brackets are looked at. A value that is no JSON ends where its brackets do.
"""

import json
import re
from typing import Any

from foredraft.server.parsing.reader import Reader, Reading, Sink

_QUOTE = re.compile(r'["\\]')
_BRACKET = re.compile(r'["{}\[\]]')
_SCALAR_END = re.compile(r'[\s,:"{}\[\]]')
_SCALARS = {"True": "true", "False": "false", "None": "null"}
"""What models that read much Python write for them."""


def read_value(reader: Reader, sink: Sink) -> Reading[None]:
    """Read a value, from its first character on, and pass it on."""
    first = yield from reader.peek()
    if first == '"':
        yield from _read_string(reader, sink)
    elif first in ("{", "["):
        yield from _read_nested(reader, sink)
    else:
        yield from reader.scan(_SCALAR_END, sink)


def read_text(reader: Reader) -> Reading[str | None]:
    """Read a string, and return the text it stands for; None where there is none, or none that is whole."""
    if (yield from reader.peek()) != '"':
        return None
    pieces: list[str] = []
    yield from _read_string(reader, pieces.append)
    found = parsed("".join(pieces))
    return found if isinstance(found, str) else None


def _read_string(reader: Reader, sink: Sink) -> Reading[None]:
    sink(reader.take(1))
    while found := (yield from reader.scan(_QUOTE, sink)):
        sink(reader.take(1))
        if found == '"':
            return
        if (yield from reader.peek()):
            sink(reader.take(1))


def _read_nested(reader: Reader, sink: Sink) -> Reading[None]:
    depth = 0
    while found := (yield from reader.scan(_BRACKET, sink)):
        if found == '"':
            yield from _read_string(reader, sink)
            continue
        sink(reader.take(1))
        depth += 1 if found in "{[" else -1
        if depth == 0:
            return


def parsed(text: str) -> Any:
    """The value of a JSON text; Ellipsis where it is none."""
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return ...


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def unwrapped(text: str) -> str:
    """The arguments of a call that were written as a string with JSON in it: that JSON; others as they are."""
    inner = parsed(text)
    return inner if isinstance(inner, str) and isinstance(parsed(inner), dict) else text


def written(text: str) -> str:
    """The inside of the JSON string that stands for a text, or for a piece of one."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def value_of(text: str, types: frozenset[str]) -> str:
    """The JSON text of a value that was written without the quotes of strings.

    types: what the value may be, as JSON schema calls it; empty where nobody says.
    """
    plain = _SCALARS.get(text.strip(), text.strip())
    value = parsed(plain)
    if value is ... or ("string" in types and not types & _types_of(value)):
        return f'"{written(text)}"'
    return plain


def _types_of(value: Any) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    return {{float: "number", str: "string", list: "array", dict: "object"}.get(type(value), "null")}


def types_of(schema: Any) -> frozenset[str]:
    """What types a JSON schema names, as far as that is plain to see."""
    if not isinstance(schema, dict):
        return frozenset()
    named = schema.get("type")
    found = {one for one in (named if isinstance(named, list) else [named]) if isinstance(one, str)}
    if not found:
        values = [*_listed(schema, "enum"), *([schema["const"]] if "const" in schema else ())]
        found = {name for value in values for name in _types_of(value)}
    for one in (*_listed(schema, "anyOf"), *_listed(schema, "oneOf")):
        found |= types_of(one)
    return frozenset(found)


def _listed(schema: dict[str, Any], key: str) -> list[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else []
