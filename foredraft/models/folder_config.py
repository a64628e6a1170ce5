"""The ModelConfig of a Hugging Face folder.

Keys and defaults are those of transformers 5: `configuration_*.py` of each family and
`RotaryEmbeddingConfigMixin` in modeling_rope_utils.py; both the older `rope_scaling` and the newer
`rope_parameters` are understood.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.models.config import MAX_LAYERS, ModelConfig, attention_scale
from foredraft.models.fields import Fields
from foredraft.models.folder_rope import folder_rope
from foredraft.models.mapping import shown

_FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3",
}
_BY_MODEL_TYPE = {"llama": "llama", "mistral": "mistral", "qwen2": "qwen2", "qwen3": "qwen3"} | {
    "gemma3_text": "gemma3",
    "gemma3": "gemma3",
}
# Configurations leave out what is the default of their class; published gemma3 folders do so for most sizes.
_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"max_position_embeddings": 32768, "sliding_window": 4096},
    "qwen3": {"max_position_embeddings": 32768, "sliding_window": 4096, "head_dim": 128},
    "gemma3": {
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
    },
}


def config_from_folder(values: Mapping[str, object], path: Path) -> ModelConfig:
    """Read the configuration of a model from the content of its config.json.

    `tied_embeddings` is what the file says, or true when it says nothing: whether there is an output matrix
    is for the caller to see. Raises UnsupportedModelError when foredraft cannot run such a model, and
    ModelFileError when values are missing, wrong or contradict each other.
    """
    where = str(path / "config.json")
    family = _family(values, path)
    text_values = values.get("text_config", values)
    if not isinstance(text_values, Mapping):
        raise ModelFileError(f"{where}: key 'text_config' must be an object")
    for part in (values, text_values):
        _refuse_quantised(part, path)
    fields = Fields(_DEFAULTS[family] | dict(text_values), where)
    num_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    model_width = fields.integer("hidden_size")
    num_heads = fields.integer("num_attention_heads")
    num_kv_heads = fields.integer("num_key_value_heads", num_heads)
    head_width = _head_width(fields, model_width, num_heads)
    if num_heads % num_kv_heads:
        raise ModelFileError(f"{where}: {num_heads} attention heads cannot share {num_kv_heads} key/value heads")
    bias = fields.flag("attention_bias", False) if family != "mistral" else False
    common: dict[str, Any] = {
        "architecture": "llama" if family == "mistral" else family,
        "num_layers": num_layers,
        "model_width": model_width,
        "ffn_width": fields.integer("intermediate_size"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_width": head_width,
        "vocab_size": fields.integer("vocab_size"),
        "context_length": fields.integer("max_position_embeddings"),
        "norm_epsilon": fields.number("rms_norm_eps", 1e-6),
        "tied_embeddings": Fields(values, where).flag("tie_word_embeddings", True),
        "attention_bias": family == "qwen2" or bias,
        "attention_output_bias": family != "qwen2" and bias,
        "qk_norm": family in ("qwen3", "gemma3"),
        **_windows(fields, family, num_layers),
    }
    if family == "gemma3":
        return ModelConfig(**common, **_gemma3(fields, model_width, head_width))
    _check_activation(fields, "hidden_act", "silu")
    rope = folder_rope(fields, "full_attention", head_width, default_base=10000.0)
    return ModelConfig(**common, rope=rope, attention_scale=attention_scale(head_width))


def _family(values: Mapping[str, object], path: Path) -> str:
    names = values.get("architectures")
    if isinstance(names, list) and names:
        family = _FAMILIES.get(str(names[0]))
        found = str(names[0])
    else:
        found = str(values.get("model_type", "(none given)"))
        family = _BY_MODEL_TYPE.get(found)
    if family is None:
        raise UnsupportedModelError(
            f"{path}: the architecture {shown(found)} is not supported; supported are {', '.join(_FAMILIES)}"
        )
    return family


def _refuse_quantised(values: Mapping[str, object], path: Path) -> None:
    quantised = values.get("quantization_config")
    if quantised:
        method = quantised.get("quant_method") if isinstance(quantised, Mapping) else None
        raise UnsupportedModelError(
            f"{path}: its weights are quantised by {shown(str(method or 'an unnamed method'))}, which is not "
            "supported; use the unquantised model or a GGUF file"
        )


def _head_width(fields: Fields, model_width: int, num_heads: int) -> int:
    if not fields.has("head_dim") and model_width % num_heads:
        raise ModelFileError(f"{fields.where}: hidden_size {model_width} does not divide into {num_heads} heads")
    head_width = fields.integer("head_dim", model_width // num_heads)
    if head_width % 2:
        raise UnsupportedModelError(f"{fields.where}: heads of the odd width {head_width} are not supported")
    return head_width


def _check_activation(fields: Fields, key: str, wanted: str) -> None:
    found = fields.text(key, wanted)
    if found != wanted:
        raise UnsupportedModelError(f"{fields.where}: the activation {shown(found)} is not supported ({wanted} is)")


def _windows(fields: Fields, family: str, num_layers: int) -> dict[str, Any]:
    """Which layers see a sliding window only, and how wide it is."""
    none: dict[str, Any] = {"window_layers": (False,) * num_layers}
    if family == "llama":
        return none
    window = fields.integer("sliding_window") if fields.has("sliding_window") else None
    if family in ("qwen2", "qwen3") and not fields.flag("use_sliding_window", False):
        window = None
    if family == "mistral":
        sliding = (window is not None,) * num_layers
    elif fields.has("layer_types"):
        sliding = _layer_types(fields, num_layers)
    elif family == "gemma3":
        period = fields.integer("sliding_window_pattern", fields.get("_sliding_window_pattern", 6))
        sliding = tuple(bool((index + 1) % period) for index in range(num_layers))
    else:
        first = fields.integer("max_window_layers", 28, low=0)
        sliding = tuple(window is not None and index >= first for index in range(num_layers))
    if not any(sliding):
        return none
    if window is None:
        raise ModelFileError(f"{fields.where}: layer_types has sliding layers but no sliding_window is in use")
    return {"window_layers": sliding, "sliding_window": window}


def _layer_types(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    types = fields.get("layer_types")
    if not isinstance(types, list) or len(types) != num_layers:
        raise fields.wrong("layer_types", types, f"a list of {num_layers} types of layers")
    for name in types:
        if name not in ("full_attention", "sliding_attention"):
            raise UnsupportedModelError(f"{fields.where}: layers of type {shown(str(name))} are not supported")
    return tuple(name == "sliding_attention" for name in types)


def _gemma3(fields: Fields, model_width: int, head_width: int) -> dict[str, Any]:
    """What is special to gemma3 (configuration_gemma3.py and modeling_gemma3.py)."""
    _check_activation(fields, "hidden_activation", "gelu_pytorch_tanh")
    if fields.flag("use_bidirectional_attention", False):
        raise UnsupportedModelError(f"{fields.where}: attention in both directions is not supported")
    return {
        "rope": folder_rope(fields, "full_attention", head_width, default_base=1_000_000.0),
        "local_rope": folder_rope(fields, "sliding_attention", head_width, default_base=10000.0),
        "activation": "gelu_tanh",
        "post_norms": True,
        "norm_weight_plus_one": True,
        "embedding_scale": float(np.sqrt(np.float32(model_width))),
        "attention_scale": attention_scale(fields.number("query_pre_attn_scalar", 256)),
        "logit_softcap": fields.number("final_logit_softcapping") if fields.has("final_logit_softcapping") else None,
        "attention_softcap": fields.number("attn_logit_softcapping") if fields.has("attn_logit_softcapping") else None,
    }
