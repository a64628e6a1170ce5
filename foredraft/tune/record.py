"""Recording what all drafters would have proposed at every place of real completions, for `foredraft.tune.replay`.

They are decoded plainly, token by token, so that there is a proposal of every drafter at every place; nothing of them
is verified. What passes and steps cost is kept in the header.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from foredraft.drafters import DelegatingDrafter, Drafter, SequenceView, no_draft
from foredraft.planner.cost import Calibration
from foredraft.trace import Header, Proposal, Record, RoundRecord, Sink
from foredraft.tree import Budget, DraftTree

WIDTH = 12
"""Tokens that each drafter is asked for: longer chains can not be replayed."""


class RecordingDrafter(DelegatingDrafter):
    """Asks drafters, keeps what they propose, and proposes nothing itself."""

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(*drafters)
        self.drafters = tuple(drafters)
        self.spec = replace(self.spec, name="recording")
        self._proposed: dict[int, tuple[Proposal, ...]] = {}

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        asked = [drafter.propose(sequences, budgets) for drafter in self.drafters]
        for sequence, *trees in zip(sequences, *asked, strict=True):
            self._proposed[sequence.id] = tuple(
                Proposal(drafter=drafter.name, tokens=t.tokens, parents=t.parents, confidence=t.confidence)
                for drafter, t in zip(self.drafters, trees, strict=True)
            )
        return [no_draft(sequence) for sequence in sequences]

    def take(self, sequence_id: int) -> tuple[Proposal, ...]:
        """What was proposed for a sequence in the last round, once."""
        return self._proposed.pop(sequence_id, ())

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._proposed.pop(sequence_id, None)
        super().end(sequence_id)


def recording(sink: Sink, drafter: RecordingDrafter, costs: Mapping[str, Calibration]) -> Callable[[Record], None]:
    """A sink that adds to the records of a trace what was proposed, and what drafting costs, and passes them on."""
    found: dict[str, Any] = {name: asdict(calibration) for name, calibration in costs.items()}
    model_based = [one.name for one in drafter.drafters if not one.model_free]
    names = tuple(one.name for one in drafter.drafters)

    def take(record: Record) -> None:
        if isinstance(record, RoundRecord):
            record = replace(record, proposals=drafter.take(record.sequence))
        elif isinstance(record, Header):
            added = {"calibrations": found, "model_based": model_based, "width": WIDTH}
            record = replace(record, drafters=names, settings=record.settings | {"recording": added})
        sink(record)

    return take
