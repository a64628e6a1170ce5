"""Rounds over a text that is known already, in time that does not pass: what would a plan have made of it?

The planner and its drafters are the real ones; the target is its known text and what its passes cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from foredraft.drafters.base import Outcome
from foredraft.planner import Planner, RoundTimes, room
from foredraft.sampling import Processors, SamplingParams
from foredraft.testing import SimulatedClock
from foredraft.tree import DraftTree


class PassSeconds(Protocol):
    """Seconds of a forward pass of the target, see `foredraft.planner.cost.CostModel.seconds`."""

    def __call__(self, num_rows: int, num_row_positions: int, num_positions: int) -> float:
        """`num_rows` rows; the positions they look back on, summed over rows, and over requests."""


@dataclass
class KnownRequest:
    """A request whose answer is known. text: prompt and answer; tokens: as far as it has come."""

    id: int
    text: Sequence[int]
    num_prompt_tokens: int
    params: SamplingParams = field(default_factory=lambda: SamplingParams(seed=0))
    choice: int = 0
    processors: Processors | None = None
    tokens: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tokens = list(self.text[: self.num_prompt_tokens])

    @property
    def max_length(self) -> int:
        """All of the text."""
        return len(self.text)

    @property
    def finished(self) -> bool:
        """Whether all was said."""
        return len(self.tokens) >= len(self.text)


@dataclass(frozen=True)
class SimulatedRound:
    """What a round did, for all its requests together, and for each: nodes drafted, and of these accepted."""

    num_tokens: int
    num_drafted: tuple[int, ...]
    num_accepted: tuple[int, ...]
    times: RoundTimes


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
    def num_request_rounds(self) -> int:
        """Rounds, each counted once for each request that took part."""
        return sum(len(one.num_drafted) for one in self.rounds)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens emitted for a request and round, bonus included."""
        return self.num_tokens / self.num_request_rounds

    @property
    def tokens_per_s(self) -> float:
        """Speed, of all requests together."""
        return self.num_tokens / self.seconds


def simulate_round(
    requests: Sequence[KnownRequest],
    planner: Planner,
    pass_seconds: PassSeconds,
    clock: SimulatedClock,
    *,
    overhead_s: float = 0.0,
) -> SimulatedRound:
    """One round for all requests, none of them finished. overhead_s: what it costs besides drafting and the pass."""
    started = clock()
    trees = planner.draft(requests)
    trees = [tree.cut(room(request)) for tree, request in zip(trees, requests, strict=True)]
    draft_s = clock() - started
    lengths = [len(request.tokens) for request in requests]
    rows = [tree.num_nodes for tree in trees]
    verify_s = pass_seconds(sum(rows), sum(r * n for r, n in zip(rows, lengths, strict=True)), sum(lengths))
    outcomes = [_accept(request, tree) for request, tree in zip(requests, trees, strict=True)]
    clock.advance(verify_s + overhead_s)
    times = RoundTimes(draft_s, verify_s, overhead_s)
    planner.observe(requests, outcomes, times)
    return SimulatedRound(
        sum(len(request.tokens) for request in requests) - sum(lengths),
        tuple(outcome.num_draft_tokens for outcome in outcomes),
        tuple(outcome.num_accepted_tokens for outcome in outcomes),
        times,
    )


def simulate(
    requests: Sequence[KnownRequest],
    planner: Planner,
    pass_seconds: PassSeconds,
    clock: SimulatedClock,
    *,
    overhead_s: float = 0.0,
    max_running: int = 1,
) -> Simulated:
    """All requests to the ends of their texts, `max_running` at a time, as the engine does it."""
    waiting, running, simulated = list(requests), list[KnownRequest](), Simulated()
    while waiting or running:
        while waiting and len(running) < max_running:
            running.append(waiting.pop(0))
        simulated.rounds.append(simulate_round(running, planner, pass_seconds, clock, overhead_s=overhead_s))
        for request in [request for request in running if request.finished]:
            running.remove(request)
            planner.forget(request.id)
    return simulated


def _accept(request: KnownRequest, tree: DraftTree) -> Outcome:
    """Walk down the tree along the text, and add the bonus."""
    path: list[int] = []
    at = 0
    for token in request.text[len(request.tokens) :]:
        child = tree.child(at, token)
        if child is None:
            break
        path.append(child)
        at = child
    end = min(len(request.tokens) + len(path) + 1, len(request.text))
    request.tokens.extend(request.text[len(request.tokens) : end])
    return Outcome(tree, tuple(path), np.zeros((tree.num_nodes, 1), np.float32))
