"""The operations in plain NumPy: slow, obviously right, and the oracle of the tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foredraft.kernels import formats
from foredraft.kernels.batch import BLOCK_POSITIONS, Batch, Ints
from foredraft.kernels.operations import (
    AttentionShape,
    Floats,
    Forward,
    Matrix,
    Recipe,
    RopeTable,
    Storage,
)
from foredraft.sampling.noise import Noise
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.pick import top_perturbed

Values = NDArray[Any]


class ReferenceKernels:
    """NumPy in float32 (or whatever the recipe's arrays bring); keys and values are cached in float32."""

    name = "reference"
    cache_dtype: type[np.generic] = np.float32

    def compile(self, recipe: Recipe, *, like: Forward | None = None) -> Forward:
        """The recipe is computed afresh in every run; dequantised weights are kept, by name."""
        return ReferenceDecoder(recipe, dict(like.weights) if isinstance(like, ReferenceDecoder) else {})

    def move_slots(self, storage: Storage, source: Sequence[int], target: Sequence[int]) -> None:
        """See `Kernels`."""
        for old, new in zip(source, target, strict=True):
            (a, i), (b, j) = divmod(old, BLOCK_POSITIONS), divmod(new, BLOCK_POSITIONS)
            storage.keys[:, b, :, :, j] = storage.keys[:, a, :, :, i]
            storage.values[:, b, :, j] = storage.values[:, a, :, i]

    def pick(
        self,
        logits_V: Floats,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        noise: tuple[int, int, int],
        count: int = 1,
        token_ids: Ints | None = None,
    ) -> list[int]:
        """See `Kernels`."""
        ids = np.arange(len(logits_V), dtype=np.int32) if token_ids is None else token_ids
        params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
        chosen = top_perturbed(logits_V, params, lambda indices: Noise(*noise)(ids[indices]), count)
        return [int(ids[index]) for index in chosen]

    def token_probability(self, logits_V: Floats, index: int, temperature: float) -> float:
        """See `Kernels`."""
        z = (logits_V.astype(np.float64) - float(logits_V.max())) / (temperature or 1.0)
        return float(np.exp(z[index]) / np.exp(z).sum())


@dataclass
class ReferenceDecoder:
    """A recipe, and the weights that were dequantised for it."""

    recipe: Recipe
    weights: dict[str, Floats]

    def __call__(self, batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        """Run the batch."""
        return self.recipe(ReferenceOperations(batch, storage, self.weights))


class ReferenceOperations:
    """Computes at once, for one batch and one cache."""

    def __init__(self, batch: Batch, storage: Storage, weights: dict[str, Floats]) -> None:
        self._batch = batch
        self._storage = storage
        self._weights = weights

    def _dense(self, matrix: Matrix) -> Floats:
        if matrix.name not in self._weights:
            self._weights[matrix.name] = formats.dequantize(matrix.data, matrix.format, matrix.shape)
        return self._weights[matrix.name]

    def embed(self, matrix: Matrix, scale: float) -> Values:
        """See `Operations`."""
        return np.asarray(self._dense(matrix)[self._batch.tokens_N] * np.float32(scale))

    def rms_norm(self, x: Values, weight: Floats, epsilon: float, residual: Values | None = None) -> Values:
        """See `Operations`."""
        vectors = x.reshape(len(x), x.shape[1] // len(weight), len(weight))
        mean = np.mean(vectors**2, axis=-1, keepdims=True)
        normed = (vectors / np.sqrt(mean + np.float32(epsilon)) * weight).reshape(x.shape)
        return np.asarray(normed if residual is None else residual + normed)

    def linear(
        self, x: Values, matrices: Sequence[Matrix], residual: Values | None = None, *, precise: bool = False
    ) -> list[Values]:
        """See `Operations`; here every product is precise."""
        results = [_product(x, self._dense(m)) + (0 if m.bias is None else m.bias) for m in matrices]
        if residual is not None:
            [only] = results
            return [residual + only]
        return results

    def rope(self, x: Values, num_heads: int, table: RopeTable) -> Values:
        """See `Operations`."""
        heads = x.reshape(len(x), num_heads, -1)
        half = len(table.inverse_frequencies)
        angles = self._batch.positions_N[:, None].astype(np.float32) * table.inverse_frequencies
        cosines = (np.cos(angles) * np.float32(table.magnitude))[:, None]
        sines = (np.sin(angles) * np.float32(table.magnitude))[:, None]
        first, second = (
            (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
            if table.interleaved
            else (slice(0, half), slice(half, 2 * half))
        )
        turned = heads.copy()
        turned[..., first] = heads[..., first] * cosines - heads[..., second] * sines
        turned[..., second] = heads[..., second] * cosines + heads[..., first] * sines
        return turned.reshape(x.shape)

    def attention(self, queries: Values, keys: Values, values: Values, shape: AttentionShape) -> Values:
        """See `Operations`."""
        layer_keys, layer_values = self._storage.keys[shape.layer], self._storage.values[shape.layer]
        num_rows, width = len(queries), shape.head_width
        blocks, places = np.divmod(self._batch.slots_N, BLOCK_POSITIONS)
        layer_keys[blocks, :, :width, places] = keys.reshape(num_rows, shape.num_kv_heads, width)
        layer_values[blocks, :, places, :width] = values.reshape(num_rows, shape.num_kv_heads, width)
        group = shape.num_heads // shape.num_kv_heads
        out = np.empty_like(queries)
        for row in range(num_rows):
            seen = self._seen_slots(row, shape.window)
            block, place = np.divmod(seen, BLOCK_POSITIONS)
            row_keys = layer_keys[block, :, :width, place]  # [S, G, E]
            row_values = layer_values[block, :, place, :width]
            query = queries[row].reshape(shape.num_kv_heads, group, width)
            scores = np.einsum("ghe,sge->ghs", query, row_keys) * np.float32(shape.scale)
            if shape.softcap:
                scores = np.float32(shape.softcap) * np.tanh(scores / np.float32(shape.softcap))
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            out[row] = np.einsum("ghs,sge->ghe", weights, row_values).reshape(-1)
        return out

    def _seen_slots(self, row: int, window: int) -> NDArray[np.int64]:
        """Slots of the positions that a row sees, in the order of the positions."""
        b = self._batch
        request = b.requests_N[row]
        table = b.block_tables[b.table_offsets[request] : b.table_offsets[request + 1]].astype(np.int64)
        prefix = np.arange(b.prefix_lengths_N[row])
        cached = table[prefix // BLOCK_POSITIONS] * BLOCK_POSITIONS + prefix % BLOCK_POSITIONS
        seen = np.concatenate([cached, b.tail_slots[b.tail_offsets[row] : b.tail_offsets[row + 1]]])
        return seen[-window:] if window else seen

    def gated(self, gate: Values, up: Values, activation: Literal["silu", "gelu_tanh"]) -> Values:
        """See `Operations`."""
        if activation == "silu":
            with np.errstate(over="ignore"):  # exp of a very negative gate: the result is 0, as it should be
                return np.asarray(gate / (1 + np.exp(-gate)) * up)
        inner = np.float32(math.sqrt(2 / math.pi)) * (gate + np.float32(0.044715) * gate**3)
        return np.asarray(np.float32(0.5) * gate * (1 + np.tanh(inner)) * up)

    def select(self, x: Values) -> Values:
        """See `Operations`."""
        return x[self._batch.selected_rows]


def _product(x: Values, weight: Floats) -> Values:
    """x @ weight.T, row by row: NumPy's product of two matrices adds up in an order that depends on their sizes."""
    out = np.empty((len(x), len(weight)), np.result_type(x, weight))
    for row, result in zip(x, out, strict=True):
        np.matmul(weight, row, out=result)
    return out
