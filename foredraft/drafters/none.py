"""No drafts: plain decoding, the baseline of every comparison."""

from collections.abc import Sequence

from foredraft.drafters.base import Outcome, RequestView, no_draft
from foredraft.tree import Budget, DraftTree


class NoDrafter:
    """Proposes nothing."""

    name = "none"
    free = True

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [no_draft(request) for request in requests]

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
