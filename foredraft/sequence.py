"""One completion on its way: its tokens, how far it has come, and what one pass does for several of them."""

from collections import abc
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

from foredraft.cache import BlockTable
from foredraft.sampling import Processors, SamplingParams, SequenceView
from foredraft.tree import DraftTree

__all__ = ["Batch", "FinishReason", "PromptChunk", "Sequence", "SequenceView", "Status"]

FinishReason = Literal["stop", "length"]


class Status(Enum):
    """How far a sequence has come.

    waiting: nobody works on it; the first time, or because its blocks were needed elsewhere (preempted).
    prefilling: tokens are computed without a round, chunk by chunk. running: takes part in every round.
    finished, failed, cancelled: over, with a finish reason, an error, or nothing.
    """

    WAITING = "waiting"
    PREFILLING = "prefilling"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self in (Status.FINISHED, Status.FAILED, Status.CANCELLED)


@dataclass(eq=False)
class Sequence:
    """One completion. All else observes it: the text, stop strings, counts, drafters and planners (`SequenceView`).

    tokens: prompt and output, the last one being the root: chosen, and not computed yet.
    params: with a seed. max_length: most tokens, prompt included. sample_index: which of several completions of the
    prompt this is. processors: what its options do to logits; None: nothing.
    blocks: where the target keeps the keys and values of what is computed.
    num_cached_tokens: of the prompt, found in the prefix cache. num_preemptions: times it gave its blocks back to
    others and was computed anew. num_told_tokens: tokens whose computation drafters were told of, which is done once.
    """

    id: int
    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    max_length: int
    blocks: BlockTable
    sample_index: int = 0
    processors: Processors | None = None
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    error: Exception | None = None
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    num_told_tokens: int = 0

    @property
    def num_computed_tokens(self) -> int:
        """Tokens whose keys and values are in the target's cache."""
        return len(self.blocks)

    @property
    def num_output_tokens(self) -> int:
        """Tokens behind the prompt."""
        return len(self.tokens) - self.num_prompt_tokens


def num_remaining_tokens(sequence: SequenceView) -> int:
    """Most drafted tokens that can be of use: the bonus takes one of the tokens a sequence still may have."""
    return max(0, sequence.max_length - len(sequence.tokens) - 1)


@dataclass(frozen=True)
class PromptChunk:
    """The next tokens of a sequence that is prefilling, to be computed in one pass.

    wants_logits: whether the logits after each of them are wanted, for log-probabilities of the prompt.
    """

    sequence: Sequence
    num_tokens: int
    wants_logits: bool = False

    @cached_property
    def tree(self) -> DraftTree:
        """The tokens as a pass takes them: a chain. To be asked for before they are computed."""
        start = self.sequence.num_computed_tokens
        root, *rest = self.sequence.tokens[start : start + self.num_tokens]
        return DraftTree.chain(root, tuple(rest))


@dataclass(frozen=True)
class Batch:
    """What one pass works on: sequences that make a round, and chunks of prompts beside them."""

    running: tuple[Sequence, ...]
    chunks: tuple[PromptChunk, ...] = ()

    @property
    def num_prefill_tokens(self) -> int:
        """Tokens of all chunks."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def sequences(self) -> abc.Iterator[Sequence]:
        """All that take part."""
        yield from self.running
        yield from (chunk.sequence for chunk in self.chunks)
