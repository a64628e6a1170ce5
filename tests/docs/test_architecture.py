"""docs/architecture.md is about this package: its rooms, its layers, and the functions it names."""

import ast
import re
from pathlib import Path

from helpers.documents import ROOT, blocks, read, section
from test_imports import LAYERS, PACKAGE, modules, part

ARCHITECTURE = Path("docs/architecture.md")


def test_every_room_has_a_line() -> None:
    rooms = re.findall(r"`foredraft/(\w+)(?:\.py|/)`", section(ARCHITECTURE, "## Rooms"))
    assert sorted(rooms) == sorted({part(name) for name in modules(PACKAGE)} - {""})


def test_the_layers_are_those_that_are_enforced() -> None:
    there = {part(name) for name in modules(PACKAGE)}
    [block] = [block for block in blocks(ARCHITECTURE) if block.language == "text"]
    told = [set(line.split(", ")) for line in block.code.splitlines()]
    assert told == [enforced & there for enforced in LAYERS if enforced & there]


def test_what_it_names_is_where_it_says() -> None:
    """Pairs of a name and the file that it is in."""
    text = " ".join(read(ARCHITECTURE).split())
    pairs = re.findall(r"`([\w.]+)`(?: \(| in )`(foredraft/[\w/]+\.py)`", text)
    assert len(pairs) > 12
    for name, file in pairs:
        tree = ast.parse((ROOT / file).read_bytes())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert name.rpartition(".")[2] in defined, f"{file} has no {name}"
