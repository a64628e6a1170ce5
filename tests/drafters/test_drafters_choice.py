from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.engines import native_kernels, tiny_file, tiny_tokenizer

from foredraft.drafters import (
    AUTO,
    LARGE_VOCABULARY,
    NUM_FREQUENT_TOKENS,
    Drafter,
    DraftOptions,
    _frequent_tokens,
    make_drafter,
    make_drafters,
)
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.suffix import SuffixDrafter
from foredraft.errors import OptionError, UserError


def make(*names: str) -> tuple[Drafter, str]:
    return make_drafter(names, DraftOptions(tiny_tokenizer(), native_kernels(1)))


def test_names() -> None:
    for names, kind in [
        (["none"], NoDrafter),
        (["lookup"], LookupDrafter),
        (["suffix"], SuffixDrafter),
        (["auto"], MergeDrafter),
        (["auto", "auto", "lookup"], FirstDrafter),
        (["lookup", "lookup"], LookupDrafter),
        ([str(tiny_file())], ModelDrafter),
        (["lookup", str(tiny_file())], FirstDrafter),
    ]:
        drafter, reason = make(*names)
        assert type(drafter) is kind
        assert reason


@pytest.mark.parametrize("names", [[], ["none", "lookup"], ["auto", "none"], ["suffixx"], [""], ["none", "auto"]])
def test_names_without_meaning(names: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        make(*names)
    assert "\n" not in str(caught.value)
    if names == ["suffixx"]:
        assert "'suffixx'" in str(caught.value)
        assert "lookup" in str(caught.value)


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    for name in ("empty.gguf", "missing.gguf"):
        with pytest.raises(UserError, match=name):
            make(str(tmp_path / name))


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


def test_a_comma_in_the_name_of_a_file_makes_no_second_method(tmp_path: Path) -> None:
    path = tmp_path / "a,b.gguf"
    path.write_bytes(tiny_file().read_bytes())
    drafter, _ = make("lookup", str(path))
    assert drafter.name == "lookup,model:a_b"


def test_auto_stands_for_several_in_its_place() -> None:
    options = DraftOptions(tiny_tokenizer(), native_kernels(1))
    names = [drafter.name for drafter in make_drafters(["lookup", "auto", "suffix"], options)]
    assert names == ["lookup", *(name for name in AUTO if name != "lookup")]
    assert [drafter.name for drafter in make_drafters(["none"], options)] == ["none"]
