"""Short ways to ask drafters and to tell them what happened."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, PromptFeatures, SequenceView
from foredraft.sampling import Processors, SamplingParams
from foredraft.tree import Budget, DraftTree


@dataclass
class View:
    """A sequence as drafters see it, without an engine; a test appends to its tokens."""

    tokens: list[int]
    id: int = 0
    num_prompt_tokens: int = 1
    params: SamplingParams = field(default_factory=lambda: SamplingParams(seed=0))
    sample_index: int = 0
    processors: Processors | None = None
    max_length: int = 10**6


class Echo(Drafter):
    """Proposes the last token again, as often as the budget allows."""

    spec = DrafterSpec(name="echo")

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        chains = [(s.tokens[-1],) * max(0, b.num_tokens) for s, b in zip(sequences, budgets, strict=True)]
        return [DraftTree.chain(s.tokens[-1], chain) for s, chain in zip(sequences, chains, strict=True)]


def budgets(*numbers: int) -> list[Budget]:
    """A budget of so many tokens for each sequence, with no other limit."""
    return [Budget(number) for number in numbers]


def no_features(view: View) -> PromptFeatures:
    """All of a sequence but its root was computed, and nobody wanted its hidden states."""
    return PromptFeatures(0, len(view.tokens) - 1)


def unspeculated(sequences: Sequence[SequenceView], vocab_size: int = 1) -> list[Outcome]:
    """Outcomes of a round in which nothing was drafted. The logits are those of a target that is sure of nothing."""
    return [
        Outcome(DraftTree.chain(sequence.tokens[-1]), (), np.zeros((1, vocab_size), np.float32))
        for sequence in sequences
    ]
