"""A model loaded for measuring: forward passes, prompts, and whole rounds with what they consist of."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.drafters.base import Drafter, Outcome, RequestView
from foredraft.errors import ForedraftError
from foredraft.kernels.choose import choose_kernels
from foredraft.kernels.native import NativeDecoder, NativeKernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.decoder import make_recipe
from foredraft.models.source import open_model
from foredraft.planner import FixedPlanner
from foredraft.round import RoundRequest, run_round
from foredraft.sampling import SamplingParams
from foredraft.tree import Budget, DraftTree
from foredraft.verify import Verifier

OUTSIDE = "outside"
"""What of a round no operation accounts for: Python, and choosing the tokens."""


@dataclass(frozen=True)
class RoundCost:
    """Seconds of a round on average, whole and by kind of operation. The parts add up to the whole."""

    num_tokens: int
    whole_s: float
    parts_s: dict[str, float]


class KnownText:
    """A drafter that proposes what it was told comes: every token is accepted."""

    name = "known"
    free = True

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tuple(tokens)

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        trees = []
        for request, budget in zip(requests, budgets, strict=True):
            length = len(request.tokens)
            trees.append(DraftTree.chain(request.tokens[-1], self._tokens[length : length + budget.num_tokens]))
        return trees

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""


class MeasuredModel:
    """A model on the native kernels. Raises as `open_model`, `choose_kernels` and `make_recipe`."""

    def __init__(self, path: Path, *, num_threads: int) -> None:
        kernels = choose_kernels("native", threads=num_threads)
        source = open_model(path)
        forward = kernels.compile(make_recipe(source))
        if not isinstance(kernels, NativeKernels) or not isinstance(forward, NativeDecoder):
            raise TypeError("only native kernels can be measured")
        self.isa = kernels.isa
        self.num_weight_bytes = forward.num_weight_bytes
        self._native = forward
        self.decoder = CachedDecoder(source.config, forward, kernels)
        self._vocab_size = source.config.vocab_size
        self._verifier = Verifier(self.decoder, self._vocab_size)
        self._random = np.random.default_rng(0)

    def forward_seconds(self, num_tokens: int, *, context: int) -> float:
        """Seconds of one forward pass of `num_tokens` tokens, with logits of all, after `context` cached ones."""
        return self.decoder.time_forward(num_tokens=num_tokens, context=context)

    def prompt_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of a prompt and of the logits after it. Other tokens each time, so that no cache helps."""
        request = self._request(num_tokens)
        started = time.perf_counter()
        request.sequence, _ = self._verifier.open(request.tokens)
        self._verifier.verify([request.sequence], [DraftTree.chain(request.tokens[-1])])
        elapsed = time.perf_counter() - started
        self._drop(request)
        return num_tokens / elapsed

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of plain decoding, choosing the tokens included, after a prompt of 16."""
        request = self._opened(self._request(16))
        elapsed = self._rounds(request, KnownText(()), num_rounds=num_tokens, num_drafted=0)
        self._drop(request)
        return num_tokens / elapsed

    def round_costs(self, *, num_verified: int, num_rounds: int) -> tuple[RoundCost, RoundCost]:
        """A plain round, and a round that verifies `num_verified` tokens, all of which are accepted.

        Both produce the same text after a prompt of 16 tokens. Raises ForedraftError if it is not the same.
        """
        prompt = self._request(16).tokens
        num_plain = num_rounds * num_verified
        plain = self._opened(self._with_prompt(prompt))
        plain_cost = self._profiled(plain, KnownText(()), num_rounds=num_plain, num_tokens=1)
        text = list(plain.tokens)
        self._drop(plain)
        drafted = self._opened(self._with_prompt(prompt))
        cost = self._profiled(drafted, KnownText(text), num_rounds=num_rounds, num_tokens=num_verified)
        # The last round has nothing to draft beyond the known text: its bonus may be a new token.
        if drafted.tokens[: len(text)] != text:
            raise ForedraftError("verified rounds gave another text than plain decoding")
        self._drop(drafted)
        return plain_cost, cost

    def _profiled(self, request: RoundRequest, drafter: Drafter, *, num_rounds: int, num_tokens: int) -> RoundCost:
        self._native.profile(on=True)
        elapsed = self._rounds(request, drafter, num_rounds=num_rounds, num_drafted=num_tokens - 1)
        seconds = self._native.profile(on=False)
        parts = {kind: value / num_rounds for kind, value in seconds.items()}
        whole = elapsed / num_rounds
        return RoundCost(num_tokens, whole, {**parts, OUTSIDE: whole - sum(parts.values())})

    def _rounds(self, request: RoundRequest, drafter: Drafter, *, num_rounds: int, num_drafted: int) -> float:
        planner = FixedPlanner(drafter, num_drafted)
        started = time.perf_counter()
        for _ in range(num_rounds):
            run_round([request], planner, self._verifier, _keep_all)
        return time.perf_counter() - started

    def _request(self, num_tokens: int) -> RoundRequest:
        return self._with_prompt(self._random.integers(0, self._vocab_size, num_tokens).tolist())

    def _with_prompt(self, tokens: Sequence[int]) -> RoundRequest:
        nothing = self.decoder.cache.open(())
        return RoundRequest(
            id=0,
            tokens=list(tokens),
            num_prompt_tokens=len(tokens),
            params=SamplingParams(seed=0),
            max_length=self.decoder.config.context_length,
            sequence=nothing,
        )

    def _opened(self, request: RoundRequest) -> RoundRequest:
        request.sequence, _ = self._verifier.open(request.tokens)
        return request

    def _drop(self, request: RoundRequest) -> None:
        """Give the blocks back and keep nothing: a later prompt is to be computed, and memory not to grow."""
        request.sequence.truncate(0)
        request.sequence.close()
        self.decoder.cache.pool.forget_kept()  # the prompt was published when it was read


def _keep_all(request: RoundRequest, tokens: tuple[int, ...]) -> int:
    request.tokens.extend(tokens)
    return len(tokens)
