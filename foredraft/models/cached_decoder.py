"""A decoder with its cache: runs trees of tokens, a chain being the plainest, for several requests at once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foredraft.cache import CacheSequence, PagedCache
from foredraft.kernels.batch import Batch, padded_head_width
from foredraft.kernels.operations import Floats, Forward, Kernels
from foredraft.models.config import ModelConfig
from foredraft.models.source import ModelSource
from foredraft.tree import DraftTree

CHUNK_TOKENS = 256
"""Most tokens of a prompt that one forward pass takes."""

Wanted = Literal["all", "last", "none"]


@dataclass(frozen=True)
class Entry:
    """What one request adds to a forward pass: a tree behind its cached tokens, and which logits it wants.

    num_ready: nodes at the start of the tree that earlier passes have run, nothing having been committed since. They
    are seen by the others and not run again, so a tree can grow from pass to pass.
    """

    sequence: CacheSequence
    tree: DraftTree
    wanted: Wanted = "all"
    num_ready: int = 0

    @property
    def num_rows(self) -> int:
        """Nodes to run."""
        return self.tree.num_nodes - self.num_ready


class CachedDecoder:
    """A compiled decoder and the cache of its requests.

    source: the model that it was loaded from, if it was.
    """

    def __init__(
        self, config: ModelConfig, forward: Forward, kernels: Kernels, source: ModelSource | None = None
    ) -> None:
        self.config = config
        self.kernels = kernels
        self.source = source
        self.cache = PagedCache(
            config.num_layers, config.num_kv_heads, padded_head_width(config.head_width), kernels.cache_dtype
        )
        self.compiled = forward

    def forward(self, entries: Sequence[Entry]) -> list[Floats]:
        """One forward pass over all trees; nothing is committed.

        Returns for each entry its logits: [rows, V] for "all", a row for each node that is run, [1, V] for "last",
        [0, V] for "none". They are views that are valid until the next pass.
        """
        for entry in entries:
            entry.sequence.reserve(entry.tree.num_nodes)
        results = self.compiled(lay_out(entries), self.cache.storage)
        return _split(entries, results)

    def commit(self, sequence: CacheSequence, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the root and the nodes of `path` (from the root's child down) of a tree that was just run."""
        length = len(sequence)
        moved = [(node, depth) for depth, node in enumerate(path, start=1) if node != depth]
        if moved:
            self.kernels.move_slots(
                self.cache.storage,
                [sequence.slot(length + node) for node, _ in moved],
                [sequence.slot(length + depth) for _, depth in moved],
            )
        sequence.commit([tree.tokens[node] for node in (0, *path)])

    def prefill(self, sequence: CacheSequence, tokens: Sequence[int]) -> None:
        """Compute and commit `tokens` behind what is cached, chunk by chunk, without logits."""
        for start in range(0, len(tokens), CHUNK_TOKENS):
            root, *rest = tokens[start : start + CHUNK_TOKENS]
            chunk = DraftTree.chain(root, tuple(rest))
            self.forward([Entry(sequence, chunk, "none")])
            sequence.commit(chunk.tokens)

    def logits(self, token_ids: Sequence[int]) -> Floats:
        """Logits [S, V] after each of S tokens of one text, in one pass. Leaves the cache as it was."""
        sequence = self.cache.open(())
        root, *rest = token_ids
        try:
            [logits] = self.forward([Entry(sequence, DraftTree.chain(root, tuple(rest)))])
            return np.array(logits)
        finally:
            sequence.close()

    def time_forward(self, *, num_tokens: int, context: int = 0) -> float:
        """Seconds that one forward pass of a chain of `num_tokens` takes behind `context` cached tokens.

        All logits are computed, as in verification. The tokens mean nothing, what is behind them was never computed:
        the time depends on neither.
        """
        filler = [index % self.config.vocab_size for index in range(context + num_tokens)]
        sequence = self.cache.open(())
        try:
            sequence.reserve(context)
            sequence.commit(filler[:context])
            root, *rest = filler[context:]
            entry = Entry(sequence, DraftTree.chain(root, tuple(rest)))
            started = time.perf_counter()
            self.forward([entry])
            return time.perf_counter() - started
        finally:
            sequence.truncate(0)  # nothing of it is to be found by requests
            sequence.close()


def _split(entries: Sequence[Entry], results: Mapping[str, Floats]) -> list[Floats]:
    parts: list[Floats] = []
    begin = 0
    for entry in entries:
        end = begin + {"all": entry.num_rows, "last": 1, "none": 0}[entry.wanted]
        parts.append(results["logits"][begin:end])
        begin = end
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
    for request, entry in enumerate(entries):
        sequence, tree, length = entry.sequence, entry.tree, len(entry.sequence)
        if entry.wanted == "all":
            selected.extend(range(len(tokens), len(tokens) + entry.num_rows))
        elif entry.wanted == "last":
            selected.append(len(tokens) + entry.num_rows - 1)
        own_slots = [sequence.slot(length + node) for node in range(tree.num_nodes)]
        tokens.extend(tree.tokens[entry.num_ready :])
        positions.extend(length + depth for depth in tree.depths[entry.num_ready :])
        requests.extend([request] * entry.num_rows)
        slots.extend(own_slots[entry.num_ready :])
        straight = _straight(tree)
        for node in range(entry.num_ready, tree.num_nodes):
            if straight[node]:
                prefixes.append(length + node + 1)
            else:
                prefixes.append(length)
                tail_slots.extend(own_slots[ancestor] for ancestor in (0, *tree.path(node)))
            tail_offsets.append(len(tail_slots))
        tables.extend(sequence.blocks)
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
