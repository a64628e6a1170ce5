"""What rounds take without drafts, learned from those that ran."""

from operator import mul

from foredraft.planner.base import Plan, RoundResult, RoundTimes
from foredraft.planner.cost import CostModel, PassSeconds
from foredraft.sequence import Batch

FADES = 0.95
"""Weight that a round keeps when the next one is counted: some twenty rounds matter."""


class RoundCosts:
    """Seconds of passes, and of what a round takes besides passes and drafting."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost
        self._accept_s = 0.0
        self._num_rounds = 0.0

    @property
    def overhead_s(self) -> float:
        """Seconds of a round outside drafting and the pass."""
        return self._accept_s / self._num_rounds if self._num_rounds else 0.0

    def passes(self, batch: Batch) -> PassSeconds:
        """What a pass takes by its number of tokens, of the running sequences and of prompt chunks beside them."""
        return self.cost.passes(len(batch.running), sum([len(sequence.tokens) for sequence in batch.running]))

    def round_s(self, batch: Batch) -> float:
        """Seconds of a round of this batch without any draft."""
        num_beside = batch.num_prefill_tokens if batch.chunks else 0
        return self.overhead_s + self.passes(batch)(len(batch.running) + num_beside)

    def observe(self, plan: Plan, result: RoundResult) -> None:
        """Learn from a round that `tells_costs`."""
        numbers = [outcome.tree.num_nodes for outcome in result.outcomes if outcome is not None]
        self.cost.observe(
            sum(numbers),
            result.times.verify,
            num_token_positions=sum(map(mul, numbers, plan.num_tokens)),
            num_positions=sum(plan.num_tokens),
        )
        self.observe_overhead(result.times)

    def observe_overhead(self, times: RoundTimes) -> None:
        """Learn no more than what the round took outside drafting and the pass."""
        self._accept_s = FADES * self._accept_s + times.accept
        self._num_rounds = FADES * self._num_rounds + 1.0


def tells_costs(result: RoundResult) -> bool:
    """Whether the times of a round say what a round takes: no prompt was computed beside it, and nothing failed.

    Where a pass fails its sequences are tried one by one, so its time means nothing.
    """
    return not result.num_prefill_tokens and None not in result.outcomes
