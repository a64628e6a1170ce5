"""The one shape every draft has: a tree of tokens. And how large it may become.

A chain is a tree without branches, and *no draft* is a tree that holds only its root. The root is the token
already chosen but not yet in the cache; the nodes below it are proposals.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import lt

import numpy as np
from numpy.typing import NDArray


def _taken_at_its_word(confidence: float, depth: int) -> float:
    return confidence


@dataclass(frozen=True)
class Budget:
    """How much to draft for one request in one round.

    num_tokens: most drafted tokens.
    min_survival: where a token is less likely than this to lie on the accepted path, a further one behind it is not
    worth its cost. A drafter each of whose tokens costs time stops there: it still proposes the token, which is paid
    for, and the planner leaves it out if it is not worth verifying. Drafters whose tokens are free may go on. A
    function where that depends on the token's depth.
    least: a token that is less likely than this, by the drafter's own estimate, to lie on the accepted path is of no
    use; drafters whose tokens are free leave it out where that saves them time.
    chance: from a drafter's confidence in a token, and the token's depth below the root (1 for a child of the root),
    to the chance that the token is right given that its parent is. What was learned of the drafter; by default its
    word is taken.
    """

    num_tokens: int
    min_survival: float | Callable[[int], float] = 0.0
    chance: Callable[[float, int], float] = _taken_at_its_word
    least: float = 0.0

    def goes_on(self, survival: float, depth: int) -> bool:
        """Whether to draft behind a token that is so likely to lie on the accepted path, so deep below the root."""
        least = self.min_survival(depth) if callable(self.min_survival) else self.min_survival
        return survival >= least


@dataclass(frozen=True)
class DraftTree:
    """Tokens in an order in which every parent comes before its children.

    tokens: token id of each node; node 0 is the root.
    parents: index of each node's parent; -1 for the root.
    confidence: the drafter's own estimate, in [0, 1], that a node is right given that its parent is. 1 for the root.
    sources: name of the drafter that each node is from, "" for the root. Empty: all are from the drafter asked.
    draft_probs: the distribution that each node's token was drawn from, float64 [V] over the target's vocabulary, given
    the children of the same parent before it; None for one that was not drawn, and for the root. Empty: none was.
    Rules that accept by distribution need it, see `foredraft.accept`.

    Raises ValueError when the three do not describe one tree, or when two children of a node hold the same token
    (the second could never be accepted).
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    confidence: tuple[float, ...] = field(default=())
    sources: tuple[str, ...] = ()
    draft_probs: tuple[NDArray[np.float64] | None, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.confidence:
            object.__setattr__(self, "confidence", (1.0,) * len(self.tokens))
        if not self.tokens or not len(self.tokens) == len(self.parents) == len(self.confidence):
            raise ValueError("a draft tree needs a root, and one parent and one confidence for each token")
        if self.sources and len(self.sources) != len(self.tokens):
            raise ValueError("a draft tree needs one source for each token, or none at all")
        if self.draft_probs and len(self.draft_probs) != len(self.tokens):
            raise ValueError("a draft tree needs one entry of draft_probs for each token, or none at all")
        if self.parents[0] != -1:
            raise ValueError("node 0 of a draft tree is its root and has parent -1")
        seen: set[tuple[int, int]] = set()
        for node, parent in enumerate(self.parents[1:], start=1):
            if not 0 <= parent < node:
                raise ValueError(f"node {node} has parent {parent}: a parent must come before its children")
            if (parent, self.tokens[node]) in seen:
                raise ValueError(f"node {parent} has two children with token {self.tokens[node]}")
            seen.add((parent, self.tokens[node]))

    @classmethod
    def known_to_hold(
        cls,
        tokens: tuple[int, ...],
        parents: tuple[int, ...],
        confidence: tuple[float, ...],
        sources: tuple[str, ...] = (),
        draft_probs: tuple[NDArray[np.float64] | None, ...] = (),
    ) -> "DraftTree":
        """A tree made of trees in a way that keeps them whole: nothing is checked.

        The planner makes several a round out of what drafters proposed, which was checked when they proposed it.
        """
        tree = object.__new__(cls)
        fields = {"tokens": tokens, "parents": parents, "confidence": confidence, "sources": sources}
        tree.__dict__.update(fields, draft_probs=draft_probs)
        return tree

    @classmethod
    def chain(cls, root: int, tokens: tuple[int, ...] = (), confidence: tuple[float, ...] | None = None) -> "DraftTree":
        """A tree without branches: `root`, then `tokens` one below the other. Without tokens: no draft."""
        return cls(
            tokens=(root, *tokens),
            parents=tuple(range(-1, len(tokens))),
            confidence=(1.0, *confidence) if confidence is not None else (),
        )

    @property
    def num_nodes(self) -> int:
        """Rows this tree takes in the target's forward pass, root included."""
        return len(self.tokens)

    @property
    def num_draft_tokens(self) -> int:
        """Proposed tokens: all nodes but the root."""
        return len(self.tokens) - 1

    @cached_property
    def is_chain(self) -> bool:
        """Whether no node has more than one child."""
        return all(parent == node - 1 for node, parent in enumerate(self.parents))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return tuple(depths)

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` that holds `token`, or None."""
        return self._children.get((node, token))

    def children(self, node: int) -> tuple[int, ...]:
        """The children of `node`, in the order of the tree."""
        return tuple(child for child in range(node + 1, self.num_nodes) if self.parents[child] == node)

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        return {(p, t): i for i, (p, t) in enumerate(zip(self.parents, self.tokens, strict=True)) if i}

    def restricted(self, nodes: Sequence[int]) -> "DraftTree":
        """The tree of some of its nodes, given in rising order: the root, and no node without its parent.

        Raises ValueError where the root or a parent is missing, or does not come first.
        """
        index = {node: i for i, node in enumerate(nodes)}
        parents = [index.get(self.parents[node], -1) for node in nodes]
        in_order = len(index) == len(nodes) and all(map(lt, parents, range(len(parents))))
        if index.get(0) != 0 or not in_order or -1 in parents[1:]:
            raise ValueError("a part of a draft tree needs its root, and the parent of each of its nodes before it")
        return DraftTree.known_to_hold(
            tokens=tuple([self.tokens[node] for node in nodes]),
            parents=tuple(parents),
            confidence=tuple([self.confidence[node] for node in nodes]),
            sources=tuple([self.sources[node] for node in nodes]) if self.sources else (),
            draft_probs=tuple([self.draft_probs[node] for node in nodes]) if self.draft_probs else (),
        )

    def judged(self, chances: Sequence[float], source: str) -> "DraftTree":
        """The same nodes with other chances in place of the confidences. source: of nodes that name none."""
        sources = self.sources or ("", *(source,) * self.num_draft_tokens)
        return DraftTree.known_to_hold(self.tokens, self.parents, tuple(chances), sources, self.draft_probs)

    def cut(self, num_draft_tokens: int) -> "DraftTree":
        """The tree itself, or its first nodes where it has more drafted tokens than that."""
        if self.num_draft_tokens <= num_draft_tokens:
            return self
        return self.restricted(range(num_draft_tokens + 1))

    def first_chain(self) -> "DraftTree":
        """The tree itself where it has no branches, or the chain of each node's first child."""
        if self.is_chain:
            return self
        nodes = [0]
        while below := self.children(nodes[-1]):
            nodes.append(below[0])
        return self.restricted(nodes)

    def compared(self, tokens: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...], int | None]]:
        """The tree beside what was said behind its root, level by level, as deep as both go along each other.

        Yields the depth, the nodes proposed there behind what was said before, and the right one of them, or None.
        """
        at = 0
        for depth, token in enumerate(tokens, start=1):
            children, right = self.children(at), self.child(at, token)
            if not children:
                return
            yield depth, children, right
            if right is None:
                return
            at = right

    def path(self, node: int) -> tuple[int, ...]:
        """Node indices from the root's child down to `node`; empty for the root."""
        nodes: list[int] = []
        while node > 0:
            nodes.append(node)
            node = self.parents[node]
        return tuple(reversed(nodes))
