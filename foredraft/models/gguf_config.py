"""The ModelConfig of a GGUF file.

Keys and defaults are those of llama.cpp: `load_hparams` in src/llama-model.cpp and src/models/*.cpp.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.kernels.formats import dequantize
from foredraft.models.config import ARCHITECTURES, MAX_LAYERS, ModelConfig, attention_scale
from foredraft.models.fields import Fields
from foredraft.models.mapping import shown
from foredraft.models.rope import RopeConfig, Scaling, Style, yarn_attention_factor
from foredraft.models.tensor_info import TensorInfo

_NUM_LAYERS_OF_GEMMA3_27B = 62


def config_from_gguf(metadata: Mapping[str, object], tensors: Mapping[str, TensorInfo], path: Path) -> ModelConfig:
    """Read the configuration of a model.

    Raises UnsupportedModelError when foredraft cannot run such a model, and ModelFileError when metadata is
    missing, wrong or contradicts itself.
    """
    where = str(path)
    architecture = Fields(metadata, where).text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"{path}: the architecture {shown(architecture)} is not supported; supported are {', '.join(ARCHITECTURES)}"
        )
    fields = Fields(metadata, where, architecture + ".")
    if fields.integer("expert_count", 0, low=0):
        raise UnsupportedModelError(f"{path}: mixture-of-experts models are not supported")
    num_layers = fields.integer("block_count", high=MAX_LAYERS)
    model_width = fields.integer("embedding_length")
    num_heads = fields.integer("attention.head_count")
    num_kv_heads = fields.integer("attention.head_count_kv", num_heads)
    head_width = _head_width(fields, model_width, num_heads)
    if num_heads % num_kv_heads:
        raise ModelFileError(f"{path}: {num_heads} attention heads cannot share {num_kv_heads} key/value heads")
    common: dict[str, Any] = {
        "architecture": architecture,
        "num_layers": num_layers,
        "model_width": model_width,
        "ffn_width": fields.integer("feed_forward_length"),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_width": head_width,
        "vocab_size": _vocab_size(metadata, tensors, path),
        "context_length": fields.integer("context_length"),
        "norm_epsilon": fields.number("attention.layer_norm_rms_epsilon"),
        "rope": _rope(fields, tensors, "interleaved" if architecture == "llama" else "neox", head_width),
        "tied_embeddings": "output.weight" not in tensors,
        "attention_bias": architecture == "qwen2" or "blk.0.attn_q.bias" in tensors,
        "attention_output_bias": "blk.0.attn_output.bias" in tensors,
        "qk_norm": architecture in ("qwen3", "gemma3"),
    }
    if architecture == "gemma3":
        return ModelConfig(**common, **_gemma3(fields, num_layers, model_width, num_heads, head_width))
    return ModelConfig(**common, window_layers=(False,) * num_layers, attention_scale=attention_scale(head_width))


def _head_width(fields: Fields, model_width: int, num_heads: int) -> int:
    if not fields.has("attention.key_length") and model_width % num_heads:
        raise ModelFileError(
            f"{fields.where}: the width {model_width} does not divide into {num_heads} attention heads"
        )
    head_width = fields.integer("attention.key_length", model_width // num_heads)
    value_width = fields.integer("attention.value_length", head_width)
    rope_width = fields.integer("rope.dimension_count", head_width)
    if value_width != head_width:
        raise UnsupportedModelError(
            f"{fields.where}: keys of {head_width} and values of {value_width} in a head are not supported"
        )
    if rope_width != head_width or head_width % 2:
        raise UnsupportedModelError(
            f"{fields.where}: turning {rope_width} of the {head_width} values of a head is not supported"
        )
    return head_width


def _vocab_size(metadata: Mapping[str, object], tensors: Mapping[str, TensorInfo], path: Path) -> int:
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelFileError(f"{path}: tensor 'token_embd.weight' is missing")
    rows = embedding.shape[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list) and len(tokens) > rows:
        raise ModelFileError(f"{path}: it lists {len(tokens)} tokens but has embeddings for {rows}")
    return rows


def _rope(fields: Fields, tensors: Mapping[str, TensorInfo], style: Style, dim: int) -> RopeConfig:
    """Positions of full attention. llama.cpp takes a factor without a type for linear scaling."""
    kind = fields.text("rope.scaling.type", "linear")
    if kind not in ("none", "linear", "yarn"):
        raise UnsupportedModelError(
            f"{fields.where}: rope scaling {shown(kind)} is not supported; supported are none, linear and yarn"
        )
    factor = fields.number("rope.scaling.factor", fields.get("rope.scale_linear", 0.0), positive=False) or 1.0
    if factor < 0.01:
        raise fields.wrong("rope.scaling.factor", factor, "a number of at least 0.01")
    scaling: Scaling = "yarn" if kind == "yarn" else "none" if kind == "none" or factor == 1.0 else "linear"
    original_context = fields.integer("rope.scaling.original_context_length", fields.integer("context_length"))
    given_magnitude = fields.number("rope.scaling.attn_factor", 1.0)
    return RopeConfig(
        base=fields.number("rope.freq_base", 10000.0, low=1.0),
        dim=dim,
        style=style,
        scaling=scaling,
        factor=factor if scaling != "none" else 1.0,
        original_context=original_context if scaling == "yarn" else 0,
        beta_fast=fields.number("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.number("rope.scaling.yarn_beta_slow", 1.0),
        attention_factor=yarn_attention_factor(factor) * given_magnitude if scaling == "yarn" else 1.0,
        frequency_factors=_frequency_factors(tensors, dim, fields.where),
    )


def _frequency_factors(tensors: Mapping[str, TensorInfo], dim: int, where: str) -> tuple[float, ...] | None:
    tensor = tensors.get("rope_freqs.weight")
    if tensor is None:
        return None
    if tensor.shape != (dim // 2,):
        raise ModelFileError(f"{where}: tensor 'rope_freqs.weight' has shape {tensor.shape}, not {(dim // 2,)}")
    factors = dequantize(tensor.data, tensor.format, tensor.shape)
    if not ((factors > 1e-6) & (factors < 1e6)).all():
        raise ModelFileError(f"{where}: tensor 'rope_freqs.weight' holds values that cannot be divisors")
    return tuple(float(factor) for factor in factors)


def _gemma3(fields: Fields, num_layers: int, model_width: int, num_heads: int, head_width: int) -> dict[str, Any]:
    """What is special to gemma3 (src/models/gemma3.cpp).

    The +1 of its norms is folded into the file. The 27B model alone scales attention by width / heads.
    """
    window = fields.integer("attention.sliding_window", 0, low=0)
    scaled_width = model_width // num_heads if num_layers == _NUM_LAYERS_OF_GEMMA3_27B else head_width
    softcap = fields.number("final_logit_softcapping", 0.0, positive=False)
    local = RopeConfig(base=fields.number("rope.freq_base_swa", 10000.0, low=1.0), dim=head_width)
    return {
        "local_rope": local if window else None,
        "sliding_window": window or None,
        "window_layers": _window_layers(fields, num_layers) if window else (False,) * num_layers,
        "activation": "gelu_tanh",
        "post_norms": True,
        "embedding_scale": float(np.sqrt(np.float32(model_width))),
        "attention_scale": attention_scale(scaled_width),
        "logit_softcap": softcap or None,
    }


def _window_layers(fields: Fields, num_layers: int) -> tuple[bool, ...]:
    """Which layers slide: a flag for each, or the period (6 by default) whose last layer does not."""
    key = "attention.sliding_window_pattern"
    pattern = fields.get(key, 6)
    if isinstance(pattern, list):
        if len(pattern) != num_layers or not all(isinstance(flag, bool) for flag in pattern):
            raise fields.wrong(key, pattern, f"a list of {num_layers} flags or a number")
        return tuple(pattern)
    period = fields.integer(key, 6, low=0)
    return tuple(period == 0 or index % period < period - 1 for index in range(num_layers))
