"""Which kernels are chosen, and what is said where there are none."""

import importlib.util
import sys

import pytest

import foredraft
from foredraft.kernels import choose


def test_sources_without_their_compiled_module_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foredraft._native", None)  # type: ignore[arg-type]
    monkeypatch.delattr(foredraft, "_native", raising=False)
    monkeypatch.delitem(sys.modules, "foredraft.kernels.native")
    spec = importlib.util.spec_from_file_location("choose_in_a_clone", choose.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"start Python in another folder, or install .* \(pip install -e \.\)"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
