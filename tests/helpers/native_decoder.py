"""A small decoder recorded straight into foredraft._native, and requests with draft trees to run it on."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foredraft import _native
from helpers.quantise import quantise

Floats = npt.NDArray[np.float32]
VOCABULARY, WIDTH, FFN_WIDTH = 61, 256, 256
NUM_HEADS, NUM_KV_HEADS, HEAD_WIDTH, NUM_LAYERS = 8, 2, 32, 2
WINDOW = 20  # of the second layer
BLOCK = 16


def ints(values: list[int]) -> npt.NDArray[np.int32]:
    return np.array(values, dtype=np.int32)


class NativeDecoder:
    """Two layers with weights of one format; equal arguments give equal weights."""

    def __init__(self, isa: str, format: str, *, num_threads: int = 1, precise: bool = False) -> None:
        self._random = np.random.default_rng(5)
        self._format, self._precise = format, precise
        self._pool = _native.ThreadPool(num_threads)
        self.program = program = _native.Program(self._pool, _native.select_kernels(isa))
        table = quantise(self._values(VOCABULARY, WIDTH), format).reshape(-1)
        x = program.embed(format, VOCABULARY, WIDTH, table, 20.0)
        frequencies = (10000.0 ** (-np.arange(HEAD_WIDTH // 2) / (HEAD_WIDTH // 2))).astype(np.float32)
        rope = program.add_rope_table(frequencies, 1.0)
        for layer in range(NUM_LAYERS):
            x = self._layer(x, layer, rope)
        x = program.rms_norm(program.select(x), self._norm(WIDTH), 1e-5, -1)
        (self._logits,) = program.linear(x, [self._matrix(VOCABULARY, WIDTH)], precise)
        program.keep(self._logits)
        program.finish()

    def run(self, batch: "Rows", cache: "Cache") -> Floats:
        """Logits of every row."""
        self.program.run(*batch.arrays(), cache.keys, cache.values)
        return self.program.result(self._logits).copy()

    def _layer(self, x: int, layer: int, rope: int) -> int:
        p, kv_width = self.program, NUM_KV_HEADS * HEAD_WIDTH
        normed = p.rms_norm(x, self._norm(WIDTH), 1e-5, -1)
        matrices = [self._matrix(rows, WIDTH) for rows in (WIDTH, kv_width, kv_width)]
        q, k, v = p.linear(normed, matrices, self._precise)
        p.rope(q, NUM_HEADS, rope, layer == 0)
        p.rope(k, NUM_KV_HEADS, rope, layer == 0)
        shape = (NUM_HEADS, NUM_KV_HEADS, HEAD_WIDTH, WINDOW if layer else 0, HEAD_WIDTH**-0.5, 30.0 * layer)
        mixed = p.attention(q, k, v, layer, *shape)
        (x,) = p.linear(mixed, [self._matrix(WIDTH, WIDTH, residual=x)], self._precise)
        normed = p.rms_norm(x, self._norm(WIDTH), 1e-5, -1)
        gate, up = p.linear(normed, [self._matrix(FFN_WIDTH, WIDTH) for _ in range(2)], self._precise)
        (down,) = p.linear(p.gated(gate, up, layer == 1), [self._matrix(WIDTH, FFN_WIDTH)], self._precise)
        return p.rms_norm(down, self._norm(WIDTH), 1e-5, x)

    def _matrix(self, rows: int, columns: int, residual: int = -1) -> tuple[_native.Weight, Floats, int]:
        data = quantise(self._values(rows, columns), self._format).reshape(-1)
        bias = self._values(1, rows).reshape(-1)
        return _native.pack(self._format, rows, columns, data, self._pool), bias, residual

    def _values(self, rows: int, columns: int) -> Floats:
        return (self._random.standard_normal((rows, columns)) / 16).astype(np.float32)

    def _norm(self, width: int) -> Floats:
        return self._random.uniform(0.5, 1.5, width).astype(np.float32)


@dataclass(frozen=True)
class Request:
    """Tokens that are cached, then a tree to verify; parents[0] is -1."""

    prefix: tuple[int, ...]
    nodes: tuple[int, ...]
    parents: tuple[int, ...]

    def path(self, node: int) -> list[int]:
        """Nodes from the root to `node`."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]


class Cache:
    """Blocks in random order, full of finite numbers that must not matter."""

    def __init__(self, num_blocks: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        shape = (NUM_LAYERS, num_blocks, NUM_KV_HEADS)
        self.keys = random.integers(0, 0x7800, (*shape, HEAD_WIDTH, BLOCK)).astype(np.uint16)
        self.values = random.integers(0, 0x7800, (*shape, BLOCK, HEAD_WIDTH)).astype(np.uint16)
        self._free: list[int] = random.permutation(num_blocks).tolist()

    def take(self, num_positions: int) -> list[int]:
        """A block table for so many positions."""
        return [self._free.pop() for _ in range(-(-num_positions // BLOCK))]


def slot(table: list[int], position: int) -> int:
    return table[position // BLOCK] * BLOCK + position % BLOCK


class Rows:
    """A batch, grown row by row."""

    def __init__(self, tables: list[list[int]]) -> None:
        self.tables = tables
        self.rows: list[tuple[int, int, int, int, int]] = []
        self.tails: list[list[int]] = []

    def add(self, token: int, position: int, request: int, its_slot: int, tail: list[int]) -> None:
        """A row whose last len(tail) positions lie in the slots of its tail, the rest in its blocks."""
        self.rows.append((token, position, request, its_slot, position + 1 - len(tail)))
        self.tails.append(tail)

    def arrays(self) -> list[npt.NDArray[np.int32]]:
        """The first ten arguments of Program.run; every row is selected."""
        columns = [ints(list(column)) for column in zip(*self.rows, strict=True)]
        tails = [slot for tail in self.tails for slot in tail]
        blocks = [block for table in self.tables for block in table]
        tail_offsets = np.cumsum([0, *map(len, self.tails)]).astype(np.int32)
        table_offsets = np.cumsum([0, *map(len, self.tables)]).astype(np.int32)
        return [
            *columns, tail_offsets, ints(tails), table_offsets, ints(blocks), ints(list(range(len(self.rows))))
        ]  # fmt: skip


def run_together(decoder: NativeDecoder, requests: list[Request], chunk: int, seed: int) -> list[Floats]:
    """Prompts in chunks, then all trees in one batch. Logits [nodes, vocabulary] of each request."""
    cache = Cache(sum(len(r.prefix) // BLOCK + len(r.nodes) // BLOCK + 2 for r in requests), seed)
    tables = [cache.take(len(r.prefix)) for r in requests]
    longest = max(len(r.prefix) for r in requests)
    for start in range(0, longest, chunk):
        rows = Rows(tables)
        for i, r in enumerate(requests):
            for p in range(start, min(start + chunk, len(r.prefix))):
                rows.add(r.prefix[p], p, i, slot(tables[i], p), [])
        decoder.run(rows, cache)
    rows = Rows(tables)
    for i, r in enumerate(requests):
        own = cache.take(len(r.nodes))
        for n, token in enumerate(r.nodes):
            tail = [slot(own, node) for node in r.path(n)]
            rows.add(token, len(r.prefix) + len(tail) - 1, i, tail[-1], tail)
    logits = decoder.run(rows, cache)
    return np.split(logits, np.cumsum([len(r.nodes) for r in requests])[:-1])


def run_one_by_one(decoder: NativeDecoder, request: Request, seed: int) -> Floats:
    """Every branch of the tree as a sequence of its own, one token after the other."""
    cache = Cache((len(request.prefix) + len(request.nodes)) // BLOCK + 1, seed)
    table = cache.take(len(request.prefix) + len(request.nodes))

    def feed(token: int, position: int) -> Floats:
        rows = Rows([table])
        rows.add(token, position, 0, slot(table, position), [])
        return decoder.run(rows, cache)[0]

    for position, token in enumerate(request.prefix):
        feed(token, position)
    results = []
    for n in range(len(request.nodes)):
        for depth, node in enumerate(request.path(n)):
            last = feed(request.nodes[node], len(request.prefix) + depth)
        results.append(last)
    return np.stack(results)
