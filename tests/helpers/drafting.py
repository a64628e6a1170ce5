"""Short ways to ask drafters and to tell them what happened."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.drafters.base import Outcome, RequestView
from foredraft.sampling import Processors, SamplingParams
from foredraft.tree import Budget, DraftTree


@dataclass
class View:
    """A request as drafters see it, without an engine; a test appends to its tokens."""

    tokens: list[int]
    id: int = 0
    num_prompt_tokens: int = 1
    params: SamplingParams = field(default_factory=lambda: SamplingParams(seed=0))
    choice: int = 0
    processors: Processors | None = None


def budgets(*numbers: int) -> list[Budget]:
    """A budget of so many tokens for each request, with no other limit."""
    return [Budget(number) for number in numbers]


def unspeculated(requests: Sequence[RequestView], vocab_size: int = 1) -> list[Outcome]:
    """Outcomes of a round in which nothing was drafted. The logits are those of a target that is sure of nothing."""
    return [
        Outcome(DraftTree.chain(request.tokens[-1]), (), np.zeros((1, vocab_size), np.float32)) for request in requests
    ]
