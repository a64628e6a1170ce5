"""Drafts of what a grammar leaves no choice about, such as the keys and brackets of a JSON object.

Source: "fast-forward tokens" of guidance and llguidance (Microsoft Research, 2023), which takes them as given. Here
they are proposed: the text is forced, but the target may spell it with other tokens than these.
"""

from collections.abc import Sequence

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView, no_draft
from foredraft.tree import Budget, DraftTree

_CONFIDENCE = 0.95


class GrammarDrafter(Drafter):
    """Proposes the tokens that the form of a sequence's text forces; nothing for sequences that have no form."""

    spec = DrafterSpec(name="grammar")

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [self._propose_one(sequence, budget) for sequence, budget in zip(sequences, budgets, strict=True)]

    def _propose_one(self, sequence: SequenceView, budget: Budget) -> DraftTree:
        if sequence.processors is None or budget.num_tokens <= 0:
            return no_draft(sequence)
        forced = tuple(sequence.processors.forced(sequence.tokens)[: budget.num_tokens])
        return DraftTree.chain(sequence.tokens[-1], forced, (_CONFIDENCE,) * len(forced))
