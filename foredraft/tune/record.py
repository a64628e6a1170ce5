"""Recording what all drafters would have proposed at every place of real answers, for `foredraft.tune.replay`.

The answers are decoded plainly, token by token, so that there is a proposal of every drafter at every place; nothing of
them is verified. What passes and steps cost is kept in the header.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from foredraft.drafters import Drafter, Outcome, RequestView
from foredraft.drafters.base import no_draft
from foredraft.planner.cost import Calibration
from foredraft.trace import Header, Proposal, Record, RoundRecord, Sink
from foredraft.tree import Budget, DraftTree

WIDTH = 12
"""Tokens that each drafter is asked for: longer chains can not be replayed."""


class RecordingDrafter:
    """Asks drafters, keeps what they propose, and proposes nothing itself."""

    name = "recording"
    free = True

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self._drafters = drafters
        self._proposed: dict[int, tuple[Proposal, ...]] = {}

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        asked = [drafter.propose(requests, budgets) for drafter in self._drafters]
        for request, *trees in zip(requests, *asked, strict=True):
            self._proposed[request.id] = tuple(
                Proposal(drafter=drafter.name, tokens=t.tokens, parents=t.parents, confidence=t.confidence)
                for drafter, t in zip(self._drafters, trees, strict=True)
            )
        return [no_draft(request) for request in requests]

    def take(self, request_id: int) -> tuple[Proposal, ...]:
        """What was proposed to a request in the last round, once."""
        return self._proposed.pop(request_id, ())

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        for drafter in self._drafters:
            drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._proposed.pop(request_id, None)
        for drafter in self._drafters:
            drafter.forget(request_id)


def recording(
    sink: Sink, drafter: RecordingDrafter, drafters: Sequence[Drafter], costs: Mapping[str, Calibration]
) -> Callable[[Record], None]:
    """A sink that adds to the records of a trace what was proposed, and what drafting costs, and passes them on."""
    costly = [one.name for one in drafters if not one.free]

    def take(record: Record) -> None:
        if isinstance(record, RoundRecord):
            record = replace(record, proposals=drafter.take(record.request))
        elif isinstance(record, Header):
            found: dict[str, Any] = {name: asdict(calibration) for name, calibration in costs.items()}
            added = {"calibrations": found, "costly": costly, "width": WIDTH}
            record = replace(
                record, drafters=tuple(one.name for one in drafters), settings=record.settings | {"recording": added}
            )
        sink(record)

    return take
