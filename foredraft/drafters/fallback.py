"""Several drafters in order of preference: one that has nothing to propose is stood in for by the next."""

from collections.abc import Sequence
from dataclasses import replace

from foredraft.drafters.base import Drafter, SequenceView, no_draft
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.tree import Budget, DraftTree


class FallbackDrafter(DelegatingDrafter):
    """Asks its drafters one after the other, each only for the sequences the ones before had nothing for."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(*drafters)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        trees = {sequence.id: no_draft(sequence) for sequence in sequences}
        open_ = [(s, b) for s, b in zip(sequences, budgets, strict=True) if b.num_tokens > 0]
        for drafter in self._drafters:
            if not open_:
                break
            proposals = drafter.propose([s for s, _ in open_], [b for _, b in open_])
            trees |= {s.id: _named(tree, drafter.name) for (s, _), tree in zip(open_, proposals, strict=True)}
            open_ = [(s, b) for s, b in open_ if not trees[s.id].num_draft_tokens]
        return [trees[sequence.id] for sequence in sequences]


def _named(tree: DraftTree, name: str) -> DraftTree:
    """The tree with the name of its drafter, for whoever wants to know which of several it was."""
    return tree if tree.sources else replace(tree, sources=("", *(name,) * tree.num_draft_tokens))
