import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from helpers.drafting import View, budgets, unspeculated
from helpers.engines import native_kernels, tiny_file, tiny_tokenizer

from foredraft.drafters import Drafter, DraftOptions, make_drafter, make_drafters
from foredraft.drafters.base import CostlyDrafter, LateReader, Outcome, RequestView
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.plugin import guarded
from foredraft.errors import DrafterError, ForedraftError, OptionError
from foredraft.tree import Budget, DraftTree

OPTIONS = DraftOptions(tiny_tokenizer(), native_kernels(1))
VOCAB_SIZE = tiny_tokenizer().vocab_size


class Echo:
    """Proposes the last token again."""

    name = "echo"
    free = True

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        trees = []
        for request, budget in zip(requests, budgets, strict=True):
            last = request.tokens[-1]
            trees.append(DraftTree.chain(last, (last,)[: budget.num_tokens]))
        return trees

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        pass

    def forget(self, request_id: int) -> None:
        pass


# --- objects --------------------------------------------------------------------------------------------------------


def test_an_object_drafts_alone_and_among_others() -> None:
    echo = Echo()
    drafter, _ = make_drafter([echo], OPTIONS)
    assert drafter.propose([View([1, 2])], budgets(3))[0].tokens == (2, 2)
    assert [d.name for d in make_drafters(["lookup", echo, "auto", echo], OPTIONS)[:2]] == ["lookup", "echo"]
    assert make_drafter([echo, "lookup"], OPTIONS)[0].name == "echo,lookup"


def test_two_of_one_name_are_refused() -> None:
    lookalike = LookupDrafter()
    for asked in (["lookup", lookalike], [Echo(), Echo()]):
        with pytest.raises(OptionError, match="two drafters are called"):
            make_drafters(asked, OPTIONS)


def missing(attribute: str, value: object = None) -> object:
    fields = {**vars(Echo), attribute: value}
    return type("Broken", (), fields)()


@pytest.mark.parametrize(
    ("drafter", "parts"),
    [
        (Echo, ["Echo is a class", "Echo(...)"]),
        (5, ["int", "name"]),
        (None, ["NoneType", "name"]),
        (missing("name"), ["Broken", "`name`"]),
        (missing("name", "a,b"), ["Broken", "without commas"]),
        (missing("free"), ["Broken", "`free`"]),
        (missing("free", 1), ["Broken", "`free`"]),
        (missing("propose"), ["Broken", "`propose`", "docs/drafters.md"]),
        (missing("observe", "text"), ["Broken", "`observe`"]),
        (missing("forget"), ["Broken", "`forget`"]),
        (missing("free", False), ["Broken", "`num_unread`", "free = False"]),
    ],
)
def test_what_is_no_drafter(drafter: object, parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        make_drafters([drafter], OPTIONS)  # type: ignore[list-item]
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


# --- behaviour ------------------------------------------------------------------------------------------------------


def proposing(propose: Callable[..., object]) -> Drafter:
    return guarded(missing("propose", lambda self, requests, budgets: propose(requests, budgets)), VOCAB_SIZE)


@pytest.mark.parametrize(
    ("propose", "parts"),
    [
        (lambda r, b: 1 / 0, ["failed in `propose`", "ZeroDivisionError", "division by zero"]),
        (lambda r, b: None, ["None", "list of 2 trees"]),
        (lambda r, b: [DraftTree.chain(2)], ["list of 2 trees"]),
        (lambda r, b: [DraftTree.chain(2), (4, 5)], ["(4, 5)", "DraftTree"]),
        (lambda r, b: [DraftTree.chain(2), DraftTree.chain(9)], ["root 9", "last token is 4"]),
        (lambda r, b: [DraftTree.chain(2, (1, 2, 3)), DraftTree.chain(4)], ["3 tokens", "2 were asked"]),
        (lambda r, b: [DraftTree.chain(2, (-1,)), DraftTree.chain(4)], ["token -1", f"vocabulary of {VOCAB_SIZE}"]),
        (lambda r, b: [DraftTree.chain(2, (VOCAB_SIZE,)), DraftTree.chain(4)], [f"token {VOCAB_SIZE}", "vocabulary"]),
        (lambda r, b: [DraftTree.chain(2, ("a",)), DraftTree.chain(4)], ["token 'a'", "no int"]),
        (lambda r, b: [DraftTree.chain(2, (1,), (math.nan,)), DraftTree.chain(4)], ["confidence nan", "from 0 to 1"]),
        (lambda r, b: [DraftTree.chain(2, (1,), (1.5,)), DraftTree.chain(4)], ["confidence 1.5", "from 0 to 1"]),
        (lambda r, b: [DraftTree((2, 3), (-1, 1)), None], ["failed in `propose`", "ValueError"]),
    ],
)
def test_what_no_drafter_may_propose(propose: Callable[..., object], parts: list[str]) -> None:
    with pytest.raises(DrafterError) as caught:
        proposing(propose).propose([View([1, 2]), View([3, 4], id=1)], budgets(2, 2))
    assert "\n" not in str(caught.value)
    for part in ("'echo'", *parts):
        assert part in str(caught.value)


def test_failures_of_the_other_methods() -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("line one\nline two")

    view = View([1, 2])
    with pytest.raises(DrafterError, match="failed in `observe`: RuntimeError: line one line two"):
        guarded(missing("observe", fail), VOCAB_SIZE).observe([view], unspeculated([view]))
    with pytest.raises(DrafterError, match="failed in `forget`"):
        guarded(missing("forget", fail), VOCAB_SIZE).forget(0)


def costly(**methods: Callable[..., object]) -> CostlyDrafter:
    fields = {
        **vars(Echo),
        "free": False,
        "num_unread": lambda self, request: len(request.tokens),
        "time_step": lambda self, *, num_tokens, context: 0.5 * num_tokens + context,
    }
    return guarded(type("Costly", (), fields | methods)(), VOCAB_SIZE)  # type: ignore[return-value]


def test_a_costly_drafter_keeps_its_methods() -> None:
    drafter = costly()
    assert not drafter.free
    assert drafter.num_unread(View([1, 2])) == 2
    assert drafter.time_step(num_tokens=2, context=1) == 2.0


def test_one_that_need_not_read_all_may_say_so() -> None:
    """Kind: a method that the documentation speaks of is never called."""
    asked: list[int] = []
    drafter = costly(read_only_end=lambda self, request, num_tokens: asked.append(num_tokens))
    assert isinstance(drafter, LateReader)
    drafter.read_only_end(View([1, 2]), 7)
    assert asked == [7]
    assert not isinstance(costly(), LateReader)

    def fail(*_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(DrafterError, match="failed in `read_only_end`"):
        costly(read_only_end=fail).read_only_end(View([1, 2]), 7)  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", [-1, 1.5, None])
def test_what_cannot_be_unread(value: object) -> None:
    with pytest.raises(DrafterError, match=f"returned {value} from `num_unread`"):
        costly(num_unread=lambda self, request: value).num_unread(View([1, 2]))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
def test_what_no_step_takes(value: object) -> None:
    """Kind: a calibration that cannot be used comes up as a fault of ours."""
    with pytest.raises(DrafterError, match=f"returned {value} from `time_step`"):
        costly(time_step=lambda self, *, num_tokens, context: value).time_step(num_tokens=1, context=0)


# --- by name --------------------------------------------------------------------------------------------------------

MODULE = """
from foredraft.errors import OptionError
from foredraft.drafters.lookup import LookupDrafter

class Named(LookupDrafter):
    def __init__(self, name):
        super().__init__()
        self.name = name

def make(options): return Named(f"mine-{options.target.vocab_size}")
def fails(options): raise RuntimeError("no luck")
def refuses(options): raise OptionError("set MY_DRAFTER first")
def wrong(options): return 5
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
    [drafter] = make_drafters(["mine"], OPTIONS)
    assert drafter.name == f"mine-{VOCAB_SIZE}"
    assert drafter.propose([View([1, 2, 3, 1, 2])], budgets(1))[0].tokens == (2, 3)
    with pytest.raises(OptionError, match=r"unknown draft .nimm.: .*lookup.*mine"):
        make_drafters(["nimm"], OPTIONS)


def test_our_own_names_stay_ours(install: Callable[..., None]) -> None:
    install(lookup="my_drafters:fails")
    assert isinstance(make_drafters(["lookup"], OPTIONS)[0], LookupDrafter)


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("my_drafters:fails", ["'mine'", "my_drafters:fails", "RuntimeError: no luck"]),
        ("my_drafters:refuses", ["set MY_DRAFTER first"]),
        ("my_drafters:absent", ["'mine'", "absent"]),
        ("no_such_module_anywhere:make", ["'mine'", "no_such_module_anywhere"]),
        ("my_drafters:value", ["my_drafters:value", "no function"]),
        ("my_drafters:wrong", ["int", "name"]),
    ],
)
def test_packages_that_fail(install: Callable[..., None], value: str, parts: list[str]) -> None:
    install(mine=value)
    with pytest.raises(OptionError) as caught:
        make_drafters(["mine"], OPTIONS)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_two_packages_with_one_name(install: Callable[..., None]) -> None:
    install("one", mine="one:make")
    install("two", mine="two:make")
    with pytest.raises(OptionError, match="one:make and two:make"):
        make_drafters(["mine"], OPTIONS)


def test_a_model_in_a_folder_is_no_plugin(install: Callable[..., None]) -> None:
    install(mine="my_drafters:make")
    with pytest.raises(ForedraftError):
        make_drafters(["./mine"], OPTIONS)
    assert make_drafters([str(tiny_file())], OPTIONS)[0].name.startswith("model:")


def test_what_a_drafter_says_of_itself_is_passed_on() -> None:
    """Kind: a plugin is told of every round although it asked not to be."""

    class Dozing(Echo):
        dozes, identity = True, "one"

    wrapped = guarded(Dozing(), VOCAB_SIZE)
    assert (wrapped.dozes, wrapped.identity) == (True, "one")  # type: ignore[attr-defined]
    plain = guarded(Echo(), VOCAB_SIZE)
    assert (plain.dozes, plain.identity) == (False, "")  # type: ignore[attr-defined]
