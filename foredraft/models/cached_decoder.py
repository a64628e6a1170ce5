"""A decoder with its cache: runs trees of tokens, a chain being the plainest, for several sequences at once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from foredraft.cache import BlockTable, PagedCache
from foredraft.kernels.batch import BLOCK_POSITIONS, Batch, padded_head_width
from foredraft.kernels.operations import Floats, Forward, Kernels
from foredraft.models.config import ModelConfig
from foredraft.models.source import ModelSource
from foredraft.tree import DraftTree

CHUNK_TOKENS = 256
"""Most tokens of a prompt that one forward pass takes."""

NUM_DEFAULT_POSITIONS = 16384

Wanted = Literal["all", "last", "none"]


@dataclass(frozen=True)
class Entry:
    """What one sequence adds to a forward pass: a tree behind its computed tokens, and which logits it wants.

    num_ready: nodes at the start of the tree that earlier passes have run, nothing having been committed since. They
    are seen by the others and not run again, so a tree can grow from pass to pass.
    """

    blocks: BlockTable
    tree: DraftTree
    wanted: Wanted = "all"
    num_ready: int = 0

    @property
    def num_rows(self) -> int:
        """Nodes to run."""
        return self.tree.num_nodes - self.num_ready

    @property
    def num_logits(self) -> int:
        """Rows of logits."""
        return {"all": self.num_rows, "last": 1, "none": 0}[self.wanted]


@dataclass(frozen=True, eq=False)
class ForwardResult:
    """What one forward pass found, for each of its entries. All arrays are views, valid until the next pass.

    logits_NV: [N, V]; a row for each node that was run where all were wanted, the last one's, or none.
    hidden_ND: by layer, for each entry [N, D]: the hidden state after that layer (0 is the first) of every node that
    was run, whatever logits were wanted. Layers that nobody asked for are not there.
    """

    logits_NV: Sequence[Floats]
    hidden_ND: Mapping[int, Sequence[Floats]] = field(default_factory=dict)

    def hidden_of(self, entry: int) -> dict[int, Floats]:
        """The hidden states of one entry, by layer: [N, D]."""
        return {layer: parts[entry] for layer, parts in self.hidden_ND.items()}


class CachedDecoder:
    """A compiled decoder and the cache of its sequences.

    source: the model that it was loaded from, if it was. hidden_layers: those whose hidden states passes return.
    cache: one made before, for the same model; None: a new one of `num_positions` positions.
    """

    def __init__(
        self,
        config: ModelConfig,
        forward: Forward,
        kernels: Kernels,
        source: ModelSource | None = None,
        *,
        hidden_layers: Sequence[int] = (),
        cache: PagedCache | None = None,
        num_positions: int | None = None,
    ) -> None:
        self.config = config
        self.kernels = kernels
        self.source = source
        self.hidden_layers = tuple(hidden_layers)
        self.compiled = forward
        self.cache = cache or self._default_cache(num_positions or default_positions(config))

    def _default_cache(self, num_positions: int) -> PagedCache:
        """Smaller where there is no address space for so many: often nobody wants that many."""
        while True:
            try:
                return self._new_cache(num_positions)
            except MemoryError:
                if num_positions <= NUM_DEFAULT_POSITIONS:
                    raise
                num_positions = max(NUM_DEFAULT_POSITIONS, num_positions // 2)

    def beside(self, num_positions: int) -> "CachedDecoder":
        """The same decoder with another, empty cache: to measure it while sequences hold the blocks of this one."""
        return CachedDecoder(
            self.config,
            self.compiled,
            self.kernels,
            self.source,
            hidden_layers=self.hidden_layers,
            cache=self._new_cache(num_positions),
        )

    def _new_cache(self, num_positions: int) -> PagedCache:
        config = self.config
        return PagedCache(
            config.num_layers,
            config.num_kv_heads,
            padded_head_width(config.head_width),
            self.kernels.cache_dtype,
            num_positions=num_positions,
        )

    def resize_cache(self, num_positions: int) -> None:
        """Begin with an empty cache of another size. Nothing may be running.

        Raises MemoryError where there is no address space for it.
        """
        self.cache = self._new_cache(num_positions)

    def forward(self, entries: Sequence[Entry]) -> ForwardResult:
        """One forward pass over all trees; nothing is committed.

        Raises OutOfBlocksError, before anything is computed, where the cache has no room for all of them.
        """
        for entry in entries:
            entry.blocks.reserve(entry.tree.num_nodes)
        results = self.compiled(lay_out(entries), self.cache.storage)
        logits_NV = _split(results["logits"], [entry.num_logits for entry in entries])
        num_rows = [entry.num_rows for entry in entries] if self.hidden_layers else []
        hidden_ND = {layer: _split(results[f"hidden.{layer}"], num_rows) for layer in self.hidden_layers}
        return ForwardResult(logits_NV, hidden_ND)

    def commit(self, blocks: BlockTable, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the root and the nodes of `path` (from the root's child down) of a tree that was just run."""
        length = len(blocks)
        moved = [(node, depth) for depth, node in enumerate(path, start=1) if node != depth]
        if moved:
            self.kernels.move_slots(
                self.cache.storage,
                [blocks.slot(length + node) for node, _ in moved],
                [blocks.slot(length + depth) for _, depth in moved],
            )
        blocks.advance(1 + len(path))

    def prefill(self, blocks: BlockTable, tokens: Sequence[int]) -> None:
        """Compute and commit `tokens` behind what is computed, chunk by chunk, without logits."""
        for start in range(0, len(tokens), CHUNK_TOKENS):
            root, *rest = tokens[start : start + CHUNK_TOKENS]
            chunk = DraftTree.chain(root, tuple(rest))
            self.forward([Entry(blocks, chunk, "none")])
            blocks.advance(chunk.num_nodes)

    def logits(self, token_ids: Sequence[int]) -> Floats:
        """Logits [S, V] after each of S tokens of one text, in one pass. Leaves the cache as it was."""
        blocks = self.cache.open()
        root, *rest = token_ids
        try:
            [logits] = self.forward([Entry(blocks, DraftTree.chain(root, tuple(rest)))]).logits_NV
            return np.array(logits)
        finally:
            blocks.close()

    def time_forward(self, *, num_tokens: int, context: int = 0, wanted: Wanted = "all") -> float:
        """Seconds that one forward pass of a chain of `num_tokens` takes behind `context` cached tokens.

        wanted: of the logits, "all" as in verification; "none" as for a chunk of a prompt. The tokens mean nothing, and
        what is behind them was never computed: the time depends on neither.
        """
        filler = [index % self.config.vocab_size for index in range(context + num_tokens)]
        blocks = self.cache.open()
        try:
            blocks.reserve(context)
            blocks.advance(context)
            root, *rest = filler[context:]
            entry = Entry(blocks, DraftTree.chain(root, tuple(rest)), wanted)
            started = time.perf_counter()
            self.forward([entry])
            return time.perf_counter() - started
        finally:
            blocks.close()  # nothing of it was published


def default_positions(config: ModelConfig) -> int:
    """Positions of a cache that nobody said the size of: enough for a few sequences as long as the model allows."""
    return -(-max(NUM_DEFAULT_POSITIONS, 4 * config.context_length) // BLOCK_POSITIONS) * BLOCK_POSITIONS


def _split(rows: Floats, numbers: Sequence[int]) -> list[Floats]:
    """The rows of each entry: so many for each, in order."""
    parts: list[Floats] = []
    begin = 0
    for number in numbers:
        parts.append(rows[begin : begin + number])
        begin += number
    return parts


def lay_out(entries: Sequence[Entry]) -> Batch:
    """The arrays of a forward pass.

    Nodes that continue the cached positions without a gap (node i at depth i, as in a chain) are reached
    through the block table, others through the list of their ancestors' slots. Which way is taken does not
    change a bit of the result.
    """
    tokens: list[int] = []
    positions: list[int] = []
    requests: list[int] = []
    slots: list[int] = []
    prefixes: list[int] = []
    tail_offsets, tail_slots = [0], list[int]()
    table_offsets, tables = [0], list[int]()
    selected: list[int] = []
    for index, entry in enumerate(entries):
        blocks, tree, length = entry.blocks, entry.tree, len(entry.blocks)
        if entry.wanted == "all":
            selected.extend(range(len(tokens), len(tokens) + entry.num_rows))
        elif entry.wanted == "last":
            selected.append(len(tokens) + entry.num_rows - 1)
        own_slots = [blocks.slot(length + node) for node in range(tree.num_nodes)]
        tokens.extend(tree.tokens[entry.num_ready :])
        positions.extend(length + depth for depth in tree.depths[entry.num_ready :])
        requests.extend([index] * entry.num_rows)
        slots.extend(own_slots[entry.num_ready :])
        straight = _straight(tree)
        for node in range(entry.num_ready, tree.num_nodes):
            if straight[node]:
                prefixes.append(length + node + 1)
            else:
                prefixes.append(length)
                tail_slots.extend(own_slots[ancestor] for ancestor in (0, *tree.path(node)))
            tail_offsets.append(len(tail_slots))
        tables.extend(blocks.blocks)
        table_offsets.append(len(tables))
    arrays = (
        tokens,
        positions,
        requests,
        slots,
        prefixes,
        tail_offsets,
        tail_slots,
        table_offsets,
        tables,
        selected,
    )
    return Batch(*(np.array(values, dtype=np.int32) for values in arrays))


def _straight(tree: DraftTree) -> list[bool]:
    """For each node whether all nodes up to it form a chain in the order of their indices."""
    straight = [True]
    for node, parent in enumerate(tree.parents[1:], start=1):
        straight.append(parent == node - 1 and straight[parent])
    return straight
