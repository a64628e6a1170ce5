"""Rotary position embeddings as config.json describes them."""

from collections.abc import Mapping
from typing import Any, Literal

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.models.fields import Fields
from foredraft.models.mapping import shown
from foredraft.models.rope import RopeConfig, yarn_attention_factor

LayerType = Literal["full_attention", "sliding_attention"]


def folder_rope(fields: Fields, layer_type: LayerType, dim: int, *, default_base: float) -> RopeConfig:
    """The positions that layers of one type use.

    Older files have `rope_theta`, `rope_local_base_freq` and `rope_scaling`, which never applies to sliding
    layers with a base of their own; newer ones have `rope_parameters`, for all layers or for each type.
    """
    where = f"{fields.where}: rotary positions"
    parameters = _parameters(fields, layer_type)
    rope = Fields(parameters, where)
    kind = rope.text("rope_type", rope.text("type", "default"))
    partial = rope.number("partial_rotary_factor", fields.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise UnsupportedModelError(f"{where}: turning only a part ({partial:g}) of each head is not supported")
    base_key = "rope_theta" if layer_type == "full_attention" else "rope_local_base_freq"
    common: dict[str, Any] = {
        "base": rope.number("rope_theta", fields.get(base_key, default_base), low=1.0),
        "dim": dim,
    }
    if kind == "default":
        return RopeConfig(**common)
    if kind == "linear":
        return RopeConfig(**common, scaling="linear", factor=rope.number("factor", low=0.01))
    if kind == "llama3":
        return _llama3(rope, common, _original_context(fields, rope))
    if kind == "yarn":
        return _yarn(fields, rope, common, _original_context(fields, rope))
    raise UnsupportedModelError(
        f"{where}: rope scaling {shown(kind)} is not supported; supported are default, linear, llama3 and yarn"
    )


def _parameters(fields: Fields, layer_type: LayerType) -> Mapping[str, object]:
    for key in ("rope_scaling", "rope_parameters"):
        value = fields.get(key, None)
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise fields.wrong(key, value, "an object")
        nested = value.get(layer_type)
        if isinstance(nested, Mapping):
            return nested
        if nested is None and not any(isinstance(entry, Mapping) for entry in value.values()):
            return value if layer_type == "full_attention" else {}
    return {}


def _original_context(fields: Fields, rope: Fields) -> int:
    key = "original_max_position_embeddings"
    if fields.has(key):
        return fields.integer(key)
    return rope.integer(key, fields.integer("max_position_embeddings"))


def _llama3(rope: Fields, common: dict[str, Any], original_context: int) -> RopeConfig:
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    if low >= high:
        raise ModelFileError(f"{rope.where}: low_freq_factor {low:g} must be below high_freq_factor {high:g}")
    return RopeConfig(
        **common,
        scaling="llama3",
        factor=rope.number("factor", low=0.01),
        original_context=original_context,
        low_freq_factor=low,
        high_freq_factor=high,
    )


def _yarn(fields: Fields, rope: Fields, common: dict[str, Any], original_context: int) -> RopeConfig:
    factor = rope.number("factor", fields.integer("max_position_embeddings") / original_context, low=0.01)
    mscale, mscale_all_dim = (rope.number(key, 0.0, positive=False) for key in ("mscale", "mscale_all_dim"))
    default = yarn_attention_factor(factor, mscale, mscale_all_dim)
    return RopeConfig(
        **common,
        scaling="yarn",
        factor=factor,
        original_context=original_context,
        beta_fast=rope.number("beta_fast", 32.0, positive=False) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0, positive=False) or 1.0,
        truncate=rope.flag("truncate", True),
        attention_factor=rope.number("attention_factor", default),
    )
