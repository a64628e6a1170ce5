"""The one decoder: every supported family, written against the operations of `foredraft.kernels`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import UnsupportedModelError
from foredraft.kernels import formats
from foredraft.kernels.operations import AttentionShape, Floats, Matrix, Operations, Recipe, RopeTable
from foredraft.models.config import ModelConfig
from foredraft.models.rope import RopeConfig
from foredraft.models.source import ModelSource
from foredraft.models.tensor_info import TensorInfo

B = TypeVar("B")


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Weights of one layer. Norms that the family does not have are None."""

    attention_norm: Floats
    query: Matrix
    key: Matrix
    value: Matrix
    query_norm: Floats | None
    key_norm: Floats | None
    output: Matrix
    post_attention_norm: Floats | None
    ffn_norm: Floats
    gate: Matrix
    up: Matrix
    down: Matrix
    post_ffn_norm: Floats | None


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of a model, bytes of the matrices still in the file."""

    embedding: Matrix
    layers: tuple[LayerWeights, ...]
    output_norm: Floats
    output: Matrix


def make_recipe(
    source: ModelSource,
    *,
    layers: Sequence[int] | None = None,
    hidden_layers: Sequence[int] = (),
    token_ids: NDArray[np.int32] | None = None,
) -> Recipe:
    """The decoder of a model, to be compiled by a set of kernels.

    layers: those that are computed, in rising order; None: all. The others are left out, and the cache holds those
    that are there, one after the other.
    token_ids: the tokens whose logits are computed, in this order; None: all. A drafter needs the frequent ones only.
    Its results: "logits" [selected rows, V], V being the number of token ids where they are given, and "hidden.i"
    [rows, D] for each i of `hidden_layers`, the hidden state after layer i (0 is the model's first layer).

    Raises UnsupportedModelError for traits that no operation covers.
    """
    config = source.config
    if config.logit_softcap is not None:
        raise UnsupportedModelError(f"{source.path}: a soft cap on the logits is not supported")
    weights = read_weights(source)
    if token_ids is not None:
        weights = replace(weights, output=_some_rows(weights.output, token_ids))
    chosen = range(config.num_layers) if layers is None else layers
    tables = {rope: _rope_table(rope) for rope in map(config.rope_of_layer, chosen)}

    def recipe(ops: Operations[B]) -> Mapping[str, B]:
        return decode(config, weights, tables, ops, chosen, hidden_layers)

    return recipe


def decode(
    config: ModelConfig,
    weights: Weights,
    tables: Mapping[RopeConfig, RopeTable],
    ops: Operations[B],
    layers: Sequence[int],
    hidden_layers: Sequence[int],
) -> Mapping[str, B]:
    """The decoder itself; see `make_recipe` for its results."""
    results: dict[str, B] = {}
    x = ops.embed(weights.embedding, config.embedding_scale)
    for place, index in enumerate(layers):
        layer = weights.layers[index]
        x = _attention(config, index, place, layer, tables[config.rope_of_layer(index)], ops, x)
        x = _feed_forward(config, layer, ops, x)
        if index in hidden_layers:
            results[f"hidden.{index}"] = x
    x = ops.rms_norm(ops.select(x), weights.output_norm, config.norm_epsilon)
    [results["logits"]] = ops.linear(x, [weights.output])
    return results


def _attention(
    config: ModelConfig, index: int, place: int, layer: LayerWeights, table: RopeTable, ops: Operations[B], x: B
) -> B:
    """Attention of layer number `index` of the model, number `place` of those computed."""
    shape = AttentionShape(
        layer=place,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_width=config.head_width,
        scale=config.attention_scale,
        window=(config.sliding_window or 0) if config.window_layers[index] else 0,
        softcap=config.attention_softcap or 0.0,
    )
    normed = ops.rms_norm(x, layer.attention_norm, config.norm_epsilon)
    # The softmax makes much of small errors in queries and keys: they alone cause most of the error in the logits.
    queries, keys, values = ops.linear(normed, [layer.query, layer.key, layer.value], precise=True)
    if layer.query_norm is not None:
        queries = ops.rms_norm(queries, layer.query_norm, config.norm_epsilon)
    if layer.key_norm is not None:
        keys = ops.rms_norm(keys, layer.key_norm, config.norm_epsilon)
    queries = ops.rope(queries, config.num_heads, table)
    keys = ops.rope(keys, config.num_kv_heads, table)
    mixed = ops.attention(queries, keys, values, shape)
    return _added(config, layer.output, layer.post_attention_norm, ops, mixed, x)


def _feed_forward(config: ModelConfig, layer: LayerWeights, ops: Operations[B], x: B) -> B:
    normed = ops.rms_norm(x, layer.ffn_norm, config.norm_epsilon)
    gate, up = ops.linear(normed, [layer.gate, layer.up])
    inner = ops.gated(gate, up, config.activation)
    return _added(config, layer.down, layer.post_ffn_norm, ops, inner, x)


def _added(config: ModelConfig, matrix: Matrix, post_norm: Floats | None, ops: Operations[B], y: B, x: B) -> B:
    """x + matrix @ y, the product normed first where the family does so."""
    if post_norm is None:
        [total] = ops.linear(y, [matrix], residual=x)
        return total
    [product] = ops.linear(y, [matrix])
    return ops.rms_norm(product, post_norm, config.norm_epsilon, residual=x)


def _rope_table(rope: RopeConfig) -> RopeTable:
    return RopeTable(
        inverse_frequencies=rope.inverse_frequencies(),
        magnitude=rope.magnitude,
        interleaved=rope.style == "interleaved",
    )


# --- weights --------------------------------------------------------------------------------------------------


def read_weights(source: ModelSource) -> Weights:
    """Vectors as float32 arrays, matrices as views of the file."""
    config, tensors = source.config, source.tensors
    plus_one = config.norm_weight_plus_one
    layers = tuple(_layer(tensors, f"blk.{index}.", plus_one=plus_one) for index in range(config.num_layers))
    output_norm = _norm(tensors, "output_norm.weight", plus_one=plus_one)
    assert output_norm is not None  # the source has checked that it is there
    embedding = _matrix(tensors, "token_embd.weight")
    output = embedding if config.tied_embeddings else _matrix(tensors, "output.weight")
    return Weights(embedding, layers, output_norm, output)


def _layer(tensors: Mapping[str, TensorInfo], prefix: str, *, plus_one: bool) -> LayerWeights:
    def matrix(name: str) -> Matrix:
        return _matrix(tensors, f"{prefix}{name}.weight", f"{prefix}{name}.bias")

    def norm(name: str) -> Floats | None:
        return _norm(tensors, f"{prefix}{name}.weight", plus_one=plus_one)

    return LayerWeights(
        attention_norm=_present(norm("attn_norm")),
        query=matrix("attn_q"),
        key=matrix("attn_k"),
        value=matrix("attn_v"),
        query_norm=norm("attn_q_norm"),
        key_norm=norm("attn_k_norm"),
        output=matrix("attn_output"),
        post_attention_norm=norm("post_attention_norm"),
        ffn_norm=_present(norm("ffn_norm")),
        gate=matrix("ffn_gate"),
        up=matrix("ffn_up"),
        down=matrix("ffn_down"),
        post_ffn_norm=norm("post_ffw_norm"),
    )


def _present(norm: Floats | None) -> Floats:
    assert norm is not None  # the source has checked that it is there
    return norm


def _norm(tensors: Mapping[str, TensorInfo], name: str, *, plus_one: bool) -> Floats | None:
    if name not in tensors:
        return None
    weight = _vector(tensors[name])
    return weight + np.float32(1.0) if plus_one else weight


def _vector(tensor: TensorInfo) -> Floats:
    return np.ascontiguousarray(formats.dequantize(tensor.data, tensor.format, tensor.shape))


def _matrix(tensors: Mapping[str, TensorInfo], name: str, bias_name: str | None = None) -> Matrix:
    tensor = tensors[name]
    rows, columns = tensor.shape
    bias = _vector(tensors[bias_name]) if bias_name is not None and bias_name in tensors else None
    return Matrix(name=name, format=tensor.format, shape=(rows, columns), data=tensor.data, bias=bias)


def _some_rows(matrix: Matrix, rows: NDArray[np.int32]) -> Matrix:
    """The matrix cut to some of its rows, byte for byte. Raises ValueError for a row that is not there."""
    if len(rows) and not 0 <= rows.min() <= rows.max() < matrix.shape[0]:
        raise ValueError(f"rows must be from 0 to {matrix.shape[0] - 1}, got {rows.min()} to {rows.max()}")
    data = matrix.data.reshape(matrix.shape[0], -1)[rows]
    bias = None if matrix.bias is None else matrix.bias[rows]
    name = f"{matrix.name}[{len(rows)} rows]"
    return replace(matrix, name=name, shape=(len(rows), matrix.shape[1]), data=data.reshape(-1), bias=bias)
