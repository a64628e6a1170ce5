"""Which of the drafted nodes are worth verifying.

All sequences of a round share one pass, so their nodes compete: the next place in it goes to the node that is likeliest
to be accepted, whosever it is. A node is never likelier than its parent, so the likeliest nodes always form trees, and
for each number of batched tokens they are the best choice there is.

How many: a token that is accepted need not be produced later, which would take 1 / rate seconds, the rate being the
tokens per second that this text comes at. So the number is chosen that makes `tokens - rate * seconds` of the round
largest. That is what maximises the tokens per second over many rounds (Dinkelbach 1967, on ratios).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foredraft.tree import DraftTree

LEAST_GAIN = 0.02
"""Expected tokens by which a node must be worth more than its cost.

Nodes that promise less bring little but luck, and a text that suits no drafter is spared many of them.
"""
FIRST_LEAST_GAIN = 0.08
"""The same of model-free drafts, for a sequence that has won nothing by drafts so far."""


@dataclass(frozen=True)
class Selection:
    """What a round is to verify, and what is expected of it.

    trees: what is left of each tree. tokens: of all sequences together, bonus included. seconds: of the whole round.
    gained: by each sequence, tokens more than without drafts, over what their time brings at the usual rate.
    """

    trees: list[DraftTree]
    tokens: float
    seconds: float
    gained: Sequence[float]

    def value(self, rate: float) -> float:
        """Tokens gained over what this time brings at the usual rate (tokens per second)."""
        return self.tokens - rate * self.seconds


def survivals(tree: DraftTree, chances: Sequence[float]) -> list[float]:
    """The chance of each node to be on the accepted path: the product of the chances down to it.

    chances: of each node given that its parent is right; that of the root does not matter. At most one child of a
    node can be right, so where the chances of siblings sum to more than 1 they are scaled down.
    """
    sums = [0.0] * tree.num_nodes
    for node in range(1, tree.num_nodes):
        sums[tree.parents[node]] += chances[node]
    result = [1.0]
    for node in range(1, tree.num_nodes):
        parent = tree.parents[node]
        result.append(result[parent] * chances[node] / max(sums[parent], 1.0))
    return result


def select(
    trees: Sequence[DraftTree],
    survival: Sequence[Sequence[float]],
    verify_s: Callable[[int], float],
    *,
    rate: float,
    spent_s: float,
    max_nodes: int,
) -> Selection:
    """The nodes that are worth their time.

    survival: of each node of each tree (see `survivals`). verify_s: seconds of a pass by its number of tokens.
    rate: tokens per second that a node must beat. spent_s: seconds of the round besides the pass.
    max_nodes: most drafted tokens of all sequences together.
    """
    ranked = sorted(
        (-chance, index, node) for index, own in enumerate(survival) for node, chance in enumerate(own) if node
    )[:max_nodes]
    tokens = best_tokens = float(len(trees))
    best_count, best_s = 0, spent_s + verify_s(len(trees))
    best = tokens - rate * best_s
    without_s = best_s
    for count, (minus_chance, _, _) in enumerate(ranked, start=1):
        tokens -= minus_chance
        seconds = spent_s + verify_s(len(trees) + count)
        if tokens - rate * seconds > best:
            best, best_count, best_tokens, best_s = tokens - rate * seconds, count, tokens, seconds
    kept: list[list[int]] = [[0] for _ in trees]
    gained = [0.0] * len(trees)
    node_s = (best_s - without_s) / max(1, best_count)
    for minus_chance, index, node in ranked[:best_count]:
        kept[index].append(node)
        gained[index] -= minus_chance + rate * node_s
    chosen = [
        tree if len(nodes) == tree.num_nodes else tree.restricted(sorted(nodes))
        for tree, nodes in zip(trees, kept, strict=True)
    ]
    return Selection(chosen, best_tokens, best_s, gained)
