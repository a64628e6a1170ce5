"""Drafters from outside: objects that users bring, and those that installed packages offer by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.drafting import Echo, View, budgets
from helpers.engines import native_kernels, tiny_file, tiny_tokenizer

from foredraft.config import DraftConfig
from foredraft.drafters import DraftContext, Drafter, DrafterSpec, make_drafter, make_drafters
from foredraft.drafters.plugin import as_drafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.errors import ForedraftError, OptionError

VOCAB_SIZE = tiny_tokenizer().vocab_size
CONTEXT = DraftContext(tokenizer=tiny_tokenizer(), vocab_size=VOCAB_SIZE, kernels=native_kernels(1))


def made(*asked: object) -> list[Drafter]:
    return make_drafters(DraftConfig(drafters=asked), CONTEXT)


# --- objects --------------------------------------------------------------------------------------------------------


def test_an_object_drafts_alone_and_among_others() -> None:
    echo = Echo()
    [drafter] = made(echo)
    assert drafter.propose([View([1, 2])], budgets(1))[0].tokens == (2, 2)
    assert [d.name for d in made("lookup", echo, "auto", echo)[:2]] == ["lookup", "echo"]
    assert make_drafter(DraftConfig(drafters=(echo, "lookup")), CONTEXT)[0].names == ("echo", "lookup")


def with_spec(spec: object) -> Echo:
    echo = Echo()
    echo.spec = spec  # type: ignore[assignment]
    return echo


class NoSpec(Drafter):
    propose = Echo.propose


class NoBase:
    spec = DrafterSpec(name="no base")
    propose = Echo.propose


@pytest.mark.parametrize(
    ("drafter", "parts"),
    [
        (Echo, ["Echo is a class", "Echo(...)"]),
        (5, ["int", "subclass of foredraft.drafters.Drafter", "docs/adding-a-drafter.md"]),
        (None, ["NoneType", "subclass"]),
        (NoBase(), ["NoBase", "subclass of foredraft.drafters.Drafter"]),
        (NoSpec(), ["NoSpec", "`spec`", "DrafterSpec(name=...)"]),
        (with_spec("echo"), ["Echo", "`spec`"]),
        (with_spec(DrafterSpec(name="")), ["Echo", "`name`", "''"]),
        (with_spec(DrafterSpec(name=" ")), ["Echo", "`name`"]),
        (with_spec(DrafterSpec(name="a\nb")), ["Echo", "`name`", "one line"]),
        (with_spec(DrafterSpec(name=5)), ["Echo", "`name`", "5"]),  # type: ignore[arg-type]
        (with_spec(DrafterSpec(name="a", model_free=1)), ["Echo", "`model_free`", "True or False"]),  # type: ignore[arg-type]
        (with_spec(DrafterSpec(name="a", can_begin_late="no")), ["`can_begin_late`", "'no'"]),  # type: ignore[arg-type]
        (with_spec(DrafterSpec(name="a", layers=(1, -1))), ["`layers`", "(1, -1)"]),
        (with_spec(DrafterSpec(name="a", layers=3)), ["`layers`", "3"]),  # type: ignore[arg-type]
        (with_spec(DrafterSpec(name="a", identity=None)), ["`identity`", "None"]),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_drafter(drafter: object, parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        as_drafter(drafter)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_a_drafter_that_lacks_something_is_refused_where_it_is_asked_for() -> None:
    for drafter in (NoSpec(), NoBase(), Echo):
        with pytest.raises(OptionError, match=r"needs a `spec`|must be of a subclass|is a class"):
            made(drafter)


def test_what_objects_propose_is_checked_and_what_ours_do_is_not() -> None:
    ours, theirs = made("lookup", Echo())
    assert isinstance(ours, SupervisedDrafter)
    assert isinstance(theirs, SupervisedDrafter)
    assert (ours._vocab_size, theirs._vocab_size) == (None, VOCAB_SIZE)


def test_what_a_drafter_says_of_itself_is_passed_on() -> None:
    """Kind: a plugin is told of every round although it asked not to be."""
    spec = DrafterSpec(name="told", observes_skipped_rounds=False, identity="one", needs_prompt_features=True)
    [drafter] = made(with_spec(spec))
    assert drafter.spec == spec
    [drafter] = make_drafters(
        DraftConfig(drafters=(with_spec(replace(spec, model_free=False)),), min_survival=0.5), CONTEXT
    )
    assert drafter.spec == replace(spec, model_free=False)


# --- by name --------------------------------------------------------------------------------------------------------

MODULE = """
from foredraft.errors import OptionError
from foredraft.drafters import DrafterSpec
from foredraft.drafters.lookup import LookupDrafter

class Named(LookupDrafter):
    def __init__(self, name):
        super().__init__()
        self.spec = DrafterSpec(name=name)

def make(context): return Named(f"mine-{context.tokenizer.vocab_size}-{context.config.num_draft_tokens}")
def fails(context): raise RuntimeError("no luck")
def refuses(context): raise OptionError("set MY_DRAFTER first")
def wrong(context): return 5
value = 7
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a package with entry points, as pip would leave it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(package: str = "my_drafters", **points: str) -> None:
        (tmp_path / f"{package}.py").write_text(MODULE)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[foredraft.drafters]", *lines, ""]))

    return install


def test_a_drafter_of_an_installed_package(install: Callable[..., None]) -> None:
    install(mine="my_drafters:make")
    [drafter] = make_drafters(DraftConfig(drafters=("mine",), num_draft_tokens=3), CONTEXT)
    assert drafter.name == f"mine-{VOCAB_SIZE}-3"
    assert drafter.propose([View([1, 2, 3, 1, 2])], budgets(1))[0].tokens == (2, 3)
    assert isinstance(drafter, SupervisedDrafter)
    assert drafter._vocab_size == VOCAB_SIZE
    with pytest.raises(OptionError, match=r"unknown draft .nimm.: .*lookup.*mine"):
        made("nimm")


def test_our_own_names_stay_ours(install: Callable[..., None]) -> None:
    install(lookup="my_drafters:fails")
    assert made("lookup")[0].name == "lookup"


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("my_drafters:fails", ["'mine'", "my_drafters:fails", "RuntimeError: no luck"]),
        ("my_drafters:refuses", ["set MY_DRAFTER first"]),
        ("my_drafters:absent", ["'mine'", "absent"]),
        ("no_such_module_anywhere:make", ["'mine'", "no_such_module_anywhere"]),
        ("my_drafters:value", ["my_drafters:value", "no function"]),
        ("my_drafters:wrong", ["int", "subclass"]),
    ],
)
def test_packages_that_fail(install: Callable[..., None], value: str, parts: list[str]) -> None:
    install(mine=value)
    with pytest.raises(OptionError) as caught:
        made("mine")
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_two_packages_with_one_name(install: Callable[..., None]) -> None:
    install("one", mine="one:make")
    install("two", mine="two:make")
    with pytest.raises(OptionError, match="one:make and two:make"):
        made("mine")


def test_a_model_in_a_folder_is_no_plugin(install: Callable[..., None]) -> None:
    install(mine="my_drafters:make")
    with pytest.raises(ForedraftError):
        made("./mine")
    assert made(str(tiny_file()))[0].name.startswith("model:")
