"""The plainest plan: one drafter, and the same number of drafted tokens in every round."""

from collections.abc import Sequence

from foredraft.drafters.base import Drafter, Outcome, no_draft
from foredraft.planner.base import Planned, RoundTimes, room
from foredraft.trace import Expectation
from foredraft.tree import Budget, DraftTree


class FixedPlanner:
    """A budget of `num_draft_tokens`, less where a request is about to end."""

    def __init__(self, drafter: Drafter, num_draft_tokens: int, *, reason: str = "asked for") -> None:
        self._drafter = drafter
        self._num_draft_tokens = num_draft_tokens
        self._reason = reason

    @property
    def methods(self) -> tuple[str, ...]:
        """See `Planner`."""
        return tuple(self._drafter.name.split(","))

    def draft(self, requests: Sequence[Planned]) -> list[DraftTree]:
        """See `Planner`. The drafter is asked only where something fits."""
        budgets = [min(self._num_draft_tokens, room(request)) for request in requests]
        if not any(budgets):
            return [no_draft(request) for request in requests]
        trees = self._drafter.propose(requests, [Budget(budget) for budget in budgets])
        return [tree.cut(budget) for tree, budget in zip(trees, budgets, strict=True)]

    def observe(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """See `Planner`."""
        self._drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Planner`."""
        self._drafter.forget(request_id)

    def expectation(self, request_id: int) -> Expectation | None:
        """See `Planner`: it expects nothing."""
        return None

    def reason(self, request_id: int) -> str:
        """See `Planner`. With what the drafter has to say against itself, if anything."""
        problem = getattr(self._drafter, "problem", "")
        return f"{self._reason}; {problem}" if problem else self._reason
