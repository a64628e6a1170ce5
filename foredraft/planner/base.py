"""What a planner is: it decides which drafters propose, how much, and what of it the target is to verify."""

from dataclasses import dataclass
from typing import Protocol

from foredraft.drafters.base import Outcome, PromptFeatures
from foredraft.sampling import SequenceView
from foredraft.sequence import Batch
from foredraft.trace import Expectation
from foredraft.tree import DraftTree


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a round is to do, and what is expected of it. Planners may add to it what they want to have again.

    sequences: those of the round. trees: for each the tree to verify, its last token as the root.
    num_tokens: of each sequence, before the round. asked: for each, the names of the drafters that were asked.
    expected_tokens: for each, bonus included. expected_s: of the whole round; None: no opinion.
    plain_s: of the same round without any draft; None: no opinion, as beside prompt chunks: a plain run, too, computes
    them once, and not with every token that drafts save.
    spent_s: seconds of planning and drafting.
    """

    sequences: tuple[SequenceView, ...]
    trees: tuple[DraftTree, ...]
    num_tokens: tuple[int, ...]
    asked: tuple[frozenset[str], ...]
    expected_tokens: tuple[float, ...]
    expected_s: float | None = None
    plain_s: float | None = None
    spent_s: float = 0.0

    def expectation(self, index: int) -> Expectation | None:
        """What was expected of a sequence of the round; None: nothing in particular."""
        if self.expected_s is None:
            return None
        return Expectation(num_tokens=self.expected_tokens[index], seconds=self.expected_s)


@dataclass(frozen=True)
class RoundTimes:
    """Seconds of the parts of one round, for all its sequences together.

    draft: planning and drafting. verify: the target's forward pass. accept: choosing tokens, commit.
    """

    draft: float
    verify: float
    accept: float

    @property
    def total(self) -> float:
        """All parts."""
        return self.draft + self.verify + self.accept


@dataclass(frozen=True)
class RoundResult:
    """What a round did: for each sequence of the plan its outcome, and what it cost all of them together.

    outcomes: None for a sequence that failed in this round. Their arrays are views, valid until the next pass.
    num_prefill_tokens: tokens of prompts that were computed in the same pass; its time says nothing of a round then.
    """

    outcomes: tuple[Outcome | None, ...]
    times: RoundTimes
    num_prefill_tokens: int = 0


class Planner(Protocol):
    """Owns the drafters of an engine: asks them, and tells them what became of the sequences."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the drafters it may ask."""

    def plan(self, batch: Batch) -> Plan:
        """The trees to verify for the running sequences of a batch."""

    def observe(self, plan: Plan, result: RoundResult) -> None:
        """What became of a plan. Told on to the drafters."""

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """A chunk of a sequence's text was computed outside of rounds. Told on to the drafters."""

    def end(self, sequence_id: int) -> None:
        """The sequence is over."""

    def reset_prefix_cache(self) -> None:
        """Have draft models forget what is cached of sequences that are over."""

    def reason(self, sequence_id: int) -> str:
        """Why the sequence was drafted for as it was, in words. To be asked before it is over."""
