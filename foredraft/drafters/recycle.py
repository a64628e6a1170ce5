"""Drafts from what the target found likely the last time the same token stood there.

Source: Luo et al., "Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling"
(2024). The target's logits after every token of the text are there anyway; the tokens with the largest become the row
of that token, and drafts are grown by following rows. Other than in the paper, a row is kept for the last two tokens as
well and comes first, the chance of a candidate is learned from how often candidates like it were right, where the paper
has one fixed tree, and rejected nodes write no rows: looking for their candidates took longer than they saved.
"""

import heapq
import math
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, SequenceView, no_draft
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Floats, Kernels
from foredraft.kernels.reference import ReferenceKernels
from foredraft.tree import Budget, DraftTree

NUM_CANDIDATES = 8
"""Candidates of a row, as in the paper."""
MAX_SINGLE_ROWS, MAX_PAIR_ROWS = 1 << 14, 1 << 15
"""Most rows kept for one token and for two; those longest not written go first. Together some 25 MB."""
CLASS_LIMITS = (0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.95)
"""Candidates are told apart by how likely they were when their row was written: these are the limits of the classes."""
_CLASS_MIDDLES = (0.005, 0.02, 0.05, 0.15, 0.3, 0.5, 0.7, 0.87, 0.98)
SINGLE_TRUST, PAIR_TRUST = 0.5, 0.75
"""Before anything was learned: how much of a candidate's chance is left in another text that shares one token, or two.

A guess; PRIOR_WEIGHT cases of a class weigh as much as it.
"""
PRIOR_WEIGHT = 8.0
_MEMORY = 1024.0
"""Cases of a class after which older ones count half, so that what is learned follows the text."""

_Key = TypeVar("_Key")
_Row = tuple[tuple[int, ...], tuple[int, ...]]
"""Candidates, the likeliest first, and their classes."""


class RecycleDrafter(Drafter):
    """Proposes trees along the rows of a table from tokens to candidates, which all sequences share.

    kernels: what finds the largest logits; None: the plain ones of the reference.
    """

    # Looking at logits takes longer than all else that model-free drafters do.
    spec = DrafterSpec(name="recycle", observes_skipped_rounds=False)

    def __init__(self, kernels: Kernels | None = None) -> None:
        self._kernels = kernels or ReferenceKernels()
        self._single: OrderedDict[int, _Row] = OrderedDict()
        self._pair: OrderedDict[tuple[int, int], _Row] = OrderedDict()
        self._single_odds = _Odds(SINGLE_TRUST)
        self._pair_odds = _Odds(PAIR_TRUST)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [
            self._propose_one(sequence.tokens, budget) if budget.num_tokens > 0 else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _propose_one(self, text: Sequence[int], budget: Budget) -> DraftTree:
        """Best first: of all candidates below nodes of the tree, the likeliest becomes the next node."""
        before, last = text[-2] if len(text) > 1 else -1, text[-1]
        tokens, parents, confidences = [last], [-1], [1.0]
        # Only the first child of a node and the next sibling wait at a time, since candidates stand in falling order.
        heap: list[tuple[float, int, int, int, float, _Row, tuple[float, ...]]] = []
        num_pushed = 0

        def push(survival: float, parent: int, row: _Row, chances: tuple[float, ...], index: int) -> None:
            nonlocal num_pushed
            num_pushed += 1
            chance = chances[row[1][index]]
            heapq.heappush(heap, (-survival * chance, num_pushed, parent, index, survival, row, chances))

        found = self._row(before, last)
        if found is not None:
            push(1.0, 0, *found, 0)
        while heap and len(tokens) <= budget.num_tokens:
            negative, _, parent, index, above, row, chances = heapq.heappop(heap)
            if -negative < budget.least:
                break
            token, node = row[0][index], len(tokens)
            tokens.append(token)
            parents.append(parent)
            confidences.append(chances[row[1][index]])
            if index + 1 < len(row[0]):
                push(above, parent, row, chances, index + 1)
            found = self._row(tokens[parent], token)
            if found is not None:
                push(-negative, node, *found, 0)
        return DraftTree(tuple(tokens), tuple(parents), tuple(confidences))

    def _row(self, before: int, token: int) -> tuple[_Row, tuple[float, ...]] | None:
        """The candidates after two tokens, and the chance of each class of them."""
        row = self._pair.get((before, token))
        if row is not None:
            return row, self._pair_odds.chances
        row = self._single.get(token)
        return None if row is None else (row, self._single_odds.chances)

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`. First learns how good the rows were, then writes new ones."""
        for sequence, outcome in zip(sequences, outcomes, strict=True):
            before, followed = _neighbours(sequence.tokens, outcome)
            self._learn(outcome, before, followed)
            self._write(outcome, before)

    def _learn(self, outcome: Outcome, before: int, followed: Sequence[int]) -> None:
        for token, right in zip((outcome.tree.tokens[0], *followed), followed, strict=False):
            pair, single = self._pair.get((before, token)), self._single.get(token)
            if pair is not None:
                self._pair_odds.count(pair, right)
            elif single is not None:
                self._single_odds.count(single, right)
            before = token

    def _write(self, outcome: Outcome, before: int) -> None:
        """The rows of the root and of the accepted path, which are of this text."""
        tree = outcome.tree
        for node in (0, *outcome.path):
            row = top_candidates(self._kernels, outcome.logits_NV[node], outcome.likeliest.get(node))
            if not row[0]:
                continue
            token, parent = tree.tokens[node], tree.parents[node]
            _put(self._single, token, row, MAX_SINGLE_ROWS)
            _put(self._pair, (tree.tokens[parent] if parent >= 0 else before, token), row, MAX_PAIR_ROWS)


class _Odds:
    """How often candidates of each class were right, and what that makes of their chances."""

    def __init__(self, trust: float) -> None:
        self._hits = [PRIOR_WEIGHT * trust * middle for middle in _CLASS_MIDDLES]
        self._cases = [PRIOR_WEIGHT] * len(_CLASS_MIDDLES)
        self.chances = tuple(trust * middle for middle in _CLASS_MIDDLES)

    def count(self, row: _Row, right: int) -> None:
        """The token `right` followed where `row` was the guess."""
        hits, cases = self._hits, self._cases
        for token, kind in zip(*row, strict=True):
            cases[kind] += 1.0
            if token == right:
                hits[kind] += 1.0
            if cases[kind] > _MEMORY:
                hits[kind] *= 0.5
                cases[kind] *= 0.5
        self.chances = tuple(hit / case for hit, case in zip(hits, cases, strict=True))


def _put(table: OrderedDict[_Key, _Row], key: _Key, row: _Row, most: int) -> None:
    table[key] = row
    table.move_to_end(key)
    if len(table) > most:
        table.popitem(last=False)


def _neighbours(tokens: Sequence[int], outcome: Outcome) -> tuple[int, list[int]]:
    """The token before the root (-1: none), and those after it up to the bonus, if the round came to one."""
    for num_emitted in (len(outcome.path) + 1, len(outcome.path)):
        root = len(tokens) - num_emitted - 1
        if root >= 0 and tokens[root] == outcome.tree.tokens[0]:
            return (tokens[root - 1] if root else -1), list(tokens[root + 1 :])
    return -1, []


def top_candidates(kernels: Kernels, logits_V: Floats, known: Sequence[int] | None = None) -> _Row:
    """The tokens with the largest logits, and classes of their chances relative to each other.

    known: the tokens, where somebody has looked for them. No tokens where the logits are not numbers: of a broken model
    nothing is known.
    """
    tokens = known[:NUM_CANDIDATES] if known else _largest(kernels, logits_V)
    if not tokens:
        return (), ()
    largest, *others = logits_V[list(tokens)].tolist()
    weights = [1.0, *[math.exp(logit - largest) for logit in others]]
    total = sum(weights)
    return tuple(tokens), tuple([bisect_right(CLASS_LIMITS, weight / total) for weight in weights])


def _largest(kernels: Kernels, logits_V: Floats) -> Sequence[int]:
    try:
        return kernels.pick(
            logits_V, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, noise=(0, 0, 0), count=NUM_CANDIDATES
        )
    except ForedraftError:
        return ()
