"""JSON that users give is refused in words however it is broken. The rule is read off the sources."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "foredraft"
OWN_TEXT = {
    "bench/fresh.py",
    "bench/peer.py",
    "inspect/page.py",
    "models/store/hub.py",
    "text/folder_encoder.py",
}
"""What reads only what programs have written."""


def unguarded(source: str) -> list[int]:
    """Lines with a `json.loads` of a foreign text for which nobody catches the RecursionError of deep nesting.

    What a function called `from_json` raises is caught where it is called, and what was dumped is not foreign.
    """
    tree = ast.parse(source)
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if (isinstance(block, ast.Try) and any("RecursionError" in ast.unparse(handler) for handler in block.handlers))
        or (isinstance(block, ast.FunctionDef) and block.name == "from_json")
        for node in ast.walk(block)
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("json.loads", "json.load")
        and not ast.unparse(node.args[0]).startswith("json.dumps(")
        and id(node) not in guarded
    ]


def test_the_rule_finds_what_breaks_it() -> None:
    assert unguarded("try:\n    json.loads(text)\nexcept ValueError:\n    pass") == [2]
    assert unguarded("try:\n    json.loads(text)\nexcept (ValueError, RecursionError):\n    pass") == []


def test_deeply_nested_json_is_refused_everywhere() -> None:
    """Kind: `[[[[...` as a schema, a profile, a trace or a prompt is a fault of ours instead of one line."""
    found = {
        name: lines
        for path in PACKAGE.rglob("*.py")
        if (name := path.relative_to(PACKAGE).as_posix()) not in OWN_TEXT
        if (lines := unguarded(path.read_text(encoding="utf-8")))
    }
    assert found == {}
