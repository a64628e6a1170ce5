from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from helpers import raw_gguf as raw
from helpers.tiny import LLAMA3, TinyModel

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.models.config import ModelConfig
from foredraft.models.gguf_config import config_from_gguf
from foredraft.models.gguf_file import GGUFFile
from foredraft.models.source import open_model

PATH = Path("model.gguf")


def with_key(path: Path, model: TinyModel, key: str, value: object) -> ModelConfig:
    file = GGUFFile(model.write_gguf(path / "model.gguf"))
    return config_from_gguf({**file.metadata, f"{model.family}.{key}": value}, file.tensors, PATH)


def without_key(path: Path, model: TinyModel, key: str) -> ModelConfig:
    file = GGUFFile(model.write_gguf(path / "model.gguf"))
    metadata = {name: value for name, value in file.metadata.items() if name != f"{model.family}.{key}"}
    return config_from_gguf(metadata, file.tensors, PATH)


def test_llama(tmp_path: Path) -> None:
    model = TinyModel(rope_scaling=LLAMA3, attention_bias=True)
    config = open_model(model.write_gguf(tmp_path / "model.gguf")).config
    assert (config.architecture, config.num_layers, config.model_width, config.ffn_width) == (
        "llama",
        2,
        64,
        128,
    )
    assert (config.num_heads, config.num_kv_heads, config.head_width) == (4, 2, 16)
    assert (config.vocab_size, config.context_length) == (288, 256)
    assert (config.rope.style, config.rope.scaling, config.rope.base) == ("interleaved", "none", 10000.0)
    assert config.rope.frequency_factors is not None
    assert config.rope.frequency_factors[0] == 1.0
    assert config.rope.frequency_factors[-1] == 8.0
    assert (config.attention_bias, config.attention_output_bias, config.qk_norm) == (True, True, False)
    assert (config.tied_embeddings, config.post_norms, config.norm_weight_plus_one) == (False, False, False)
    assert (config.activation, config.embedding_scale, config.attention_scale) == ("silu", 1.0, 0.25)
    assert (config.sliding_window, config.window_layers) == (None, (False, False))


def test_qwen(tmp_path: Path) -> None:
    qwen2 = open_model(TinyModel(family="qwen2", tied=True).write_gguf(tmp_path / "2.gguf")).config
    assert (qwen2.attention_bias, qwen2.attention_output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen2.rope.style, qwen2.tied_embeddings) == ("neox", True)
    qwen3 = open_model(TinyModel(family="qwen3", head_width=32).write_gguf(tmp_path / "3.gguf")).config
    assert (qwen3.attention_bias, qwen3.qk_norm, qwen3.head_width) == (False, True, 32)


def test_gemma3(tmp_path: Path) -> None:
    model = TinyModel(family="gemma3", num_layers=8)
    config = open_model(model.write_gguf(tmp_path / "model.gguf")).config
    assert config.window_layers == (True,) * 5 + (False,) + (True,) * 2
    assert config.sliding_window == 8
    assert config.local_rope is not None
    assert (config.rope.base, config.local_rope.base) == (1000000.0, 10000.0)
    assert (config.rope_of_layer(0), config.rope_of_layer(5)) == (config.local_rope, config.rope)
    assert (config.activation, config.post_norms, config.qk_norm) == ("gelu_tanh", True, True)
    assert config.norm_weight_plus_one is False
    assert (config.embedding_scale, config.attention_scale) == (8.0, 0.25)
    assert (config.logit_softcap, config.attention_softcap) == (None, None)


def test_gemma3_with_other_keys(tmp_path: Path) -> None:
    model = TinyModel(family="gemma3", num_layers=4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    config = with_key(tmp_path, model, "attention.sliding_window_pattern", 2)
    assert config.window_layers == (True, False, True, False)
    assert config.local_rope is not None
    assert (config.rope.scaling, config.rope.factor, config.local_rope.scaling) == ("linear", 8.0, "none")
    flags = [False, True, True, False]
    assert with_key(tmp_path, model, "attention.sliding_window_pattern", flags).window_layers == tuple(flags)
    assert all(with_key(tmp_path, model, "attention.sliding_window_pattern", 0).window_layers)
    local = with_key(tmp_path, model, "rope.freq_base_swa", 500.0).local_rope
    assert local is not None
    assert local.base == 500.0
    assert with_key(tmp_path, model, "final_logit_softcapping", 30.0).logit_softcap == 30.0
    plain = without_key(tmp_path, model, "attention.sliding_window")
    assert (plain.sliding_window, plain.window_layers, plain.local_rope) == (None, (False,) * 4, None)


def test_gemma3_27b_scales_attention_by_width_and_heads(tmp_path: Path) -> None:
    model = TinyModel(family="gemma3", num_layers=62, width=32, ffn_width=32, num_heads=4, num_kv_heads=1)
    assert open_model(model.write_gguf(tmp_path / "model.gguf")).config.attention_scale == 1 / np.sqrt(8)


@pytest.mark.parametrize(
    ("key", "value", "scaling"),
    [
        ("rope.scaling.factor", 4.0, ("linear", 4.0)),
        ("rope.scale_linear", 2.0, ("linear", 2.0)),
        ("rope.scaling.factor", 0.0, ("none", 1.0)),
        ("rope.scaling.factor", 1.0, ("none", 1.0)),
        ("rope.scaling.type", "none", ("none", 1.0)),
    ],
)
def test_rope_scaling(tmp_path: Path, key: str, value: object, scaling: tuple[str, float]) -> None:
    rope = with_key(tmp_path, TinyModel(), key, value).rope
    assert (rope.scaling, rope.factor) == scaling


def test_a_factor_without_scaling_does_not_count(tmp_path: Path) -> None:
    """Kind: positions are stretched by a factor that the file says is not to be used."""
    scaling = {"rope_type": "linear", "factor": 4.0}
    rope = with_key(tmp_path, TinyModel(rope_scaling=scaling), "rope.scaling.type", "none").rope
    assert (rope.scaling, rope.factor) == ("none", 1.0)


def test_yarn(tmp_path: Path) -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    rope = with_key(tmp_path, TinyModel(rope_scaling=scaling), "rope.scaling.attn_factor", 2.0).rope
    assert (rope.scaling, rope.factor, rope.original_context) == ("yarn", 4.0, 64)
    assert rope.magnitude == pytest.approx(2 * (0.1 * np.log(4) + 1))


def test_metadata_that_may_be_left_out(tmp_path: Path) -> None:
    model = TinyModel(num_kv_heads=4)
    assert without_key(tmp_path, model, "attention.head_count_kv").num_kv_heads == 4
    assert without_key(tmp_path, model, "rope.freq_base").rope.base == 10000.0
    assert without_key(tmp_path, model, "attention.key_length").head_width == 16
    assert with_key(tmp_path, model, "attention.head_count", [4, 4]).num_heads == 4


@pytest.mark.parametrize(
    "key",
    [
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.layer_norm_rms_epsilon",
    ],
)
def test_metadata_that_is_missing(tmp_path: Path, key: str) -> None:
    with pytest.raises(ModelFileError, match=f"model.gguf: key 'llama.{key}' is missing"):
        without_key(tmp_path, TinyModel(), key)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("block_count", 0, "must be a whole number from 1 to 1024, it is 0"),
        ("block_count", 2**31, "must be a whole number from 1 to 1024"),
        ("block_count", "2", "must be a whole number"),
        ("block_count", True, "must be a whole number"),
        ("embedding_length", -1, "must be a whole number"),
        ("attention.head_count", [4, 2], "must be a whole number"),
        ("attention.head_count", [], "must be a whole number"),
        ("attention.head_count_kv", 3, "4 attention heads cannot share 3 key/value heads"),
        ("attention.layer_norm_rms_epsilon", 0.0, "must be a number above 0"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "must be a number above 0"),
        ("rope.freq_base", float("inf"), "must be a number above 1"),
        ("rope.freq_base", 1.0, "must be a number above 1"),
        ("rope.scaling.factor", -2.0, "must be a number from 0"),
        ("rope.scaling.factor", 1e-30, "must be a number of at least 0.01"),
        ("rope.scaling.type", 3, "must be a text"),
    ],
)
def test_metadata_that_is_wrong(tmp_path: Path, key: str, value: object, message: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        with_key(tmp_path, TinyModel(), key, value)
    assert message in str(caught.value)


def test_heads_that_do_not_divide(tmp_path: Path) -> None:
    file = GGUFFile(TinyModel().write_gguf(tmp_path / "model.gguf"))
    metadata = {**file.metadata, "llama.attention.head_count": 5}
    del metadata["llama.attention.key_length"]
    with pytest.raises(ModelFileError, match="the width 64 does not divide into 5 attention heads"):
        config_from_gguf(metadata, file.tensors, PATH)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("expert_count", 8, "mixture-of-experts models are not supported"),
        ("attention.value_length", 32, "keys of 16 and values of 32 in a head are not supported"),
        ("rope.dimension_count", 8, "turning 8 of the 16 values of a head is not supported"),
        ("rope.scaling.type", "longrope", "rope scaling 'longrope' is not supported"),
    ],
)
def test_models_of_other_kinds(tmp_path: Path, key: str, value: object, message: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        with_key(tmp_path, TinyModel(), key, value)
    assert message in str(caught.value)


def test_other_architectures_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(raw.gguf([raw.string("general.architecture", "mamba")]))
    with pytest.raises(UnsupportedModelError) as caught:
        open_model(path)
    assert "architecture 'mamba' is not supported; supported are llama, qwen2, qwen3, gemma3" in str(caught.value)
    path.write_bytes(raw.gguf([raw.u32("general.architecture", 1)]))
    with pytest.raises(ModelFileError, match=r"'general\.architecture' must be a text"):
        open_model(path)
    path.write_bytes(raw.gguf())
    with pytest.raises(ModelFileError, match=r"'general\.architecture' is missing"):
        open_model(path)


def rewritten(path: Path, change: Any) -> str:
    """What is said of a model whose tensors, a dict of name -> values, were changed."""
    source = open_model(TinyModel().write_gguf(path / "whole.gguf"))
    tensors = {name: tensor.data.view(np.float32).reshape(tensor.shape) for name, tensor in source.tensors.items()}
    change(tensors)
    writer = GGUFWriter(path / "model.gguf", "llama")
    TinyModel().add_metadata(writer)
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError) as caught:
        open_model(path / "model.gguf")
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("token_embd.weight"), "tensor 'token_embd.weight' is missing"),
        (lambda tensors: tensors.pop("blk.1.ffn_up.weight"), "tensor 'blk.1.ffn_up.weight' is missing"),
        (lambda tensors: tensors.pop("output_norm.weight"), "tensor 'output_norm.weight' is missing"),
        (
            lambda tensors: tensors.update({"blk.0.attn_k.weight": np.zeros((64, 64))}),
            "tensor 'blk.0.attn_k.weight' has shape (64, 64), expected (32, 64)",
        ),
        (
            lambda tensors: tensors.update({"token_embd.weight": np.zeros((100, 64))}),
            "it lists 275 tokens but has embeddings for 100",
        ),
        (
            lambda tensors: tensors.update({"output.weight": np.zeros((300, 64))}),
            "tensor 'output.weight' has shape (300, 64), expected (288, 64)",
        ),
        (
            lambda tensors: tensors.update({"blk.2.ffn_up.weight": np.zeros((128, 64))}),
            "it says that it has 2 layers, but it has a tensor 'blk.2.ffn_up.weight'",
        ),
        (
            lambda tensors: tensors.update({"blk.0.ffn_up.bias": np.zeros(128)}),
            "tensor 'blk.0.ffn_up.bias' is not part of a llama model",
        ),
        (
            lambda tensors: tensors.update({"rope_freqs.weight": np.ones(7)}),
            "tensor 'rope_freqs.weight' has shape (7,), not (8,)",
        ),
        (
            lambda tensors: tensors.update({"rope_freqs.weight": np.zeros(8)}),
            "holds values that cannot be divisors",
        ),
    ],
)
def test_tensors_that_do_not_fit(tmp_path: Path, change: Any, message: str) -> None:
    assert message in rewritten(tmp_path, change)
