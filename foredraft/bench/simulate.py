"""Rounds over a text that is known already, in time that does not pass: what would a planner have made of it?

The planner, its drafters, the round and the acceptance are the real ones; the target is its known text and what its
passes cost.
"""

from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from foredraft.cache import BlockTable
from foredraft.cache.blocks import BlockPool
from foredraft.drafters.base import PromptFeatures
from foredraft.kernels.operations import Floats
from foredraft.planner.base import Planner, RoundTimes
from foredraft.round import run_round
from foredraft.sampling import SamplingParams, SequenceView
from foredraft.sampling.noise import FloatArray
from foredraft.sequence import Batch, Sequence, Status
from foredraft.target import Entry, ForwardResult
from foredraft.testing import SimulatedClock
from foredraft.tree import DraftTree


class PassSeconds(Protocol):
    """Seconds of a forward pass of the target, see `foredraft.planner.cost.CostModel.seconds`."""

    def __call__(self, num_tokens: int, num_token_positions: int, num_positions: int, /) -> float:
        """`num_tokens` tokens; the positions they look back on, summed over tokens, and over sequences."""


class KnownBlocks(BlockTable):
    """Stands for the cache of a sequence whose whole text is known. There is room for it."""

    def __init__(self, text: Several[int]) -> None:
        super().__init__(BlockPool(0))
        self.text = text

    def reserve(self, num_positions: int) -> None:
        """Nothing is stored."""


def known_sequence(
    id: int, text: Several[int], num_prompt_tokens: int, params: SamplingParams | None = None
) -> Sequence:
    """A sequence that has its prompt, computed but for the root, and will say the rest of the text."""
    blocks = KnownBlocks(text)
    blocks.advance(num_prompt_tokens - 1)
    return Sequence(
        id=id,
        tokens=list(text[:num_prompt_tokens]),
        num_prompt_tokens=num_prompt_tokens,
        params=params or SamplingParams(seed=0),
        max_length=len(text),
        blocks=blocks,
        status=Status.RUNNING,
    )


class KnownTarget:
    """A target that says what is known, for sequences made by `known_sequence`. See `Target`.

    Each pass takes its time on the clock. No logits mean anything: drafters that learn from them learn nothing.
    """

    vocab_size = 2**31

    def __init__(self, pass_seconds: PassSeconds, clock: SimulatedClock) -> None:
        self._pass_seconds, self._clock = pass_seconds, clock

    def forward(self, entries: Several[Entry]) -> ForwardResult:
        """See `Target`."""
        num_positions = [len(entry.blocks) + 1 for entry in entries]  # with the root
        num_tokens = [entry.num_rows for entry in entries]
        num_token_positions = sum(n * length for n, length in zip(num_tokens, num_positions, strict=True))
        self._clock.advance(self._pass_seconds(sum(num_tokens), num_token_positions, sum(num_positions)))
        return ForwardResult([np.zeros((entry.num_logits, 1), np.float32) for entry in entries])

    def commit(self, blocks: BlockTable, tree: DraftTree, path: Several[int]) -> None:
        """See `Target`."""
        blocks.advance(1 + len(path))

    def tokens(self, logits_V: Floats, sequence: SequenceView, path: Several[int]) -> list[int]:
        """See `Target`. Rules ask along the accepted path only, so the text goes on behind it."""
        assert isinstance(sequence, Sequence)
        assert isinstance(sequence.blocks, KnownBlocks)
        return [sequence.blocks.text[len(sequence.tokens) + len(path)]]

    def probs(self, logits_V: Floats, sequence: SequenceView, path: Several[int], params: SamplingParams) -> FloatArray:
        """Not known."""
        raise NotImplementedError


@dataclass(frozen=True)
class SimulatedRound:
    """What a round did, for all its sequences together, and for each: tokens drafted, and of these accepted.

    plain_s: what the planner thought the same round would take without drafts; None: it had no opinion.
    """

    num_tokens: int
    num_drafted: tuple[int, ...]
    num_accepted: tuple[int, ...]
    times: RoundTimes
    plain_s: float | None = None


@dataclass
class Simulated:
    """All rounds that were simulated."""

    rounds: list[SimulatedRound] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens emitted."""
        return sum(one.num_tokens for one in self.rounds)

    @property
    def seconds(self) -> float:
        """Simulated seconds."""
        return sum(one.times.total for one in self.rounds)

    @property
    def draft_s(self) -> float:
        """Of these, drafting."""
        return sum(one.times.draft for one in self.rounds)

    @property
    def num_sequence_rounds(self) -> int:
        """Rounds, each counted once for each sequence that took part."""
        return sum(len(one.num_drafted) for one in self.rounds)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens emitted for a sequence and round, bonus included."""
        return self.num_tokens / self.num_sequence_rounds

    @property
    def tokens_per_s(self) -> float:
        """Speed, of all sequences together."""
        return self.num_tokens / self.seconds

    @property
    def estimated_speedup(self) -> float:
        """Over plain decoding, by what the planner thought plain rounds take, in those of which it had an opinion."""
        known = [(one, one.plain_s / len(one.num_drafted)) for one in self.rounds if one.plain_s is not None]
        return sum(one.num_tokens * token_s for one, token_s in known) / sum(one.times.total for one, _ in known)


def simulate_round(
    batch: Batch, planner: Planner, target: KnownTarget, clock: SimulatedClock, *, overhead_s: float = 0.0
) -> SimulatedRound:
    """One round, in which no sequence is finished yet. overhead_s: what it costs besides drafting and the pass."""

    def emit(sequence: Sequence, tokens: tuple[int, ...], logits: Several[Floats]) -> int:
        sequence.tokens.extend(tokens)
        if sequence is batch.running[0]:  # of all of them together
            clock.advance(overhead_s)
        return len(tokens)

    report = run_round(batch, planner, target, emit, clock=clock)
    for error in report.failed.values():
        raise error
    outcomes = [outcome for outcome in report.result.outcomes if outcome is not None]
    return SimulatedRound(
        sum(len(one.tokens) for one in batch.running) - sum(report.plan.num_tokens),
        tuple(outcome.num_draft_tokens for outcome in outcomes),
        tuple(outcome.num_accepted_tokens for outcome in outcomes),
        report.result.times,
        report.plan.plain_s,
    )


def simulate(
    sequences: Several[Sequence],
    planner: Planner,
    pass_seconds: PassSeconds,
    clock: SimulatedClock,
    *,
    overhead_s: float = 0.0,
    max_running: int = 1,
) -> Simulated:
    """All sequences, made by `known_sequence`, to the ends of their texts, `max_running` at a time.

    What their prompts take is not simulated.
    """
    target, simulated = KnownTarget(pass_seconds, clock), Simulated()
    waiting, running = list(sequences), list[Sequence]()
    while waiting or running:
        while waiting and len(running) < max_running:
            running.append(waiting.pop(0))
            planner.begin(running[-1], PromptFeatures(0, running[-1].num_computed_tokens))
        batch = Batch(tuple(running))
        simulated.rounds.append(simulate_round(batch, planner, target, clock, overhead_s=overhead_s))
        for sequence in batch.running:
            if len(sequence.tokens) >= sequence.max_length:
                sequence.status, sequence.finish_reason = Status.FINISHED, "length"
                running.remove(sequence)
                planner.end(sequence.id)
    return simulated
