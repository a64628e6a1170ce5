"""Imports go one way, from the front door down to plain values. The rule is read off the sources, not off what runs."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "foredraft"

# From the top down. A part may import itself, what stands below it, and, in the last layer, its neighbours.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(layer.split())
    for layer in (
        "cli",
        "tune",
        "server training check vllm",
        "bench",
        "inspect",
        "llm",
        "loaded",
        "engine",
        "round",
        "planner testing",
        "drafters target",
        "models",  # a decoder comes with its cache
        "sequence",
        "cache",
        "kernels",
        "tree sampling accept config speculative_config errors prompts inputs files text trace machine",
    )
)
DRAFTER_BASES = {f"foredraft.drafters{part}" for part in ("", ".base", ".delegating", ".context", ".growth")}
"""What of the drafters anyone may import who may import drafters at all."""
DRAFTER_MAKERS = {f"foredraft.drafters{part}" for part in ("", ".registry", ".load_model")}
"""Who may import the drafters themselves."""


@dataclass(frozen=True)
class Import:
    """Module `source` imports module `target` in a line. runs: not for type checking alone, and not as a text."""

    source: str
    target: str
    line: int
    runs: bool = True

    def __str__(self) -> str:
        return f"{self.source} (line {self.line}) imports {self.target}"


def module_name(path: Path, package: Path) -> str:
    parts = list(path.relative_to(package.parent).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(package: Path) -> dict[str, Path]:
    return {module_name(path, package): path for path in sorted(package.rglob("*.py"))}


def imports(package: Path) -> list[Import]:
    """All imports of the package's own modules, those inside functions and for type checking included."""
    known = modules(package)
    return [
        Import(name, target, line, runs)
        for name, path in known.items()
        for target, line, runs in _targets(name, path, known)
        if target.partition(".")[0] == package.name
    ]


def _targets(name: str, path: Path, known: dict[str, Path]) -> Iterator[tuple[str, int, bool]]:
    home = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_bytes())
    for_types = {
        id(below)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for below in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno, id(node) not in for_types) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = home.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (up, node.module)))
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield (
                    (inner if inner in known or alias.name == "_native" else module),
                    node.lineno,
                    id(node) not in for_types,
                )
        elif isinstance(node, ast.Constant) and node.value in known and name != path.parent.name:
            # A name for importlib. The package itself maps its public names to the modules they live in.
            yield str(node.value), node.lineno, False


def part(module: str) -> str:
    """The file or folder of the package that a module belongs to; empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def layer(module: str) -> int:
    """How far up a module stands: 0 is the last layer."""
    [height] = [height for height, parts in enumerate(reversed(LAYERS)) if part(module) in parts]
    return height


def goes_down(found: Import) -> bool:
    source, target = part(found.source), part(found.target)
    if source == target or target in ("", "_native") or source == "":
        return True
    source_layer, target_layer = layer(found.source), layer(found.target)
    return target_layer < source_layer or source_layer == target_layer == 0


def of_a_concrete_drafter(found: Import) -> bool:
    target = found.target
    return target.startswith("foredraft.drafters.") and target not in DRAFTER_BASES


def test_every_part_has_a_layer() -> None:
    parts = {part(name) for name in modules(PACKAGE)} - {""}
    assert parts <= frozenset().union(*LAYERS)


def test_imports_go_down() -> None:
    wrong = [str(found) for found in imports(PACKAGE) if not goes_down(found)]
    assert not wrong, "\n".join(wrong)


def test_neighbours_in_the_last_layer_do_not_import_in_circles() -> None:
    needs: dict[str, set[str]] = {name: set() for name in LAYERS[-1]}
    for found in imports(PACKAGE):
        source, target = part(found.source), part(found.target)
        if source in needs and target in needs and source != target:
            needs[source].add(target)
    while free := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in free:
            del needs[name]
    assert not needs


def test_modules_do_not_import_each_other_in_circles() -> None:
    """Also not inside a folder. What is imported for type checking alone does not count, nor do names of resources."""
    needs: dict[str, set[str]] = {name: set() for name in modules(PACKAGE)}
    for found in imports(PACKAGE):
        if found.target in needs and PACKAGE.name not in (found.source, found.target) and found.runs:
            needs[found.source].add(found.target)
    while free := [name for name, others in needs.items() if not others & needs.keys()]:
        for name in free:
            del needs[name]
    assert not needs, f"these need each other: {', '.join(sorted(needs))}"


def test_compiled_code_is_touched_only_by_kernels() -> None:
    wrong = [str(f) for f in imports(PACKAGE) if part(f.target) == "_native" and part(f.source) != "kernels"]
    assert not wrong, "\n".join(wrong)


def test_concrete_drafters_are_named_by_those_who_make_them_only() -> None:
    """So no drafter imports another one, and nobody outside knows any of them."""
    wrong = [str(f) for f in imports(PACKAGE) if of_a_concrete_drafter(f) and f.source not in DRAFTER_MAKERS]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "code", "target"),
    [
        ("models/decoder.py", "from foredraft.drafters import make_drafter", "foredraft.drafters"),
        ("models/decoder.py", "from .. import llm", "foredraft.llm"),
        ("round.py", "def f():\n    import foredraft.engine", "foredraft.engine"),
        ("round.py", "import importlib\nimportlib.import_module('foredraft.llm')", "foredraft.llm"),
        ("tree.py", "from foredraft import _native", "foredraft._native"),
        ("drafters/none.py", "from .lookup import LookupDrafter", "foredraft.drafters.lookup"),
    ],
)
def test_the_reader_of_imports_sees_them(tmp_path: Path, path: str, code: str, target: str) -> None:
    package = tmp_path / "foredraft"
    for name in ("__init__.py", "llm.py", "engine/__init__.py", "drafters/__init__.py", "drafters/lookup.py", path):
        file = package / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (package / path).write_text(code)
    assert target in {found.target for found in imports(package)}


def test_the_order_of_layers_is_the_rule() -> None:
    assert goes_down(Import("foredraft.cli.generate", "foredraft.llm", 1))
    assert goes_down(Import("foredraft.text.tokenizer", "foredraft.errors", 1))
    assert not goes_down(Import("foredraft.round", "foredraft.engine.output", 1))
    assert not goes_down(Import("foredraft.target", "foredraft.planner", 1))
    assert not goes_down(Import("foredraft.tree", "foredraft.kernels", 1))
