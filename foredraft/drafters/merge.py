"""Several drafters asked at once, and their trees laid over each other."""

from collections.abc import Sequence
from dataclasses import replace

from foredraft.drafters.base import Drafter, SequenceView, no_draft
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.tree import Budget, DraftTree


def merge_trees(trees: Sequence[DraftTree], names: Sequence[str]) -> DraftTree:
    """One tree of all nodes of several trees with the same root: nodes with the same parent and token become one.

    A merged node has the confidence of the drafter that is surest of it, and that drafter as its source (the earlier
    one where two are equally sure). Drafters that look at the same text share their evidence, so their agreement is
    no reason to be surer than the surest. Parents come before children, the nodes of earlier trees first.

    names: of the drafters the trees are from; a tree that has sources of its own keeps them.
    Of trees whose tokens were drawn only the first that has any keeps `draft_probs`, since its nodes stand first among
    their siblings. The others count as not drawn, which is exact as well and only accepts less.
    Raises ValueError without trees, or where their roots differ.
    """
    drafted = [(tree, name) for tree, name in zip(trees, names, strict=True) if tree.num_draft_tokens]
    if len({tree.tokens[0] for tree in trees}) != 1:
        raise ValueError("only trees with the same root can be merged")
    if not drafted:
        return trees[0]
    first, name = drafted[0]
    tokens, parents, confidence = list(first.tokens), list(first.parents), list(first.confidence)
    sources = list(first.sources or ("", *(name,) * first.num_draft_tokens))
    if len(drafted) > 1:
        nodes = {(p, t): i for i, (p, t) in enumerate(zip(parents, tokens, strict=True)) if i}
        for tree, name in drafted[1:]:
            places = [0]  # where each node of this tree lies in the merged one
            for node in range(1, tree.num_nodes):
                key = places[tree.parents[node]], tree.tokens[node]
                source = tree.sources[node] if tree.sources else name
                place = nodes.get(key)
                if place is None:
                    place = nodes[key] = len(tokens)
                    parents.append(key[0])
                    tokens.append(key[1])
                    confidence.append(tree.confidence[node])
                    sources.append(source)
                elif tree.confidence[node] > confidence[place]:
                    confidence[place], sources[place] = tree.confidence[node], source
                places.append(place)
    probs = (*first.draft_probs, *(None,) * (len(tokens) - first.num_nodes)) if first.draft_probs else ()
    return DraftTree.known_to_hold(tuple(tokens), tuple(parents), tuple(confidence), tuple(sources), probs)


def likeliest_part(tree: DraftTree, budget: Budget) -> DraftTree:
    """The nodes of a tree that are likeliest to be accepted, as many as the budget has room for.

    A node is as likely as the product of the chances of the path to it, so no node is likelier than its parent. Drawn
    tokens that were selected like this no longer have the distribution they were drawn from, and lose it.
    """
    if tree.num_draft_tokens <= budget.num_tokens:
        return tree
    survival = [1.0]
    for node in range(1, tree.num_nodes):
        chance = budget.chance(tree.confidence[node], tree.depths[node])
        survival.append(survival[tree.parents[node]] * min(chance, 1.0))
    ranked = sorted(range(tree.num_nodes), key=lambda node: -survival[node])
    return replace(tree, draft_probs=()).restricted(sorted(ranked[: max(budget.num_tokens, 0) + 1]))


class MergeDrafter(DelegatingDrafter):
    """Asks all its drafters for all sequences, each with the whole budget, and keeps the likeliest nodes of all.

    Its tokens count as not drawn: whether all nodes fit, and thus keep their distributions, would depend on what was
    drawn, since tokens that two drafters propose are one node.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(*drafters)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        if not any(budget.num_tokens > 0 for budget in budgets):
            return [no_draft(sequence) for sequence in sequences]
        names = [drafter.name for drafter in self._drafters]
        proposals = [drafter.propose(sequences, budgets) for drafter in self._drafters]
        return [
            likeliest_part(replace(merge_trees(trees, names), draft_probs=()), budget)
            for *trees, budget in zip(*proposals, budgets, strict=True)
        ]
