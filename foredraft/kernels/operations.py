"""The operations a decoder is written against. Every set of kernels supplies them all.

`B` stands for a batch of vectors, one a row: an array for kernels that compute at once, a handle for kernels
that record the decoder and run it later.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from foredraft.kernels.batch import Batch, Ints

B = TypeVar("B")
Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A weight matrix [out, in] in one of the formats of `foredraft.kernels.formats`, bytes still in the file."""

    name: str
    format: str
    shape: tuple[int, int]
    data: Bytes
    bias: Floats | None = None


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Rotary positions: radians per position of each pair, a factor on cosine and sine, and which values pair up."""

    inverse_frequencies: Floats
    magnitude: float
    interleaved: bool


@dataclass(frozen=True)
class AttentionShape:
    """Attention of one layer. window: positions a query sees, its own included; 0: all. softcap: 0 is off."""

    layer: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    scale: float
    window: int = 0
    softcap: float = 0.0


class Operations(Protocol[B]):
    """What a decoder is made of."""

    def embed(self, matrix: Matrix, scale: float) -> B:
        """Rows of the embedding for the tokens of the batch, times `scale`."""

    def rms_norm(self, x: B, weight: Floats, epsilon: float, residual: B | None = None) -> B:
        """residual + x / sqrt(mean(x^2) + epsilon) * weight, over vectors of the weight's width.

        A row wider than the weight holds several vectors (heads), each normed by itself.
        """

    def linear(self, x: B, matrices: Sequence[Matrix], residual: B | None = None, *, precise: bool = False) -> list[B]:
        """x @ matrix.T + bias for each matrix; the residual is added to the only one.

        Kernels may round x to 8 bits for quantised matrices, and to 16 where `precise` is set.
        """

    def rope(self, x: B, num_heads: int, table: RopeTable) -> B:
        """Turn each head by its row's position. `x` itself may be changed and must not be used again."""

    def attention(self, queries: B, keys: B, values: B, shape: AttentionShape) -> B:
        """Store keys and values in the cache, then attend to what the batch says each row sees."""

    def gated(self, gate: B, up: B, activation: Literal["silu", "gelu_tanh"]) -> B:
        """activation(gate) * up."""

    def select(self, x: B) -> B:
        """The selected rows of the batch only."""


class Storage(Protocol):
    """Memory for keys and values: [layers, blocks, kv heads, E, 16] and [..., 16, E], E the padded head width."""

    keys: NDArray[Any]
    values: NDArray[Any]


Recipe = Callable[[Operations[Any]], Mapping[str, Any]]
"""A decoder: computes with the operations it is given and returns named results, "logits" among them."""

Forward = Callable[[Batch, Storage], Mapping[str, Floats]]
"""A decoder ready to run. Its results may be views that are valid until the next run."""


class Kernels(Protocol):
    """A set of kernels: makes decoders run, and chooses tokens."""

    name: str
    cache_dtype: type[np.generic]
    """Type of the numbers in a cache: float16 bits (uint16) or float32."""

    def compile(self, recipe: Recipe, *, like: Forward | None = None) -> Forward:
        """Make a decoder run. Matrices of a model file that `like`, made by the same kernels, has too are shared."""

    def move_slots(self, storage: Storage, source: Sequence[int], target: Sequence[int]) -> None:
        """Copy keys and values of all layers from slot to slot, one after the other in the order given."""

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
        """Token ids by falling perturbed logit, at most `count`; see `foredraft.sampling.pick`.

        token_ids: which token each logit belongs to, in rising order; None: the i-th logit is token i's.
        """

    def token_probability(self, logits_V: Floats, index: int, temperature: float) -> float:
        """Probability of the logit at `index` under softmax(logits / temperature); at 0: softmax(logits)."""
