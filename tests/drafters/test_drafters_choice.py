from pathlib import Path

import pytest
from helpers.engines import native_kernels, tiny_file, tiny_tokenizer

from foredraft.drafters import make_drafter
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.errors import OptionError, UserError


def make(*names: str) -> tuple[object, str]:
    return make_drafter(names, target=tiny_tokenizer(), kernels=native_kernels(1))


def test_names() -> None:
    for names, kind in [
        (["none"], NoDrafter),
        (["lookup"], LookupDrafter),
        (["auto"], LookupDrafter),
        (["lookup", "lookup"], LookupDrafter),
        ([str(tiny_file())], ModelDrafter),
        (["lookup", str(tiny_file())], FirstDrafter),
    ]:
        drafter, reason = make(*names)
        assert type(drafter) is kind
        assert reason


@pytest.mark.parametrize("names", [[], ["none", "lookup"], ["auto", "lookup"], ["suffixx"], [""], ["none", "auto"]])
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
