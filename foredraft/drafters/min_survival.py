"""A threshold for draft models: chains and branches end where a token is too unlikely to be accepted."""

from collections.abc import Sequence
from dataclasses import replace

from foredraft.drafters.base import Drafter, SequenceView
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.tree import Budget, DraftTree


class MinSurvivalDrafter(DelegatingDrafter):
    """A drafter that stops behind a token that is less likely than `min_survival` to lie on the accepted path.

    Where a budget asks for more than that, it stops earlier.
    """

    def __init__(self, drafter: Drafter, min_survival: float) -> None:
        super().__init__(drafter)
        self._min_survival = min_survival

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return super().propose(sequences, [self._limited(budget) for budget in budgets])

    def _limited(self, budget: Budget) -> Budget:
        asked, least = budget.min_survival, self._min_survival
        if callable(asked):
            return replace(budget, min_survival=lambda depth: max(least, asked(depth)))
        return replace(budget, min_survival=max(least, asked))
