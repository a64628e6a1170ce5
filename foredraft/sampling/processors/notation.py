"""Grammars and schemas as people write them, in a form that llguidance takes exactly, and its errors in one line.

It computes with numbers of JSON as doubles, and with bounds as 64-bit integers: what does not fit there comes out as
another number, or ends the process. So bounds move inwards to the next number that it can express, which leaves out a
few texts and lets in none that the schema forbids, and numbers that have to be exact are refused.
"""

import json
import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from foredraft.errors import OptionError

_LARGEST = 2**63 - 1024
"""The largest double below 2 ** 63."""
_NEEDS_OTHER_SIDE = 10**17
"""From here on llguidance wants a bound on the other side as well."""
_LARGEST_FRACTION = 10**18
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_NO_SCHEMAS = frozenset(("default", "example", "examples", "x-guidance", "required", "type", "title", "description"))

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))|[^\\]+", re.DOTALL)
_GBNF = re.compile(r"^\s*[A-Za-z][\w-]*\s*::=", re.MULTILINE)
_GBNF_PARTS = re.compile(r'#[^\n]*|"(?:[^"\\\n]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[^#"\[]+|.', re.DOTALL)
_MEANT = frozenset('"\\[]^-/')  # characters that are part of a notation where they stand unescaped


def one_line(text: str) -> str:
    """A text of several lines as one."""
    return " ".join(text.split())


def reason_of(matcher: Any) -> str:
    """Why an LLMatcher cannot go on, in one line, without the state of its parser."""
    reason = one_line(str(matcher.get_error()).split("<state>", 1)[0])
    if not reason or reason.isalnum():  # the name of a state, such as NoExtensionBias
        return "no token of the model goes on with it"
    return reason


def plain_characters(grammar: str) -> str:
    r"""The grammar, GBNF or Lark, with characters in place of escapes such as \u00e9 and \U0001F600.

    In GBNF every escape of llama.cpp counts, in Lark, which knows the others, that of eight digits.
    """
    if _GBNF.search(grammar) is None:
        return _ESCAPE.sub(lambda match: _character(match, (3,)), grammar)
    parts = (match[0] for match in _GBNF_PARTS.finditer(grammar))
    return "".join(_of_gbnf(part) for part in parts)


def _of_gbnf(part: str) -> str:
    if part[0] == "#" or part[0] not in '"[':
        return part
    part = _ESCAPE.sub(lambda match: _character(match, (1, 2, 3)), part)
    return part.replace("\\[", "[").replace("\\]", "]") if part[0] == '"' else part


def _character(match: re.Match[str], groups: tuple[int, ...]) -> str:
    """What an escape stands for; itself where that would mean something, or is no character."""
    digits = next((match[group] for group in groups if match[group]), None)
    if digits is None:
        return match[0]
    code = int(digits, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError(f"{match[0]} is no character")
    if code < 0x20 or code == 0x7F or chr(code) in _MEANT:
        return f"\\x{code:02X}"
    return chr(code)


def exact_schema(text: str) -> str:
    """The JSON schema `text`, as an object, with numbers that llguidance computes with exactly.

    Raises OptionError where that is not possible.
    """
    try:
        schema = json.loads(text)
        return json.dumps({"allOf": [schema]} if isinstance(schema, bool) else _schema(schema))
    except RecursionError:
        raise OptionError("--json-schema is nested too deeply") from None


def _schema(value: Any) -> Any:
    if isinstance(value, list):
        return [_schema(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if key in ("const", "enum"):
            _check_exact(inner)
            found[key] = inner
        elif key in _BY_NAME and isinstance(inner, Mapping):
            found[key] = {name: _schema(schema) for name, schema in inner.items()}
        else:
            found[key] = inner if key in _NO_SCHEMAS else _schema(inner)
    _bound(found)
    return found


def _check_exact(value: Any) -> None:
    """Refuse a number that would be written as another one."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            _check_exact(inner)
    elif isinstance(value, int) and not isinstance(value, bool) and not _is_exact(value):
        digits = str(value)
        shown = digits if len(digits) <= 40 else f"{digits[:37]}..."
        raise OptionError(f"--json-schema cannot be used: {shown} has more digits than can be kept; give it as a text")


def _is_exact(value: int) -> bool:
    try:
        return Decimal(repr(float(value))) == value
    except OverflowError:
        return False


def _bound(schema: dict[str, Any]) -> None:
    """Move the bounds of one schema, in place, to numbers that can be expressed."""
    whole = _is_whole(schema.get("type"))
    most = _LARGEST if whole else _LARGEST_FRACTION
    far = {"minimum": False, "maximum": False}
    for side, sign in (("minimum", 1), ("maximum", -1)):
        for key in (side, "exclusive" + side.capitalize()):
            bound = schema.get(key)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                continue
            if bound * sign < -most:  # at the far end of what can be expressed: as good as none
                schema[key] = -most * sign
            elif isinstance(bound, int):
                schema[key] = _inwards(bound, sign)
            far[side] |= bound * sign >= _NEEDS_OTHER_SIDE
    if whole and far["minimum"] and not schema.keys() & {"maximum", "exclusiveMaximum"}:
        schema["maximum"] = most
    if whole and far["maximum"] and not schema.keys() & {"minimum", "exclusiveMinimum"}:
        schema["minimum"] = -most


def _is_whole(kind: Any) -> bool:
    kinds = kind if isinstance(kind, list) else [kind]
    return "integer" in kinds and "number" not in kinds


def _inwards(bound: int, sign: int) -> int:
    """The double next to `bound` that is not beyond it. sign: the direction in which the range lies."""
    try:
        near = float(bound)
    except OverflowError:
        return bound
    if near * sign < bound * sign:
        near = math.nextafter(near, math.inf * sign)
    return int(near)
