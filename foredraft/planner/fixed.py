"""The plainest plan: the same number of drafted tokens in every round."""

from collections.abc import Sequence
from typing import Protocol


class Planned(Protocol):
    """What a plan depends on."""

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and output so far."""

    @property
    def max_length(self) -> int:
        """Most tokens the request can come to."""


class FixedPlanner:
    """A budget of `num_draft_tokens`, less where a request is about to end."""

    def __init__(self, num_draft_tokens: int) -> None:
        self.num_draft_tokens = num_draft_tokens

    def budgets(self, requests: Sequence[Planned]) -> list[int]:
        """Most drafted tokens for each request. The bonus takes one of the tokens a request still may have."""
        rooms = [request.max_length - len(request.tokens) - 1 for request in requests]
        return [max(0, min(self.num_draft_tokens, room)) for room in rooms]
