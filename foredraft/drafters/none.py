"""No drafts: plain decoding, the baseline of every comparison."""

from collections.abc import Sequence

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView, no_draft
from foredraft.tree import Budget, DraftTree


class NoDrafter(Drafter):
    """Proposes nothing."""

    spec = DrafterSpec(name="none")

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [no_draft(sequence) for sequence in sequences]
