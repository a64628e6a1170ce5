import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.quantise import quantise
from helpers.tiny import (
    FAMILIES,
    LLAMA3,
    TinyModel,
    dequantised,
    gguf_name,
    interleave,
    uninterleave,
    write_shards,
)
from safetensors.numpy import save_file

from foredraft.errors import ModelFileError
from foredraft.kernels.formats import BLOCK, dequantize
from foredraft.models.source import ModelSource, open_model


def values(source: ModelSource, name: str) -> np.ndarray[Any, Any]:
    tensor = source.tensors[name]
    return dequantize(tensor.data, tensor.format, tensor.shape)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_shards", [1, 3])
def test_folder_gives_back_the_weights_bit_for_bit(tmp_path: Path, family: str, num_shards: int) -> None:
    model = TinyModel(family=family, seed=3, tied=family == "gemma3")
    source = open_model(model.write_folder(tmp_path / "model", num_shards=num_shards))
    assert (source.kind, source.path, source.tokenizer_data) == (
        "safetensors",
        tmp_path / "model",
        tmp_path / "model",
    )
    weights = model.weights()
    assert len(source.tensors) == len(weights)
    assert source.unused_tensors == ()
    for name, expected in weights.items():
        np.testing.assert_array_equal(values(source, gguf_name(name, family)), expected)
        assert source.tensors[gguf_name(name, family)].name == gguf_name(name, family)


@pytest.mark.parametrize("family", FAMILIES)
def test_gguf_gives_back_the_weights_bit_for_bit(tmp_path: Path, family: str) -> None:
    model = TinyModel(family=family, seed=4, attention_bias=True)
    source = open_model(model.write_gguf(tmp_path / "model.gguf"))
    assert source.kind == "gguf"
    assert isinstance(source.tokenizer_data, dict)
    assert len(source.tokenizer_data["tokenizer.ggml.tokens"]) == 275
    for name, expected in model.weights().items():
        if family == "llama" and (".q_proj." in name or ".k_proj." in name):
            expected = interleave(expected, 4 if ".q_proj." in name else 2)
        if family == "gemma3" and "norm" in name:
            expected = expected + np.float32(1.0)
        np.testing.assert_array_equal(values(source, gguf_name(name, family)), expected)


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_half_precision_folders(tmp_path: Path, dtype: str) -> None:
    model = TinyModel(seed=5)
    source = open_model(model.write_folder(tmp_path / "model", dtype=dtype))
    for name, expected in model.weights().items():
        tensor = source.tensors[gguf_name(name, "llama")]
        assert tensor.format == dtype
        tolerance = {"F16": 1e-3, "BF16": 8e-3}[dtype]
        np.testing.assert_allclose(dequantize(tensor.data, dtype, tensor.shape), expected, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("format", sorted(BLOCK))
def test_gguf_of_every_format(tmp_path: Path, format: str) -> None:
    model = TinyModel(family="qwen2", width=256, ffn_width=512, head_width=64, seed=6)
    source = open_model(model.write_gguf(tmp_path / "model.gguf", format=format))
    tensor = source.tensors["blk.1.ffn_down.weight"]
    assert (tensor.format, tensor.shape) == (format, (256, 512))
    assert tensor.data.dtype == np.dtype(np.uint8)
    assert (tensor.data.ndim, tensor.data.flags.writeable) == (1, False)
    expected = model.weights()["model.layers.1.mlp.down_proj.weight"]
    np.testing.assert_array_equal(tensor.data, quantise(expected, format).reshape(-1))
    error = np.linalg.norm(values(source, tensor.name) - expected) / np.linalg.norm(expected)
    assert error < {"Q4": 0.12, "Q5": 0.06, "Q6": 0.04}.get(format[:2], 0.02)


def test_folders_written_by_the_safetensors_library(tmp_path: Path) -> None:
    model = TinyModel(seed=8)
    path = model.write_folder(tmp_path / "model")
    (path / "model.safetensors").unlink()
    save_file(model.weights(), path / "model.safetensors")
    source = open_model(path)
    for name, expected in model.weights().items():
        np.testing.assert_array_equal(values(source, gguf_name(name, "llama")), expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_folder_and_gguf_describe_the_same_model(tmp_path: Path, family: str) -> None:
    scaling = LLAMA3 if family == "llama" else {"rope_type": "linear", "factor": 4.0}
    model = TinyModel(family=family, num_layers=7, rope_scaling=scaling)
    folder = open_model(model.write_folder(tmp_path / "model")).config
    file = open_model(model.write_gguf(tmp_path / "model.gguf")).config
    same = [
        name for name in folder.__dataclass_fields__ if name not in ("rope", "norm_epsilon", "norm_weight_plus_one")
    ]
    for name in same:
        assert getattr(folder, name) == getattr(file, name), name
    assert np.float32(folder.norm_epsilon) == np.float32(file.norm_epsilon)
    assert (folder.norm_weight_plus_one, file.norm_weight_plus_one) == (family == "gemma3", False)
    assert (folder.rope.style, file.rope.style) == ("neox", "interleaved" if family == "llama" else "neox")
    frequencies, expected = file.rope.inverse_frequencies(), folder.rope.inverse_frequencies()
    np.testing.assert_allclose(frequencies, expected, rtol=1e-6)
    assert not np.allclose(expected, unscaled_frequencies(model), rtol=0.1)


def unscaled_frequencies(model: TinyModel) -> np.ndarray[Any, Any]:
    base = 1000000.0 if model.family == "gemma3" else 10000.0
    return base ** (-np.arange(0, model.head_width, 2) / model.head_width)


def test_a_real_file_dequantised_to_a_folder(tmp_path: Path, smollm2_path: Path) -> None:
    source = open_model(smollm2_path)
    weights = dequantised(source, num_layers=2)
    write_shards(tmp_path, weights, dtype="F32", num_shards=2)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "max_position_embeddings": 8192,
        "num_attention_heads": 9,
        "num_hidden_layers": 2,
        "num_key_value_heads": 3,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "vocab_size": 49152,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    folder = open_model(tmp_path)
    np.testing.assert_array_equal(folder.config.rope.inverse_frequencies(), source.config.rope.inverse_frequencies())
    for name in folder.tensors:
        expected = values(source, name)
        if "attn_q" in name or "attn_k" in name:
            expected = uninterleave(expected, 9 if "attn_q" in name else 3)
        np.testing.assert_array_equal(values(folder, name), expected)


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: what the system refuses is a fault of ours instead of one line. (Tests may run as root: it is acted.)"""
    folder = TinyModel().write_folder(tmp_path / "folder")

    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(ModelFileError, match=r"folder: cannot be read \(Permission denied\)"):
        open_model(folder)
