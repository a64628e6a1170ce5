"""Rejection sampling: equal to plain decoding in distribution, not token for token.

A drafted token x that was drawn from `draft_probs` is accepted with probability

    min(1, target_probs[x] / draft_probs[x])

and where it is rejected, the target's token is drawn from what the drafter gave too little to:

    max(target_probs - draft_probs, 0), normalised.

Sources: Leviathan, Kalman and Matias, "Fast Inference from Transformers via Speculative Decoding" (ICML 2023); Chen et
al., "Accelerating Large Language Model Decoding with Speculative Sampling" (2023). With several children of a node the
second faces what the first one left, and so on: Miao et al., "SpecInfer" (ASPLOS 2024); where they were drawn without
replacement, Jeon et al., "Recursive Speculative Decoding" (2024), and Chen et al., "Sequoia" (2024).

Why it is exact: whether x or something else comes out of one step is the target's distribution for x drawn from
`draft_probs` (the two cases add up to it for each token), and each further child takes its step on the rest. What it
needs is that a child's `draft_probs`, given the siblings before it, is what it was drawn from, and that the numbers
that decide have nothing to do with the draw. A token proposed without drawing has all the probability on itself: it
is accepted with the target's probability, and dropped from the rest.
"""

from collections.abc import Callable

import numpy as np

from foredraft.accept.base import Accepted, Chance
from foredraft.errors import ForedraftError
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree

TargetProbs = Callable[[int], FloatArray]
"""From a node to the target's distribution after it: float64 [V]."""

_MOST_ERROR = 1e-6


def rejection(tree: DraftTree, target_probs: TargetProbs, chance: Chance) -> Accepted:
    """Accept or reject the children of each node in their order, down to where all were rejected.

    target_probs is asked for the root and for accepted nodes only. Raises ForedraftError where the tree's `draft_probs`
    cannot be what its tokens were drawn from.
    """
    path: list[int] = []
    node = 0
    while True:
        rest_V = target_probs(node)
        for child in tree.children(node):
            draft_probs_V = drawn_from(tree, child, len(rest_V))
            token = tree.tokens[child]
            if chance.happens(rest_V[token] / draft_probs_V[token]):
                break
            rest_V = remainder(rest_V, draft_probs_V, rejected=token)
        else:
            return Accepted(tuple(path), chance.draw(rest_V))
        path.append(child)
        node = child


def remainder(target_probs_V: FloatArray, draft_probs_V: FloatArray, *, rejected: int) -> FloatArray:
    """max(target_probs - draft_probs, 0), normalised."""
    rest_V = np.maximum(target_probs_V - draft_probs_V, 0.0)
    total = rest_V.sum()
    if total > 0:
        return np.asarray(rest_V / total)
    # The two are equal: a rejection has no chance but that of a rounded number.
    rest_V = target_probs_V.copy()
    rest_V[rejected] = 0.0
    return rest_V / rest_V.sum() if rest_V.any() else target_probs_V


def drawn_from(tree: DraftTree, node: int, vocab_size: int) -> FloatArray:
    """The distribution a node's token was drawn from: float64 [V], all on the token where nothing was drawn.

    Raises ForedraftError where the tree's own cannot be it.
    """
    token = tree.tokens[node]
    probs_V = tree.draft_probs[node] if tree.draft_probs else None
    if probs_V is None:
        probs_V = np.zeros(vocab_size)
        probs_V[token] = 1.0
        return probs_V
    if len(probs_V) != vocab_size:
        raise ForedraftError(f"draft_probs of node {node} are of {len(probs_V)} tokens, the target has {vocab_size}")
    if not probs_V[token] > 0 or abs(probs_V.sum() - 1.0) > _MOST_ERROR:
        raise ForedraftError(f"draft_probs of node {node} cannot be what token {token} was drawn from")
    return probs_V
