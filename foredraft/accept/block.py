"""Drafts judged from their ends: a chain or a tree as a whole, which accepts at least as much as token by token.

Sources: Sun et al., "Block Verification Accelerates Speculative Decoding" (ICLR 2025), for chains; Weng et al.,
"Traversal Verification for Speculative Tree Decoding" (2025), for trees.

A node has a share in [0, 1]: the chance with which it is to be accepted; for the root it is 1. A child x of it that was
drawn from `draft_probs` gets

    min(share * target_probs[x] / draft_probs[x], 1)

and is judged with everything below it. If it is rejected, what the target wants beyond the drafter is left over for the
children after it:

    excess       = max(share * target_probs - draft_probs, 0)
    share        = sum(excess) / (sum(excess) + 1 - share)
    target_probs = excess, normalised

A node whose children were all rejected is accepted itself with the share that is left, and the target's token after it
is drawn from the `target_probs` that are left.

Why it is exact: a child is accepted with its share whatever lies below it, and the accepted and the left-over part
together are share * target_probs for each token. As for `rejection`, the text is equal to plain decoding in
distribution.
"""

import numpy as np

from foredraft.accept.base import Accepted, Chance
from foredraft.accept.rejection import TargetProbs, drawn_from
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree


def block(tree: DraftTree, target_probs: TargetProbs, chance: Chance) -> Accepted:
    """Accept the first tokens of a chain, judged together.

    target_probs is asked for every node. Raises ValueError for a tree with branches, and as `rejection` does.
    """
    if not tree.is_chain:
        raise ValueError("block verification judges chains; this draft tree has branches")
    return traversal(tree, target_probs, chance)


def traversal(tree: DraftTree, target_probs: TargetProbs, chance: Chance) -> Accepted:
    """Accept a path of a tree, or a part of a chain, judged together with all that lies below each node.

    target_probs is asked for all nodes but those below or beside accepted ones. Raises as `rejection` does.
    """
    accepted = _judge(tree, 0, 1.0, target_probs, chance)
    assert accepted is not None  # the root has the whole share
    return accepted


def _judge(tree: DraftTree, node: int, share: float, target_probs: TargetProbs, chance: Chance) -> Accepted | None:
    """What is accepted from the root down, if it leads to `node`; None, with the chance 1 - share, if it does not."""
    if share == 0.0:
        return None
    rest_V = target_probs(node)
    for child in tree.children(node):
        draft_probs_V = drawn_from(tree, child, len(rest_V))
        token = tree.tokens[child]
        below = min(share * rest_V[token] / draft_probs_V[token], 1.0)
        accepted = _judge(tree, child, float(below), target_probs, chance)
        if accepted is not None:
            return accepted
        rest_V, share = _left_over(rest_V, share, draft_probs_V)
    if not chance.happens(share):
        return None
    return Accepted(tree.path(node), chance.draw(rest_V))


def _left_over(target_probs_V: FloatArray, share: float, draft_probs_V: FloatArray) -> tuple[FloatArray, float]:
    excess_V = np.maximum(share * target_probs_V - draft_probs_V, 0.0)
    excess = float(excess_V.sum())
    if excess == 0.0:  # nothing, or where the share is whole, no more than rounded numbers: it was not rejected then
        return target_probs_V, 0.0 if share < 1.0 else 1.0
    return excess_V / excess, 1.0 if share >= 1.0 else excess / (excess + 1.0 - share)
