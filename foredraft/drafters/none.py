"""No drafts: plain decoding, the baseline of every comparison."""

from collections.abc import Sequence

from foredraft.drafters.base import RequestView, no_draft
from foredraft.tree import DraftTree


class NoDrafter:
    """Proposes nothing."""

    name = "none"

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[int]) -> list[DraftTree]:
        """See `Drafter`."""
        return [no_draft(request) for request in requests]

    def observe(self, requests: Sequence[RequestView]) -> None:
        """See `Drafter`."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
