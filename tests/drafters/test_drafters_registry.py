"""From names to drafters: what there is, what is refused, and what a configuration does to them."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.drafting import Echo, View
from helpers.engines import native_kernels, tiny_decoder, tiny_file, tiny_tokenizer

from foredraft.config import DraftConfig
from foredraft.drafters import (
    METHODS_WITHOUT_MODEL,
    DraftContext,
    Drafter,
    DrafterSpec,
    drafter_of_text,
    first_with_grammar,
    is_method,
    make_drafter,
    make_drafters,
    names_a_model,
    with_grammar,
)
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.load_model import LARGE_VOCABULARY, NUM_FREQUENT_TOKENS, _frequent_tokens
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.registry import AUTO
from foredraft.drafters.suffix import SuffixDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.errors import OptionError, UserError
from foredraft.tree import Budget

CONTEXT = DraftContext(tokenizer=tiny_tokenizer(), vocab_size=tiny_tokenizer().vocab_size, kernels=native_kernels(1))


def config(*names: object, **options: object) -> DraftConfig:
    return DraftConfig(drafters=names, **options)  # type: ignore[arg-type]


def make(*names: object, **options: object) -> tuple[Drafter, str]:
    return make_drafter(config(*names, **options), CONTEXT)


def within(drafter: Drafter) -> Drafter:
    """The drafter that is supervised."""
    assert isinstance(drafter, SupervisedDrafter)
    return drafter._drafter


def test_names() -> None:
    for names, kind in [
        (["none"], NoDrafter),
        (["lookup"], LookupDrafter),
        (["suffix"], SuffixDrafter),
        (["lookup", "lookup"], LookupDrafter),
        ([str(tiny_file())], ModelDrafter),
    ]:
        drafter, reason = make(*names)
        assert type(within(drafter)) is kind
        assert reason
    for names, wrapper in [
        (["auto"], MergeDrafter),
        (["auto", "auto", "lookup"], FallbackDrafter),
        (["lookup", str(tiny_file())], FallbackDrafter),
    ]:
        drafter, reason = make(*names)
        assert type(drafter) is wrapper
        assert reason


def test_every_drafter_is_supervised() -> None:
    """Kind: one of several is forgotten, and what it raises ends all sequences."""
    for drafter in make_drafters(config("lookup", "auto", str(tiny_file()), Echo()), CONTEXT):
        assert isinstance(drafter, SupervisedDrafter)
    grammar, lookup = with_grammar([SupervisedDrafter(LookupDrafter())])
    assert isinstance(grammar, SupervisedDrafter)
    assert (grammar.name, lookup.name) == ("grammar", "lookup")
    assert first_with_grammar(lookup).names == ("grammar", "lookup")


@pytest.mark.parametrize(
    "names",
    [["suffixx"], [""], ["skipp:3"], ["lookup:3"], ["auto:"], ["none:1"]],
    ids=lambda names: names[0] or "empty",
)
def test_names_without_meaning(names: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        make(*names)
    assert "\n" not in str(caught.value)
    assert repr(names[0]) in str(caught.value)
    assert "lookup" in str(caught.value)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for name in ("empty.gguf", "missing.gguf"):
        with pytest.raises(UserError, match=name):
            make(str(tmp_path / name))


def test_what_is_a_method_and_what_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lookup").mkdir()
    for name in (*METHODS_WITHOUT_MODEL, "auto", "none", "skip:3-10"):
        assert is_method(name)
        assert not names_a_model(name)
    for name in ("./lookup", str(tiny_file()), "smollm2-135m"):
        assert names_a_model(name)
        assert not is_method(name)
    for name in ("suffixx", "lookup:3"):
        assert not is_method(name)
        assert not names_a_model(name)


def test_drafters_that_go_by_the_text_alone() -> None:
    for name in ("lookup", "suffix"):
        drafter = drafter_of_text(name)
        assert drafter is not None
        assert drafter.name == name
        other = drafter_of_text(name)
        assert other is not None
        assert drafter.propose([View([1, 2, 3, 1, 2])], [Budget(1)])[0].tokens == (2, 3)
        drafter.end(0)
        assert other.propose([View([9, 1, 2], id=1)], [Budget(1)])[0].num_draft_tokens == 0
    assert drafter_of_text("recycle") is drafter_of_text("model:x") is None


def test_frequent_tokens_of_a_vocabulary_with_its_characters_last() -> None:
    """Kind: the full stop is not among the tokens a drafter may propose, because its id is high."""
    texts = [*(f"word{i}" for i in range(100)), *".,0123456789", *(f"rare{i}" for i in range(88))]
    target = SimpleNamespace(vocabulary=SimpleNamespace(tokens=texts), eos_ids={1, 150, 300})
    assert _frequent_tokens(target, 200, 48).tolist() == [*range(48), *range(100, 106), 150]
    assert _frequent_tokens(target, 104, 48).tolist() == [*range(48), *range(100, 104)]
    for wanted in (None, 0, 200, 1000):
        assert _frequent_tokens(target, 200, wanted) is None
    large = _frequent_tokens(target, LARGE_VOCABULARY + 1, None)
    assert large is not None
    assert large.tolist() == [*range(NUM_FREQUENT_TOKENS)]


def test_a_comma_in_the_name_of_a_file_makes_no_second_drafter(tmp_path: Path) -> None:
    path = tmp_path / "a,b.gguf"
    path.write_bytes(tiny_file().read_bytes())
    drafter, _ = make("lookup", str(path))
    assert drafter.names == ("lookup", "model:a,b")


def test_auto_stands_for_several_in_its_place() -> None:
    names = [drafter.name for drafter in make_drafters(config("lookup", "auto", "suffix"), CONTEXT)]
    assert names == ["lookup", "suffix", "recycle", "prediction"]
    assert AUTO == ("suffix", "recycle", "prediction")
    assert [drafter.name for drafter in make_drafters(config("none"), CONTEXT)] == ["none"]


def test_two_of_one_name_are_refused() -> None:
    for asked in (["lookup", LookupDrafter()], [Echo(), Echo()]):
        with pytest.raises(OptionError, match="two drafters are called"):
            make_drafters(config(*asked), CONTEXT)


@pytest.mark.parametrize(
    ("names", "options", "part"),
    [
        (["auto"], {"num_branches": 3}, "--draft-branches"),
        (["lookup", "jacobi"], {"vocab_size": 20}, "--draft-vocab"),
        (["suffix"], {"min_survival": 0.5}, "min_survival"),
        (["lookup"], {"memory": "file"}, "--draft-memory"),
        ([str(tiny_file())], {"memory": "file"}, "--draft-memory"),
    ],
)
def test_options_without_effect_are_refused(names: list[str], options: dict[str, object], part: str) -> None:
    """Kind: an option is silently without effect."""
    with pytest.raises(OptionError, match=f"{part} .*add"):
        make_drafters(config(*names, **options), CONTEXT)
    make_drafters(config("none", **options), CONTEXT)  # to compare with
    if part != "--draft-memory":
        make_drafters(config(*names, str(tiny_file()), **options), CONTEXT)
        make_drafters(config(*names, Echo(), **options), CONTEXT)  # which may make something of it


@pytest.mark.parametrize("num_branches", [1, 3])
def test_a_draft_model_stops_behind_an_unlikely_token(num_branches: int) -> None:
    whole, limited, off = (
        make_drafters(config(str(tiny_file()), min_survival=least, num_branches=num_branches), CONTEXT)[0]
        for least in (0.0, 0.3, 0.99)
    )
    view, budget = View([1, 2, 3, 4]), [Budget(8)]
    [all_], [some], [one] = (drafter.propose([view], budget) for drafter in (whole, limited, off))
    assert all_.num_draft_tokens == 8
    survival = [1.0]
    for node in range(1, some.num_nodes):
        survival.append(survival[some.parents[node]] * some.confidence[node])
    assert all(survival[parent] >= 0.3 for parent in some.parents[1:])
    assert one.num_draft_tokens == num_branches < all_.num_draft_tokens
    assert limited.spec.can_begin_late
    assert limited.num_uncached_tokens(view) <= 1
    # A budget that asks for more than that is kept to.
    [short] = whole.propose([view], [Budget(8, min_survival=0.99)])
    for strict in (Budget(8, min_survival=0.99), Budget(8, min_survival=lambda depth: 0.99)):
        assert limited.propose([view], [strict]) == [short]


class Looking(Echo):
    """Wants to see a layer."""

    def __init__(self, layer: int) -> None:
        self.spec = DrafterSpec(name="looking", layers=(layer,))


def test_layers_that_the_target_does_not_have_are_refused() -> None:
    with pytest.raises(OptionError, match=r"looking .*target that is a model"):
        make_drafters(config(Looking(0)), CONTEXT)
    decoder = tiny_decoder()
    context = DraftContext(tokenizer=tiny_tokenizer(), vocab_size=9, kernels=native_kernels(1), decoder=decoder)
    [drafter] = make_drafters(config(Looking(1)), context)
    assert drafter.spec.layers == (1,)
    with pytest.raises(OptionError, match=r"looking .*layer 2.*0 to 1"):
        make_drafters(config(Looking(2)), context)
