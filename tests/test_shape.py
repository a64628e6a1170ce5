"""The shape of the sources: how long files and functions may be, and that methods are named in one place."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from foredraft.drafters.registry import METHODS_WITHOUT_MODEL

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "foredraft"
MOST_LINES, MOST_LINES_OF_FUNCTION = 400, 60
SOURCES = [*sorted(PACKAGE.rglob("*.py")), *sorted((ROOT / "benchmarks").rglob("*.py"))]

NAMED_ELSEWHERE = {
    "speculative_config.py": "the names of another engine, beside ours",
    "tune/settings.py": "the names of other engines, beside ours",
    "sampling": "options of the same name",
    "cli/sampling.py": "options of the same name",
    "server": "fields of the same name",
    "vllm": "the names of another engine, beside ours",
}
"""Where methods of drafting may be named besides the registry, and why."""


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            yield node.name, node.end_lineno - node.lineno + 1


def test_files_are_short() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    native = [path for path in (ROOT / "native").rglob("*") if path.suffix in (".h", ".cpp")]
    long = [str(path) for path in (*SOURCES, *tests, *native) if len(path.read_bytes().splitlines()) > MOST_LINES]
    assert not long, f"more than {MOST_LINES} lines: {', '.join(long)}"


def test_functions_are_short() -> None:
    long = [f"{path}: {name}" for path in SOURCES for name, lines in functions(path) if lines > MOST_LINES_OF_FUNCTION]
    # A command of the command line has a parameter for every option: its length says nothing.
    commands = {f"{path}: {path.stem}" for path in (PACKAGE / "cli").glob("*.py")}
    assert not set(long) - commands, "\n".join(long)


def _names_methods(path: Path) -> set[str]:
    constants = (node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant))
    return {str(node.value) for node in constants} & set(METHODS_WITHOUT_MODEL)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_methods_are_named_by_the_registry_alone(path: Path) -> None:
    place = path.relative_to(PACKAGE)
    if place.parts[0] == "drafters" or any(place.is_relative_to(known) for known in NAMED_ELSEWHERE):
        return
    assert not _names_methods(path)
