"""Block verification: a chain is judged as a whole, which accepts at least as much as token by token.

Source: Sun et al., "Block Verification Accelerates Speculative Decoding" (ICLR 2025), Algorithm 2. With the ratio that
the first i tokens X have kept,

    kept[0] = 1
    kept[i] = min(kept[i-1] * target_probs[X_i] / draft_probs[X_i], 1)

and what the target wants beyond the drafter after them,

    excess[i] = sum over x of max(kept[i] * target_probs[x] - draft_probs[x], 0)         (the distributions after X_i)

the longest i is accepted whose own trial succeeds, with the chance

    excess[i] / (excess[i] + 1 - kept[i])    or    kept[i]  for the last i,

and the target's token after it is drawn from max(kept[i] * target_probs - draft_probs, 0), or after a whole chain from
target_probs. Trials are made from the longest down, so only as many as are needed.

As for `rejection`, the result equals plain decoding in distribution.
"""

import numpy as np

from foredraft.accept.base import Accepted, Chance
from foredraft.accept.rejection import TargetProbs, drawn_from
from foredraft.tree import DraftTree


def block(tree: DraftTree, target_probs: TargetProbs, chance: Chance) -> Accepted:
    """Accept the first tokens of a chain, judged together.

    target_probs is asked for every node. Raises ValueError for a tree with branches, and as `rejection` does.
    """
    if not tree.is_chain:
        raise ValueError("block verification judges chains; this draft tree has branches")
    length = tree.num_draft_tokens
    targets = [target_probs(node) for node in range(length + 1)]
    drafts = [drawn_from(tree, node, len(targets[0])) for node in range(1, length + 1)]
    kept = [1.0]
    for token, target_probs_V, draft_probs_V in zip(tree.tokens[1:], targets, drafts, strict=False):
        kept.append(float(min(kept[-1] * target_probs_V[token] / draft_probs_V[token], 1.0)))
    if length and chance.happens(kept[length]):
        return Accepted(tuple(range(1, length + 1)), chance.draw(targets[length]))
    for num_accepted in range(length - 1, -1, -1):
        excess_V = np.maximum(kept[num_accepted] * targets[num_accepted] - drafts[num_accepted], 0.0)
        if num_accepted == 0 or chance.happens(_chance(float(excess_V.sum()), kept[num_accepted])):
            weights_V = excess_V if excess_V.any() else targets[num_accepted]
            return Accepted(tuple(range(1, num_accepted + 1)), chance.draw(weights_V))
    return Accepted((), chance.draw(targets[0]))


def _chance(excess: float, kept: float) -> float:
    return 1.0 if kept >= 1.0 else excess / (excess + 1.0 - kept)
