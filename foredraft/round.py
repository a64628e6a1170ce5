"""START HERE: one round of speculative decoding.

                 budget               DraftTree               logits                 accepted path
      planner  ---------->  drafter  ----------->  verifier  ---------->  acceptor  -------------->  commit to cache
         ^                 propose()             one target forward      pure arithmetic             drafter.observe()
         +-------------------------------------- what was proposed, accepted, and what it cost <-----------+

Every draft is a tree; *no draft* is a tree that holds only its root. So plain decoding is this same round with the
drafter that proposes nothing, and emits one token: the bonus.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.cache import CacheSequence
from foredraft.drafters.base import Outcome
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Floats
from foredraft.planner import Planner, RoundTimes, room
from foredraft.sampling import Processors, SamplingParams, TokenLogprob, token_logprob
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree
from foredraft.verify import Verifier, usable_part


@dataclass
class RoundRequest:
    """A request as rounds see it. Between rounds the cache holds all tokens but the last, which is the root.

    max_length: most tokens, prompt included, that the request can come to. choice: which of several answers to the
    prompt this is. processors: what its options do to logits; None: nothing. logprobs: takes the log-probability of
    every token emitted; None: nobody wants them.
    """

    id: int
    tokens: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    max_length: int
    sequence: CacheSequence
    choice: int = 0
    processors: Processors | None = None
    logprobs: list[TokenLogprob] | None = None


@dataclass(frozen=True)
class RoundReport:
    """What a round did: for each request its outcome, and what it cost all of them together.

    The logits of the outcomes are views that are valid until the next round. failed: request ids for which no token
    could be chosen, and why; their outcomes are empty, and they cannot go on.
    """

    outcomes: list[Outcome]
    times: RoundTimes
    failed: Mapping[int, ForedraftError] = field(default_factory=dict)


Emit = Callable[[RoundRequest, tuple[int, ...]], int]
"""Appends emitted tokens to a request and returns how many it kept: fewer than all where the request ends."""


def run_round(
    requests: Sequence[RoundRequest],
    planner: Planner,
    verifier: Verifier,
    emit: Emit,
    rule: AcceptanceRule = COUPLED,
) -> RoundReport:
    """Draft, verify, accept and commit once for every request."""
    started = time.perf_counter()
    trees = _draft(requests, planner, verifier, rule)
    drafted = time.perf_counter()
    logits = verifier.verify([request.sequence for request in requests], trees)
    verified = time.perf_counter()
    outcomes: list[Outcome] = []
    failed: dict[int, ForedraftError] = {}
    for request, tree, logits_NV in zip(requests, trees, logits, strict=True):
        try:
            outcomes.append(_accept(_Target(request, tree, logits_NV, verifier), rule, emit))
        except ForedraftError as error:  # of this request alone: its options leave no token, say
            failed[request.id] = error
            outcomes.append(Outcome(tree, (), logits_NV))
    times = RoundTimes(drafted - started, verified - drafted, time.perf_counter() - verified)
    sound = [i for i, request in enumerate(requests) if request.id not in failed]
    planner.observe([requests[i] for i in sound], [outcomes[i] for i in sound], times)
    return RoundReport(outcomes, times, failed)


def _draft(
    requests: Sequence[RoundRequest], planner: Planner, verifier: Verifier, rule: AcceptanceRule
) -> list[DraftTree]:
    trees = planner.draft(requests)
    for request, tree in zip(requests, trees, strict=True):
        if tree.tokens[0] != request.tokens[-1]:
            raise ForedraftError(
                f"drafters {', '.join(planner.methods)}: the tree of request {request.id} has another root"
            )
    return [
        usable_part(rule.usable(tree), room=room(request), vocab_size=verifier.vocab_size)
        for tree, request in zip(trees, requests, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class _Target:
    """The target after each node of a request's tree, as acceptance rules see it."""

    request: RoundRequest
    tree: DraftTree
    logits_NV: Floats
    verifier: Verifier
    likeliest: dict[int, Sequence[int]] = field(default_factory=dict)

    @property
    def params(self) -> SamplingParams:
        return self.request.params

    @property
    def choice(self) -> int:
        return self.request.choice

    @property
    def position(self) -> int:
        return len(self.request.tokens)

    def token(self, node: int) -> int:
        chosen = self.verifier.target_tokens(self.logits_NV[node], self.request, self._path(node))
        if len(chosen) > 1:
            self.likeliest[node] = chosen
        return chosen[0]

    def probs(self, node: int, params: SamplingParams) -> FloatArray:
        return self.verifier.target_probs(self.logits_NV[node], self.request, self._path(node), params)

    def _path(self, node: int) -> list[int]:
        return [self.tree.tokens[above] for above in self.tree.path(node)]


def _accept(target: _Target, rule: AcceptanceRule, emit: Emit) -> Outcome:
    request, tree = target.request, target.tree
    accepted = rule.accept(tree, target)
    tokens = accepted.tokens(tree)
    num_kept = emit(request, tokens)
    if request.logprobs is not None:
        rows = (target.logits_NV[node] for node in (0, *accepted.path))
        num_top = request.params.logprobs or 0
        kept = zip(rows, tokens[:num_kept], strict=False)
        request.logprobs.extend(token_logprob(logits_V, token, num_top) for logits_V, token in kept)
    # The last token kept is the next root: it is not cached yet, even where it was a node of the tree.
    target.verifier.commit(request.sequence, tree, accepted.path[: num_kept - 1])
    return Outcome(tree, accepted.path[:num_kept], target.logits_NV, accepted.choices[:num_kept], target.likeliest)
