"""Drafts of what a grammar leaves no choice about, such as the keys and brackets of a JSON object.

Source: "fast-forward tokens" of guidance and llguidance (Microsoft Research, 2023), which takes them as given. Here
they are proposed: the text is forced, but the target may spell it with other tokens than these.
"""

from collections.abc import Sequence

from foredraft.drafters.base import Outcome, RequestView, no_draft
from foredraft.tree import Budget, DraftTree

_CONFIDENCE = 0.95


class GrammarDrafter:
    """Proposes the tokens that the form of a request's text forces; nothing for requests that have no form."""

    name = "grammar"
    free = True

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [self._propose_one(request, budget) for request, budget in zip(requests, budgets, strict=True)]

    def _propose_one(self, request: RequestView, budget: Budget) -> DraftTree:
        if request.processors is None or budget.num_tokens <= 0:
            return no_draft(request)
        forced = tuple(request.processors.forced(request.tokens)[: budget.num_tokens])
        return DraftTree.chain(request.tokens[-1], forced, (_CONFIDENCE,) * len(forced))

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Nothing to do: what is forced follows from the text."""

    def forget(self, request_id: int) -> None:
        """Nothing is kept."""
