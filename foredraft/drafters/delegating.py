"""The base of drafters that wrap others: whatever it does not change itself is passed on, nothing is lost."""

from collections.abc import Sequence
from dataclasses import replace

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, PromptFeatures, SequenceView
from foredraft.tree import Budget, DraftTree


class DelegatingDrafter(Drafter):
    """Passes everything on to one drafter or several.

    Of several, `propose` must be overridden, since there is a choice to make. The spec is that of the one, or what all
    of them want together.
    """

    def __init__(self, *drafters: Drafter) -> None:
        self._drafters = drafters
        self.spec = drafters[0].spec if len(drafters) == 1 else _combined([drafter.spec for drafter in drafters])

    @property
    def names(self) -> tuple[str, ...]:
        """See `Drafter`."""
        return tuple(name for drafter in self._drafters for name in drafter.names)

    @property
    def problem(self) -> str:
        """See `Drafter`."""
        return "; ".join(filter(None, (drafter.problem for drafter in self._drafters)))

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        [drafter] = self._drafters
        return drafter.propose(sequences, budgets)

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.begin(sequence, features)

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.observe(sequences, outcomes)

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.end(sequence_id)

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`. Of all of them together."""
        return sum(drafter.num_uncached_tokens(sequence) for drafter in self._drafters)

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `Drafter`. Of all of them together."""
        return sum(drafter.time_step(num_tokens=num_tokens, context=context) for drafter in self._drafters)

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.prefill(sequence, num_tokens)

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.begin_late(sequence, num_tokens)

    def reset_prefix_cache(self) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.reset_prefix_cache()


def _combined(specs: Sequence[DrafterSpec]) -> DrafterSpec:
    """What several drafters want together."""
    return replace(
        specs[0],
        name="+".join(spec.name for spec in specs),
        model_free=all(spec.model_free for spec in specs),
        layers=tuple(sorted({layer for spec in specs for layer in spec.layers})),
        needs_prompt_features=any(spec.needs_prompt_features for spec in specs),
        can_begin_late=all(spec.model_free or spec.can_begin_late for spec in specs)
        and any(spec.can_begin_late for spec in specs),
        observes_skipped_rounds=any(spec.observes_skipped_rounds for spec in specs),
        identity="",
    )
