"""The plainest planner: one drafter, and the same number of drafted tokens in every round."""

import time
from collections.abc import Callable

from foredraft.drafters.base import Drafter, PromptFeatures, SequenceView, no_draft
from foredraft.planner.base import Plan, RoundResult
from foredraft.planner.cost import CostModel
from foredraft.planner.round_costs import RoundCosts, tells_costs
from foredraft.sequence import Batch, num_remaining_tokens
from foredraft.tree import Budget


class FixedPlanner:
    """A budget of `num_draft_tokens`, less where a sequence is about to end. See `Planner`.

    cost: of the target's passes, which it learns; with it plans say what rounds would take without drafts.
    """

    def __init__(
        self,
        drafter: Drafter,
        num_draft_tokens: int,
        *,
        reason: str = "asked for",
        cost: CostModel | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._drafter = drafter
        self._num_draft_tokens = num_draft_tokens
        self._reason = reason
        self._costs = None if cost is None else RoundCosts(cost)
        self._clock = clock

    @property
    def names(self) -> tuple[str, ...]:
        """See `Planner`."""
        return self._drafter.names

    def plan(self, batch: Batch) -> Plan:
        """See `Planner`. The drafter is asked only where something fits."""
        started, sequences = self._clock(), batch.running
        budgets = [min(self._num_draft_tokens, num_remaining_tokens(sequence)) for sequence in sequences]
        if any(budgets):
            proposed = self._drafter.propose(sequences, [Budget(budget) for budget in budgets])
            trees = tuple(tree.cut(budget) for tree, budget in zip(proposed, budgets, strict=True))
        else:
            trees = tuple(no_draft(sequence) for sequence in sequences)
        names, plain_s = frozenset(self._drafter.names), None
        if self._costs is not None and sequences and not batch.chunks:
            plain_s = self._costs.round_s(batch)
        return Plan(
            sequences=sequences,
            trees=trees,
            num_tokens=tuple(len(sequence.tokens) for sequence in sequences),
            asked=tuple(names if budget else frozenset() for budget in budgets),
            expected_tokens=(1.0,) * len(sequences),
            plain_s=plain_s,
            spent_s=self._clock() - started,
        )

    def observe(self, plan: Plan, result: RoundResult) -> None:
        """See `Planner`."""
        told = [
            (sequence, outcome)
            for sequence, outcome in zip(plan.sequences, result.outcomes, strict=True)
            if outcome is not None
        ]
        if told:
            self._drafter.observe([sequence for sequence, _ in told], [outcome for _, outcome in told])
        if self._costs is not None and told and tells_costs(result):
            self._costs.observe(plan, result)

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """See `Planner`."""
        self._drafter.begin(sequence, features)

    def end(self, sequence_id: int) -> None:
        """See `Planner`."""
        self._drafter.end(sequence_id)

    def reset_prefix_cache(self) -> None:
        """See `Planner`."""
        self._drafter.reset_prefix_cache()

    def reason(self, sequence_id: int) -> str:
        """See `Planner`. With what the drafter has to say against itself, if anything."""
        return f"{self._reason}; {self._drafter.problem}" if self._drafter.problem else self._reason
