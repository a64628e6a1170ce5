"""The schemas of answers that have to call a tool: what their grammars take, and what they refuse."""

import json
from typing import Any

import llguidance
import pytest

from foredraft.errors import UserError
from foredraft.server.parsing import AnswerParser, Arguments, ToolCall, form_of, schema_for

BYTES = llguidance.LLTokenizer("byte")
TREE = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.org/tree",
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}, "$ref": {"const": {"$ref": "#/$defs/node"}}},
    "required": ["root"],
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"label": {"type": "string"}, "below": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["label"],
            "additionalProperties": False,
        }
    },
}
NUMBER = {
    "properties": {"value": {"$ref": "#/definitions/node"}, "inner": {"$ref": "#"}},
    "required": ["value"],
    "additionalProperties": False,
    "definitions": {"node": {"type": "integer"}},
}


def tool(name: str, parameters: dict[str, Any] | None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": True}}


TOOLS = [
    tool("tree", TREE),
    tool("number", NUMBER),
    {"type": "function", "function": {"name": "now"}},
    tool("any", {}),
]


def takes(schema: object, text: str) -> bool:
    """Whether the grammar of a schema takes a whole text."""
    grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
    matcher = llguidance.LLMatcher(BYTES, grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher.validate_tokens([*text.encode(), BYTES.eos_token]) == len(text.encode()) + 1


def said(*calls: tuple[str, object]) -> str:
    return json.dumps([{"name": name, "arguments": arguments} for name, arguments in calls])


LEAF, DEEP = {"label": "a"}, {"label": "a", "below": [{"label": "b", "below": []}, {"label": "c"}]}


@pytest.mark.parametrize(
    ("call", "fits"),
    [
        (("tree", {"root": LEAF}), True),
        (("tree", {"root": DEEP}), True),
        (("tree", {"root": DEEP, "$ref": {"$ref": "#/$defs/node"}}), True),
        (("tree", {"root": {"label": "a", "below": [1]}}), False),
        (("tree", {"value": 1}), False),
        (("number", {"value": 1}), True),
        (("number", {"value": 1, "inner": {"value": 2, "inner": {"value": 3}}}), True),
        (("number", {"value": LEAF}), False),
        (("number", {"value": 1, "inner": {"value": "x"}}), False),
        (("now", {}), True),
        (("any", {"whatever": [1]}), True),
        (("any", 5), False),
        (("other", {}), False),
    ],
)
def test_a_call_that_is_required_fits_its_tool(call: tuple[str, object], fits: bool) -> None:
    schema = schema_for(TOOLS, "required", parallel=True)
    assert takes(schema, said(call)) is fits
    assert takes(schema, said(("now", {}), call)) is fits


def test_how_many_calls_are_required() -> None:
    several, one = (schema_for(TOOLS, "required", parallel=parallel) for parallel in (True, False))
    twice = said(("now", {}), ("any", {}))
    assert takes(several, twice)
    assert not takes(one, twice)
    assert takes(one, said(("now", {})))
    assert not takes(several, "[]")
    assert not takes(several, '[{"name": "now"}]')


def test_a_named_function_takes_its_arguments_alone() -> None:
    tree, now = (schema_for(TOOLS, name, parallel=True) for name in ("tree", "now"))
    assert tree == TREE
    assert now == {"type": "object"}
    assert takes(tree, json.dumps({"root": DEEP}))
    assert not takes(tree, json.dumps({"root": 1}))


def test_what_a_required_answer_holds_is_found_in_it() -> None:
    text = said(("tree", {"root": DEEP}), ("now", {}))
    assert takes(schema_for(TOOLS, "required", parallel=True), text)
    parser = AnswerParser(form_of(None, "", tools=TOOLS, choice="required"))
    assert parser.feed(text) + parser.finish() == [
        ToolCall(0, "tree"),
        Arguments(0, json.dumps({"root": DEEP})),
        ToolCall(1, "now"),
        Arguments(1, "{}"),
    ]


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_nothing_is_forced_where_no_call_is_required(choice: str) -> None:
    assert schema_for(TOOLS, choice, parallel=True) is None
    assert schema_for([], choice, parallel=True) is None


def test_a_call_needs_a_tool() -> None:
    with pytest.raises(UserError, match="there are no tools"):
        schema_for([], "required", parallel=True)
    with pytest.raises(UserError, match="'other', which is not among the tools"):
        schema_for(TOOLS, "other", parallel=True)


def test_the_schema_of_the_client_stays_as_it_is() -> None:
    before = json.dumps(TOOLS)
    schema_for(TOOLS, "required", parallel=True)
    assert json.dumps(TOOLS) == before
