"""Several drafters in order of preference: the first that has a proposal is taken."""

from collections.abc import Sequence
from dataclasses import replace

from foredraft.drafters.base import Drafter, Outcome, RequestView, no_draft
from foredraft.tree import Budget, DraftTree


class FirstDrafter:
    """Asks its drafters one after the other, each only for the requests the ones before had nothing for."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self.name = ",".join(drafter.name for drafter in drafters)
        self.free = all(drafter.free for drafter in drafters)

    @property
    def problem(self) -> str:
        """What its drafters have to say against themselves; empty: nothing."""
        return "; ".join(filter(None, (getattr(drafter, "problem", "") for drafter in self._drafters)))

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        trees = {request.id: no_draft(request) for request in requests}
        open_ = [(r, b) for r, b in zip(requests, budgets, strict=True) if b.num_tokens > 0]
        for drafter in self._drafters:
            if not open_:
                break
            proposals = drafter.propose([r for r, _ in open_], [b for _, b in open_])
            trees |= {r.id: _named(tree, drafter.name) for (r, _), tree in zip(open_, proposals, strict=True)}
            open_ = [(r, b) for r, b in open_ if not trees[r.id].num_draft_tokens]
        return [trees[request.id] for request in requests]

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.forget(request_id)


def _named(tree: DraftTree, name: str) -> DraftTree:
    """The tree with the name of its drafter, for whoever wants to know which of several it was."""
    return tree if tree.sources else replace(tree, sources=("", *(name,) * tree.num_draft_tokens))
