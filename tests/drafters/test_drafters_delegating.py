"""Drafters that wrap others lose no ability: all that a drafter can do is passed on."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from helpers.drafting import View, budgets, no_features, unspeculated

import foredraft
from foredraft.drafters.base import Drafter, DrafterSpec
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.tree import DraftTree

PUBLIC = [name for name, _ in inspect.getmembers(Drafter) if not name.startswith("_")]
FROM_SPEC = {"name": "name", "model_free": "model_free"}
"""Properties that say what the spec says."""
VIEW = View([1, 2])
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "propose": (([VIEW], budgets(2)), {}),
    "begin": ((VIEW, no_features(VIEW)), {}),
    "observe": (([VIEW], unspeculated([VIEW])), {}),
    "end": ((7,), {}),
    "num_uncached_tokens": ((VIEW,), {}),
    "time_step": ((), {"num_tokens": 3, "context": 5}),
    "prefill": ((VIEW, 4), {}),
    "begin_late": ((VIEW, 4), {}),
    "reset_prefix_cache": ((), {}),
}
RESULTS = {"propose": [DraftTree.chain(2, (3,))], "num_uncached_tokens": 11, "time_step": 0.25}
SPEC = DrafterSpec(
    name="noting",
    model_free=False,
    layers=(1, 4),
    needs_prompt_features=True,
    can_begin_late=True,
    observes_skipped_rounds=False,
    identity="one",
)


def noting(name: str = "noting") -> Any:
    """A drafter that notes how each of its methods is called."""
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def method(method_name: str) -> Any:
        def called(self: Drafter, *arguments: Any, **options: Any) -> Any:
            calls.append((method_name, arguments, options))
            return RESULTS.get(method_name)

        return called

    members = {method_name: method(method_name) for method_name in ARGUMENTS}
    properties = {
        "names": property(lambda self: (f"{name} 1", f"{name} 2")),
        "problem": property(lambda self: f"{name}!"),
    }
    spec = DrafterSpec(**{**vars(SPEC), "name": name})
    return type("Noting", (Drafter,), {"spec": spec, "calls": calls, **members, **properties})()


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - FROM_SPEC.keys()))
def test_all_that_a_drafter_can_do_is_passed_on(name: str) -> None:
    """Kind: a method is added to the base, and a wrapper answers for what it wraps."""
    assert name in vars(DelegatingDrafter), f"DelegatingDrafter does not override {name}"
    inner = noting()
    outer = DelegatingDrafter(inner)
    if isinstance(vars(Drafter)[name], property):
        assert getattr(outer, name) == getattr(inner, name)
        return
    arguments, options = ARGUMENTS[name]
    assert getattr(outer, name)(*arguments, **options) == RESULTS.get(name)
    assert inner.calls == [(name, arguments, options)]
    assert all(given is passed for given, passed in zip(arguments, inner.calls[0][1], strict=True))


def test_what_is_declared_is_declared_by_the_wrapper() -> None:
    outer = DelegatingDrafter(noting())
    assert outer.spec == SPEC
    for name, field in FROM_SPEC.items():
        assert getattr(outer, name) == getattr(SPEC, field)
    assert all(getattr(SPEC, field.name) != field.default for field in fields(DrafterSpec))  # so nothing is left out


@pytest.mark.parametrize("name", sorted(ARGUMENTS.keys() - {"propose"}))
def test_of_several_drafters_all_are_told(name: str) -> None:
    one, two = noting("one"), noting("two")
    outer = DelegatingDrafter(one, two)
    arguments, options = ARGUMENTS[name]
    found = getattr(outer, name)(*arguments, **options)
    assert one.calls == two.calls == [(name, arguments, options)]
    if name in RESULTS:
        assert found == 2 * RESULTS[name]  # type: ignore[operator]


def test_several_drafters_together() -> None:
    outer = DelegatingDrafter(noting("one"), noting("two"))
    assert outer.names == ("one 1", "one 2", "two 1", "two 2")
    assert outer.problem == "one!; two!"
    assert (outer.name, outer.model_free, outer.spec.layers) == ("one+two", False, (1, 4))


def wrappers(package: Path) -> dict[str, list[str]]:
    """Classes that propose and are made of another drafter or of several, with the names of their bases."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
                if "propose" in methods and "__init__" in methods and _takes_a_drafter(methods["__init__"]):
                    found[node.name] = [ast.unparse(base) for base in node.bases]
    return found


def _takes_a_drafter(constructor: ast.FunctionDef) -> bool:
    arguments = constructor.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg]
    return any(one and one.annotation and "Drafter" in ast.unparse(one.annotation) for one in every)


def test_every_wrapper_is_a_delegating_drafter() -> None:
    found = wrappers(Path(foredraft.__file__).parent)
    ours = {"FallbackDrafter", "MergeDrafter", "MinSurvivalDrafter", "CrossVocabularyDrafter", "SupervisedDrafter"}
    assert ours <= found.keys()
    assert found.pop("_Proposer") == []  # no drafter: it speaks vLLM's interface
    for name, bases in found.items():
        if name != "DelegatingDrafter":
            assert "DelegatingDrafter" in bases, name


def test_a_wrapper_of_another_base_is_found(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(
        "class Wrapper(Drafter):\n"
        "    def __init__(self, drafter: Drafter) -> None: ...\n"
        "    def propose(self, sequences, budgets): ...\n"
    )
    assert wrappers(tmp_path) == {"Wrapper": ["Drafter"]}
