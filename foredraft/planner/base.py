"""What a planner is: it decides which drafter proposes, how much, and what of it the target is to verify."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from foredraft.drafters.base import Outcome, RequestView
from foredraft.trace import Expectation
from foredraft.tree import DraftTree


class Planned(RequestView, Protocol):
    """What a plan depends on."""

    @property
    def max_length(self) -> int:
        """Most tokens, prompt included, that the request can come to."""


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of the parts of one round, for all its requests together.

    draft: planning and drafting. verify: the target's forward pass. accept: choosing tokens, commit.
    """

    draft: float
    verify: float
    accept: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.draft + self.verify + self.accept


class Planner(Protocol):
    """Owns the drafters of an engine, and asks them.

    methods: names of the drafters it may ask.
    """

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the drafters it may ask."""

    def draft(self, requests: Sequence[Planned]) -> list[DraftTree]:
        """The tree to verify for each request, its last token as the root."""

    def observe(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """What became of the trees, and what the round cost. Told on to the drafters."""

    def forget(self, request_id: int) -> None:
        """The request has ended."""

    def expectation(self, request_id: int) -> Expectation | None:
        """What was expected of the round just made, tokens of this request; None: nothing in particular."""

    def reason(self, request_id: int) -> str:
        """Why the request was drafted for as it was, in words. To be asked before it is forgotten."""


def room(request: Planned) -> int:
    """Most drafted tokens that can be of use: the bonus takes one of the tokens a request still may have."""
    return max(0, request.max_length - len(request.tokens) - 1)
