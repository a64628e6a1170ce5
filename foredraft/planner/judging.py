"""Asking drafters, and learning what their word is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foredraft.drafters.base import Drafter, SequenceView
from foredraft.planner.survival import Survival
from foredraft.tree import Budget, DraftTree


@dataclass(frozen=True)
class Proposal:
    """What a drafter proposed for a sequence, to be compared with what comes. chances: that its nodes are right."""

    drafter: Drafter
    tree: DraftTree
    chances: Sequence[float]


class Judge:
    """Asks drafters, puts chances in place of their confidences, and learns from what came.

    Drafts of sampled text are right in other ways than those of greedy text, so they are counted apart.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._survivals = {(drafter.name, greedy): Survival() for drafter in drafters for greedy in (True, False)}

    def start_from(self, name: str, known: Mapping[bool, Survival]) -> None:
        """Take over what an earlier judge learned of a drafter, by whether texts were greedy."""
        self._survivals |= {(name, greedy): survival for greedy, survival in known.items()}

    def learned(self, name: str) -> dict[bool, Survival]:
        """What was learned of a drafter, by whether texts were greedy; nothing for a kind that was not seen."""
        kinds = {greedy: self._survivals[name, greedy] for greedy in (True, False)}
        return {greedy: survival for greedy, survival in kinds.items() if not survival.is_empty}

    def survival(self, name: str, sequence: SequenceView) -> Survival:
        """What is known of a drafter in texts such as this one."""
        return self._survivals[name, sequence.params.greedy]

    def ask(
        self,
        drafter: Drafter,
        sequences: Sequence[SequenceView],
        budgets: Sequence[Budget],
        proposals: Sequence[list[Proposal]],
    ) -> list[DraftTree]:
        """Its trees, with chances and its name on them. What it proposed is added to each sequence's proposals."""
        trees, name = [], drafter.name
        proposed = drafter.propose(sequences, budgets)
        for sequence, whole, budget, own in zip(sequences, proposed, budgets, proposals, strict=True):
            tree = whole.cut(budget.num_tokens)
            if tree.num_draft_tokens:
                chances = self.survival(name, sequence).chances(sequence.id, tree.confidence, tree.depths)
                own.append(Proposal(drafter, tree, chances))
                tree = tree.judged(chances, name)
            trees.append(tree)
        return trees

    def learn(self, sequence: SequenceView, proposal: Proposal, emitted: Sequence[int]) -> list[bool]:
        """Compare a proposal with what came, as deep as both go: whether the right token was there, depth by depth."""
        survival, tree = self.survival(proposal.drafter.name, sequence), proposal.tree
        found, id, confidence, chances = [], sequence.id, tree.confidence, proposal.chances
        for depth, nodes, right in tree.compared(emitted):
            for node in nodes:
                survival.learn(id, confidence[node], depth, right=node == right, expected=chances[node])
            found.append(right is not None)
        return found

    def end(self, sequence_id: int) -> None:
        """The sequence is over."""
        for survival in self._survivals.values():
            survival.end(sequence_id)
