"""The compiled operations: a decoder is recorded once as a program and then run in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from foredraft import _native
from foredraft.errors import ForedraftError, OptionError
from foredraft.kernels.batch import Batch, Ints
from foredraft.kernels.operations import (
    AttentionShape,
    Floats,
    Forward,
    Matrix,
    Recipe,
    RopeTable,
    Storage,
)
from foredraft.kernels.pages import release_pages

_NONE = -1
_NUM_SEEDS = 1 << 64

Packed = dict[int, tuple[Matrix, _native.Weight]]


class NativeKernels:
    """Kernels for one instruction set, with a pool of threads that all its decoders share.

    num_threads: threads that compute, the caller's included. isa: "avx512", "avxvnni", "avx2", "neon", "portable";
    empty: the best this processor has. Raises OptionError where the processor lacks it.
    """

    name = "native"
    cache_dtype: type[np.generic] = np.uint16  # half precision, which NumPy need not compute with

    def __init__(self, num_threads: int, isa: str = "") -> None:
        try:
            self._kernels = _native.select_kernels(isa)
        except ValueError as error:
            raise OptionError(f"FOREDRAFT_ISA: {error}") from None
        self._pool = _native.ThreadPool(num_threads)
        self.num_threads = num_threads

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self._kernels.name

    def compile(self, recipe: Recipe, *, like: Forward | None = None) -> Forward:
        """Record the decoder; weights that `like` does not have are repacked on the way."""
        packed = like.packed if isinstance(like, NativeDecoder) else {}
        return NativeDecoder(recipe, self._pool, self._kernels, packed)

    def move_slots(self, storage: Storage, source: Sequence[int], target: Sequence[int]) -> None:
        """See `Kernels`."""
        _native.move_slots(storage.keys, storage.values, np.array(source, np.int32), np.array(target, np.int32))

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
        seed, choice, position = noise
        try:
            return _native.pick(
                self._kernels,
                logits_V,
                temperature,
                min(top_k, len(logits_V)),  # a larger one means the same, but need not fit 64 bits
                top_p,
                min_p,
                seed % _NUM_SEEDS,
                choice,
                position,
                count,
                token_ids,
            )
        except ValueError as error:  # a domain error of C++: the logits themselves are unusable
            raise ForedraftError(str(error)) from None

    def token_probability(self, logits_V: Floats, index: int, temperature: float) -> float:
        """See `Kernels`."""
        return _native.token_probability(self._kernels, logits_V, temperature or 1.0, index)


class NativeDecoder:
    """A recorded decoder. Its results are views of its own memory, valid until the next run.

    packed: matrices of model files that were packed before, by another decoder, and may be shared.
    """

    def __init__(
        self, recipe: Recipe, pool: _native.ThreadPool, kernels: _native.Kernels, packed: Packed | None = None
    ) -> None:
        self.packed: Packed = dict(packed or {})
        """Matrices of model files by the address of their bytes there, which stay mapped, and packed."""
        recorder = NativeOperations(_native.Program(pool, kernels), pool, self.packed)
        self._program = recorder.program
        self._results: dict[str, int] = dict(recipe(recorder))
        self.num_weight_bytes = recorder.num_weight_bytes
        """Bytes of the packed matrices: what a forward pass reads of the weights, norms and embedding rows apart."""
        for buffer in self._results.values():
            self._program.keep(buffer)
        self._program.finish()

    def __call__(self, batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        """Run the batch."""
        self._program.run(
            batch.tokens_N,
            batch.positions_N,
            batch.requests_N,
            batch.slots_N,
            batch.prefix_lengths_N,
            batch.tail_offsets,
            batch.tail_slots,
            batch.table_offsets,
            batch.block_tables,
            batch.selected_rows,
            storage.keys,
            storage.values,
        )
        return {name: self._program.result(buffer) for name, buffer in self._results.items()}

    def profile(self, *, on: bool) -> dict[str, float]:
        """Seconds by kind of operation since the last call; `on` switches the measuring."""
        seconds = dict(self._program.profile())
        self._program.set_profiling(on)
        return seconds


@dataclass
class NativeOperations:
    """Records operations; a batch of vectors is the id of a buffer of the program."""

    program: _native.Program
    pool: _native.ThreadPool
    packed: Packed = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tables: dict[int, int] = {}
        self._memory = _native.WeightMemory()
        self.num_weight_bytes = 0

    def embed(self, matrix: Matrix, scale: float) -> int:
        """See `Operations`."""
        return self.program.embed(matrix.format, *matrix.shape, matrix.data, scale)

    def rms_norm(self, x: int, weight: Floats, epsilon: float, residual: int | None = None) -> int:
        """See `Operations`."""
        return self.program.rms_norm(x, weight, epsilon, _NONE if residual is None else residual)

    def linear(
        self, x: int, matrices: Sequence[Matrix], residual: int | None = None, *, precise: bool = False
    ) -> list[int]:
        """See `Operations`."""
        added = _NONE if residual is None else residual
        return self.program.linear(x, [(self._pack(matrix), matrix.bias, added) for matrix in matrices], precise)

    def _pack(self, matrix: Matrix) -> _native.Weight:
        address = matrix.data.ctypes.data
        known, weight = self.packed.get(address, (None, None))
        if known is None or weight is None or (known.format, known.shape) != (matrix.format, matrix.shape):
            weight = _native.pack(matrix.format, *matrix.shape, matrix.data, self.pool, self._memory)
            if release_pages(matrix.data):  # or the model would be in memory twice
                self.packed[address] = (matrix, weight)
        self.num_weight_bytes += weight.num_bytes
        return weight

    def rope(self, x: int, num_heads: int, table: RopeTable) -> int:
        """See `Operations`."""
        if id(table) not in self._tables:
            self._tables[id(table)] = self.program.add_rope_table(table.inverse_frequencies, table.magnitude)
        self.program.rope(x, num_heads, self._tables[id(table)], table.interleaved)
        return x

    def attention(self, queries: int, keys: int, values: int, shape: AttentionShape) -> int:
        """See `Operations`."""
        return self.program.attention(
            queries,
            keys,
            values,
            shape.layer,
            shape.num_heads,
            shape.num_kv_heads,
            shape.head_width,
            shape.window,
            shape.scale,
            shape.softcap,
        )

    def gated(self, gate: int, up: int, activation: Literal["silu", "gelu_tanh"]) -> int:
        """See `Operations`."""
        return self.program.gated(gate, up, activation == "gelu_tanh")

    def select(self, x: int) -> int:
        """See `Operations`."""
        return self.program.select(x)
