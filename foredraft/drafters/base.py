"""What a drafter is: it proposes trees, and is told what became of the requests."""

from collections.abc import Sequence
from typing import Protocol

from foredraft.sampling import SamplingParams
from foredraft.tree import DraftTree


class RequestView(Protocol):
    """What a drafter sees of a request."""

    @property
    def id(self) -> int:
        """Stays the same from round to round, and is never used twice."""

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and output so far; the last one is the root."""

    @property
    def num_prompt_tokens(self) -> int:
        """How many of the tokens are the prompt."""

    @property
    def params(self) -> SamplingParams:
        """With a seed, so that a drafter can draw with the target's own noise."""


class Drafter(Protocol):
    """Proposes what the target may say next. A wrong proposal costs time, never correctness."""

    name: str

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[int]) -> list[DraftTree]:
        """For each request a tree whose root is its last token, with at most its budget of drafted tokens."""

    def observe(self, requests: Sequence[RequestView]) -> None:
        """Called after a commit: the tokens now hold what was accepted, and the bonus."""

    def forget(self, request_id: int) -> None:
        """The request has ended; drop what was kept for it."""


def no_draft(request: RequestView) -> DraftTree:
    """The tree that holds only the root."""
    return DraftTree.chain(request.tokens[-1])
