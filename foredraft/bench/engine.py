"""A model loaded for measuring: forward passes, prompts, and whole rounds with what they consist of."""

import time
from collections import abc
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.drafters.base import Drafter
from foredraft.errors import ForedraftError
from foredraft.kernels.choose import choose_kernels
from foredraft.kernels.native import NativeDecoder, NativeKernels
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.models.decoder import make_recipe
from foredraft.models.source import open_model
from foredraft.planner import FixedPlanner
from foredraft.round import run_round
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch, Sequence
from foredraft.target import ModelTarget
from foredraft.testing import OracleDrafter
from foredraft.tree import DraftTree

OUTSIDE = "outside"
"""What of a round no operation accounts for: Python, and choosing the tokens."""


@dataclass(frozen=True)
class RoundCost:
    """Seconds of a round on average, whole and by kind of operation. The parts add up to the whole."""

    num_tokens: int
    whole_s: float
    parts_s: dict[str, float]


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
        self._target = ModelTarget(self.decoder, self._vocab_size)
        self._random = np.random.default_rng(0)

    def forward_seconds(self, num_tokens: int, *, context: int) -> float:
        """Seconds of one forward pass of `num_tokens` tokens, with logits of all, after `context` cached ones."""
        return self.decoder.time_forward(num_tokens=num_tokens, context=context)

    def prompt_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of a prompt and of the logits after it. Other tokens each time, so that no cache helps."""
        sequence = self._sequence(self._prompt(num_tokens))
        started = time.perf_counter()
        self._prefill(sequence)
        self._target.forward([Entry(sequence.blocks, DraftTree.chain(sequence.tokens[-1]))])
        elapsed = time.perf_counter() - started
        sequence.blocks.close()
        return num_tokens / elapsed

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of plain decoding, choosing the tokens included, after a prompt of 16."""
        sequence = self._prefilled(self._prompt(16))
        elapsed = self._rounds(sequence, OracleDrafter(()), num_rounds=num_tokens, num_drafted=0)
        sequence.blocks.close()
        return num_tokens / elapsed

    def round_costs(self, *, num_verified: int, num_rounds: int) -> tuple[RoundCost, RoundCost]:
        """A plain round, and a round that verifies `num_verified` tokens, all of which are accepted.

        Both produce the same text after a prompt of 16 tokens. Raises ForedraftError if it is not the same.
        """
        prompt = self._prompt(16)
        num_plain = num_rounds * num_verified
        plain = self._prefilled(prompt)
        plain_cost = self._profiled(plain, OracleDrafter(()), num_rounds=num_plain, num_tokens=1)
        plain.blocks.close()
        drafted, known = self._prefilled(prompt), OracleDrafter(plain.tokens[len(prompt) :])
        cost = self._profiled(drafted, known, num_rounds=num_rounds, num_tokens=num_verified)
        drafted.blocks.close()
        # The last round has nothing to draft beyond the known text: its bonus may be a new token.
        if drafted.tokens[: len(plain.tokens)] != plain.tokens:
            raise ForedraftError("verified rounds gave another text than plain decoding")
        return plain_cost, cost

    def _profiled(self, sequence: Sequence, drafter: Drafter, *, num_rounds: int, num_tokens: int) -> RoundCost:
        self._native.profile(on=True)
        elapsed = self._rounds(sequence, drafter, num_rounds=num_rounds, num_drafted=num_tokens - 1)
        seconds = self._native.profile(on=False)
        parts = {kind: value / num_rounds for kind, value in seconds.items()}
        whole = elapsed / num_rounds
        return RoundCost(num_tokens, whole, {**parts, OUTSIDE: whole - sum(parts.values())})

    def _rounds(self, sequence: Sequence, drafter: Drafter, *, num_rounds: int, num_drafted: int) -> float:
        planner, batch = FixedPlanner(drafter, num_drafted), Batch((sequence,))
        started = time.perf_counter()
        for _ in range(num_rounds):
            report = run_round(batch, planner, self._target, _keep_all)
            for error in report.failed.values():
                raise error
        return time.perf_counter() - started

    def _prompt(self, num_tokens: int) -> list[int]:
        return [int(token) for token in self._random.integers(0, self._vocab_size, num_tokens)]

    def _sequence(self, prompt: abc.Sequence[int]) -> Sequence:
        return Sequence(
            id=0,
            tokens=list(prompt),
            num_prompt_tokens=len(prompt),
            params=SamplingParams(seed=0),
            max_length=self.decoder.config.context_length,
            blocks=self.decoder.cache.open(),  # to be closed; nothing is published, so nothing stays in the cache
        )

    def _prefill(self, sequence: Sequence) -> None:
        self.decoder.prefill(sequence.blocks, sequence.tokens[:-1])

    def _prefilled(self, prompt: abc.Sequence[int]) -> Sequence:
        sequence = self._sequence(prompt)
        self._prefill(sequence)
        return sequence


def _keep_all(sequence: Sequence, tokens: tuple[int, ...], logits: abc.Sequence[Floats]) -> int:
    sequence.tokens.extend(tokens)
    return len(tokens)
