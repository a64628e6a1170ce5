from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.tiny import TinyModel

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.models.config import ModelConfig
from foredraft.models.folder_config import config_from_folder

PATH = Path("model")


def config_of(model: TinyModel, without: str = "", /, **changes: Any) -> ModelConfig:
    values = model.config() | changes
    values.pop(without, None)
    return config_from_folder(values, PATH)


def refused(kind: type[UserError], values: Mapping[str, Any]) -> str:
    with pytest.raises(kind) as caught:
        config_from_folder(values, PATH)
    assert str(caught.value).startswith("model")
    return str(caught.value)


LLAMA, QWEN2, QWEN3, GEMMA3 = (TinyModel(family=family) for family in ("llama", "qwen2", "qwen3", "gemma3"))
MISTRAL: dict[str, Any] = LLAMA.config() | {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}


def test_llama() -> None:
    config = config_of(LLAMA, attention_bias=True)
    assert (config.architecture, config.num_layers, config.model_width, config.ffn_width) == (
        "llama",
        2,
        64,
        128,
    )
    assert (config.num_heads, config.num_kv_heads, config.head_width) == (4, 2, 16)
    assert (config.vocab_size, config.context_length, config.norm_epsilon) == (288, 256, 1e-6)
    assert (config.rope.style, config.rope.dim, config.rope.base) == ("neox", 16, 10000.0)
    assert (config.attention_bias, config.attention_output_bias) == (True, True)
    assert config.tensor_shapes()["blk.1.attn_output.bias"] == (64,)
    assert (config.activation, config.embedding_scale, config.attention_scale) == ("silu", 1.0, 0.25)


def test_biases_and_norms_of_qwen() -> None:
    qwen2, qwen3 = config_of(QWEN2), config_of(QWEN3)
    assert (qwen2.attention_bias, qwen2.attention_output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.attention_bias, qwen3.attention_output_bias, qwen3.qk_norm) == (False, False, True)


def test_what_configurations_leave_out() -> None:
    assert config_of(LLAMA, "num_key_value_heads").num_kv_heads == 4
    assert config_of(LLAMA, num_key_value_heads=None).num_kv_heads == 4
    assert config_of(LLAMA, "head_dim").head_width == 16
    assert config_of(LLAMA, "rms_norm_eps").norm_epsilon == 1e-6
    assert config_of(LLAMA, "max_position_embeddings").context_length == 2048
    assert config_of(LLAMA, "tie_word_embeddings").tied_embeddings
    assert config_of(QWEN3, "head_dim").head_width == 128
    assert config_of(LLAMA, "architectures").architecture == "llama"


def test_published_gemma3_folders_leave_out_most() -> None:
    # The text part of gemma-3-4b-it's config.json.
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    values = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": text,
    }
    config = config_from_folder(values, PATH)
    assert (config.num_heads, config.num_kv_heads, config.head_width) == (8, 4, 256)
    assert (config.vocab_size, config.context_length, config.tied_embeddings) == (262208, 131072, True)
    assert (config.attention_scale, config.sliding_window) == (1 / 16, 1024)
    assert config.window_layers == tuple(bool((layer + 1) % 6) for layer in range(34))
    assert config.local_rope is not None
    assert (config.rope.scaling, config.local_rope.scaling) == ("linear", "none")
    assert (config.norm_weight_plus_one, config.post_norms) == (True, True)


def test_windows() -> None:
    types = ["full_attention", "sliding_attention"]
    assert config_of(QWEN2, sliding_window=8).window_layers == (False, False)
    window = {"use_sliding_window": True, "sliding_window": 8}
    assert config_of(QWEN2, **window, max_window_layers=1).window_layers == (False, True)
    assert config_of(QWEN3, **window, max_window_layers=2).window_layers == (False, False)
    config = config_of(QWEN3, **window, layer_types=types)
    assert (config.window_layers, config.sliding_window, config.local_rope) == ((False, True), 8, None)
    assert config.rope_of_layer(1) is config.rope
    assert config_of(GEMMA3, layer_types=types).window_layers == (False, True)
    assert config_of(GEMMA3, sliding_window_pattern=2).window_layers == (True, False)
    assert config_of(LLAMA, sliding_window=8).window_layers == (False, False)


def test_mistral_is_a_llama_whose_layers_all_slide() -> None:
    config = config_from_folder(MISTRAL | {"sliding_window": 8}, PATH)
    assert (config.architecture, config.window_layers, config.sliding_window) == ("llama", (True, True), 8)
    config = config_from_folder(MISTRAL | {"sliding_window": None}, PATH)
    assert (config.window_layers, config.sliding_window) == ((False, False), None)


def test_softcaps() -> None:
    config = config_of(GEMMA3, final_logit_softcapping=30.0, attn_logit_softcapping=50.0)
    assert (config.logit_softcap, config.attention_softcap) == (30.0, 50.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "architecture 'GPT2LMHeadModel' is not supported; supported are Llama",
        ),
        (
            {"architectures": ["LlamaForSequenceClassification"]},
            "'LlamaForSequenceClassification' is not supported",
        ),
        ({"architectures": None, "model_type": "mamba"}, "architecture 'mamba' is not supported"),
        ({"architectures": None, "model_type": None}, "is not supported"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantised by 'gptq', which is not supported"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised by 'fp8'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"quantization_config": {"bits": 4}}, "quantised by 'an unnamed method'"),
        ({"hidden_act": "relu"}, "the activation 'relu' is not supported"),
        ({"head_dim": 15}, "heads of the odd width 15"),
        ({"partial_rotary_factor": 0.5}, "turning only a part (0.5) of each head"),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "rope scaling 'dynamic' is not supported",
        ),
        ({"rope_scaling": {"type": "longrope"}}, "rope scaling 'longrope' is not supported"),
        ({"rope_parameters": {"rope_type": "proportional"}}, "rope scaling 'proportional' is not supported"),
    ],
)
def test_models_of_other_kinds(changes: dict[str, Any], message: str) -> None:
    assert message in refused(UnsupportedModelError, LLAMA.config() | changes)


def test_gemma3_of_other_kinds() -> None:
    values = GEMMA3.config()
    assert "in both directions" in refused(UnsupportedModelError, values | {"use_bidirectional_attention": True})
    assert "activation 'relu'" in refused(UnsupportedModelError, values | {"hidden_activation": "relu"})
    nested: dict[str, Any] = {"text_config": values | {"quantization_config": {"quant_method": "fp8"}}}
    nested["architectures"] = ["Gemma3ForConditionalGeneration"]
    assert "quantised by 'fp8'" in refused(UnsupportedModelError, nested)
    assert "'text_config' must be an object" in refused(ModelFileError, values | {"text_config": 3})
    chunked = {"layer_types": ["chunked_attention"] * 2}
    assert "layers of type 'chunked_attention'" in refused(UnsupportedModelError, values | chunked)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 0}, "key 'num_hidden_layers' must be a whole number from 1 to 1024, it is 0"),
        ({"num_hidden_layers": 10**400}, "key 'num_hidden_layers' must be a whole number"),
        ({"num_hidden_layers": None}, "config.json: key 'num_hidden_layers' is missing"),
        ({"hidden_size": "64"}, "must be a whole number"),
        ({"vocab_size": None}, "key 'vocab_size' is missing"),
        ({"num_attention_heads": 5, "head_dim": None}, "hidden_size 64 does not divide into 5 heads"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3 key/value heads"),
        ({"rms_norm_eps": float("nan")}, "must be a number above 0"),
        ({"rope_theta": 0}, "must be a number above 1"),
        ({"rope_theta": 10**400}, "must be a number above 1"),
        ({"rope_scaling": "linear"}, "key 'rope_scaling' must be an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rotary positions: key 'factor' is missing"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "key 'low_freq_factor' is missing"),
        (
            {
                "rope_scaling": {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 4,
                    "high_freq_factor": 4,
                }
            },
            "low_freq_factor 4 must be below high_freq_factor 4",
        ),
        ({"attention_bias": "yes"}, "key 'attention_bias' must be true or false"),
        ({"tie_word_embeddings": 1}, "key 'tie_word_embeddings' must be true or false"),
    ],
)
def test_values_that_are_wrong(changes: dict[str, Any], message: str) -> None:
    assert message in refused(ModelFileError, LLAMA.config() | changes)


def test_windows_that_are_wrong() -> None:
    values = QWEN3.config()
    sliding = values | {"layer_types": ["sliding_attention"] * 2}
    assert "no sliding_window is in use" in refused(ModelFileError, sliding)
    short = values | {"layer_types": ["full_attention"]}
    assert "must be a list of 2 types of layers" in refused(ModelFileError, short)
    none = GEMMA3.config() | {"sliding_window": 0}
    assert "'sliding_window' must be a whole number from 1" in refused(ModelFileError, none)
