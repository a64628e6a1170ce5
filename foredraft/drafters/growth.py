"""A draft tree that grows level by level, where it is likely to be accepted, one pass of a model for each level.

Source: Li et al., "EAGLE-2" (2024), for growing where the product of confidences is largest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from foredraft.drafters.base import SequenceView
from foredraft.sampling.noise import FloatArray
from foredraft.tree import Budget, DraftTree

_MAX_EXPANDED = 8  # nodes of one sequence in a pass: more would cost the model noticeably more than one


class Following(NamedTuple):
    """A token that may follow another.

    token, name: as the drafter's model knows it, and as the target does. draft_probs_V: what it was drawn from, where
    it was.
    """

    token: int
    name: int
    confidence: float
    draft_probs_V: FloatArray | None = None


@dataclass
class _Candidate:
    """A token that may be drafted. parent: index of a candidate, -1 where it follows the sequence's last token."""

    token: int
    name: int
    parent: int
    confidence: float
    survival: float
    depth: int
    draft_probs_V: FloatArray | None = None
    expanded: bool = False


@dataclass
class Growth:
    """A tree in the making, for one sequence.

    pending: what the model has not computed, tokens of the sequence down to the root. end_ids: names of tokens after
    which nothing follows. max_depth: as far as the context of the model reaches.
    tokens, parents: the tree that is run, the pending tokens at its beginning. num_ready: nodes of it that were run.
    sources: for each node of the next pass whose logits are wanted, the candidate that they follow, -1 for the root.
    """

    sequence: SequenceView
    pending: Sequence[int]
    budget: Budget
    end_ids: frozenset[int]
    max_depth: int
    tokens: list[int] = field(init=False)
    parents: list[int] = field(init=False)
    num_ready: int = 0
    sources: list[int] = field(default_factory=lambda: [-1])
    candidates: list[_Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens, self.parents = list(self.pending), list(range(-1, len(self.pending) - 1))
        self._nodes = {-1: len(self.pending) - 1}  # where each expanded candidate is in the tree that is run

    def path(self, source: int) -> list[int]:
        """The names of the tokens from below the root down to a candidate; empty for the root, -1."""
        names: list[int] = []
        while source >= 0:
            names.append(self.candidates[source].name)
            source = self.candidates[source].parent
        return names[::-1]

    def add(self, source: int, following: Sequence[Following]) -> None:
        """Note the likeliest tokens after a candidate."""
        survival, depth = 1.0, 1
        if source >= 0:
            survival, depth = self.candidates[source].survival, self.candidates[source].depth + 1
        for token, name, confidence, draft_probs_V in following:
            survives = survival * self.budget.chance(confidence, depth)
            self.candidates.append(_Candidate(token, name, source, confidence, survives, depth, draft_probs_V))

    def descend(self) -> None:
        """Lay out the next level: what follows may be better than the worst of what there is."""
        self.num_ready = len(self.tokens)
        best = self._best(self.budget.num_tokens - 1)
        self.sources = [index for index in best if self._may_grow(self.candidates[index])][:_MAX_EXPANDED]
        for index in self.sources:
            candidate = self.candidates[index]
            candidate.expanded = True
            self._nodes[index] = len(self.tokens)
            self.tokens.append(candidate.token)
            self.parents.append(self._nodes[candidate.parent])

    def _best(self, number: int) -> list[int]:
        """The candidates most likely to be accepted, best first; none before its parent."""
        order = sorted(range(len(self.candidates)), key=lambda index: -self.candidates[index].survival)
        return order[:number]

    def _may_grow(self, candidate: _Candidate) -> bool:
        if not self.budget.goes_on(candidate.survival, candidate.depth):
            return False
        return not candidate.expanded and candidate.name not in self.end_ids and candidate.depth < self.max_depth

    def tree(self) -> DraftTree:
        """The best candidates, within the budget, as the drafter's model knows them."""
        chosen = sorted(self._best(self.budget.num_tokens))
        index = {-1: 0} | {candidate: node for node, candidate in enumerate(chosen, start=1)}
        picked = [self.candidates[candidate] for candidate in chosen]
        return DraftTree(
            tokens=(self.sequence.tokens[-1], *(c.token for c in picked)),
            parents=(-1, *(index[c.parent] for c in picked)),
            confidence=(1.0, *(c.confidence for c in picked)),
            draft_probs=(None, *(c.draft_probs_V for c in picked)),
        )
