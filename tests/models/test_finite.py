"""Which tensor holds what is no number, in every format of weights."""

from pathlib import Path

import numpy as np
import pytest
from helpers.tiny import FAMILIES, TinyModel, gguf_name
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.errors import ModelFileError
from foredraft.kernels.formats import BLOCK, dequantize
from foredraft.models import finite
from foredraft.models.finite import find_not_finite, not_finite_error
from foredraft.models.source import open_model

DOWN = "model.layers.1.mlp.down_proj.weight"


class Damaged(TinyModel):
    """A tiny model with one weight that is no number."""

    value = float("nan")
    name = DOWN

    def weights(self) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        weights = super().weights()
        weights[self.name].reshape(-1)[-1] = self.value
        return weights


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tensor_is_named_as_the_file_names_it(tmp_path: Path, family: str) -> None:
    """Kind: a damaged weight is a fault of ours, and nobody learns where it is."""
    file = open_model(Damaged(family=family).write_gguf(tmp_path / "model.gguf"))
    assert find_not_finite(file) == gguf_name(DOWN, family)
    folder = open_model(Damaged(family=family).write_folder(tmp_path / "folder", dtype="BF16"))
    assert find_not_finite(folder) == DOWN
    error = not_finite_error(folder)
    assert isinstance(error, ModelFileError)
    assert str(error).startswith(f"{tmp_path / 'folder'}: tensor '{DOWN}' holds values that are not numbers")


@pytest.mark.parametrize("value", [float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_infinite_values_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, dtype: str) -> None:
    monkeypatch.setattr(Damaged, "value", value)
    monkeypatch.setattr(Damaged, "name", "model.norm.weight")
    folder = open_model(Damaged().write_folder(tmp_path / "folder", dtype=dtype))
    assert find_not_finite(folder) == "model.norm.weight"


@pytest.mark.parametrize("format", sorted(BLOCK))
def test_a_sound_model_has_none(tmp_path: Path, format: str) -> None:
    model = TinyModel(family="qwen2", width=256, ffn_width=512, head_width=64)
    source = open_model(model.write_gguf(tmp_path / "model.gguf", format=format))
    assert find_not_finite(source) is None
    assert not_finite_error(source) is None


@pytest.mark.parametrize("format", sorted(BLOCK))
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_blocks=st.integers(1, 40))
def test_it_is_what_the_weights_say(format: str, seed: int, num_blocks: int) -> None:
    """Bytes at random, with and without exponents of all ones, against the values that they stand for."""
    values, size = BLOCK[format]
    data = np.random.default_rng(seed).integers(0, 256, num_blocks * size, dtype=np.uint8)
    if seed % 2:
        data &= 0x3B  # of no format all bits of an exponent
    wanted = bool(np.isfinite(dequantize(data, format, (num_blocks * values,))).all())
    assert finite._is_finite(data, format) == wanted


def test_a_tensor_is_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finite, "_CHUNK_BYTES", 100)
    data = np.zeros(34 * 7, dtype=np.uint8)
    assert finite._is_finite(data, "Q8_0")
    data[34 * 6 + 1] = 0x7C
    assert not finite._is_finite(data, "Q8_0")
