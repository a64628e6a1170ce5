"""What forward passes, prompts, plain decoding and a start cost; ours and llama.cpp's in turn."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from foredraft.bench.engine import RoundCost
from foredraft.bench.measuring import alternate, paired_ratios, summarise
from foredraft.errors import OptionError

Figures = dict[str, Any]
Note = Callable[[str], None]

OURS = "foredraft"
THEIRS = "llama.cpp"
SPEEDS = ("prompt_tokens_per_s", "decode_tokens_per_s")
PEER_SIZES = (1, 4, 8, 16)
"""Sizes that llama.cpp is measured at behind a context: its programs compute the context anew for each of them."""


class Engine(Protocol):
    """The part of `engine.MeasuredModel` that is measured here."""

    num_weight_bytes: int

    def forward_seconds(self, num_tokens: int, *, context: int) -> float:
        """Seconds of a forward pass with logits of all tokens."""

    def prompt_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of a prompt."""

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        """Speed of plain decoding."""

    def round_costs(self, *, num_verified: int, num_rounds: int) -> tuple[RoundCost, RoundCost]:
        """What a plain and a verifying round consist of."""


class Peer(Protocol):
    """The part of `peer.LlamaCpp` that is measured here."""

    def bench(self, *, prompt: int, generate: int) -> dict[str, float]:
        """Tokens per second of a prompt and of plain decoding."""

    def short_prompts(self, sizes: Sequence[int], *, context: int, repeats: int) -> dict[int, float]:
        """Seconds of a prompt batch of each size."""

    def decode_steps(self, sizes: Sequence[int], *, context: int, num_steps: int) -> dict[int, float]:
        """Seconds of a step of each number of sequences."""


@dataclass(frozen=True)
class KernelPlan:
    """What to measure: sizes of a forward pass, contexts it comes after, and how often.

    Raises OptionError for values that make no sense.
    """

    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
    contexts: tuple[int, ...] = (0, 1024, 4096)
    prompt: int = 512
    generate: int = 64
    num_verified: int = 8
    num_rounds: int = 5
    repeats: int = 5

    def __post_init__(self) -> None:
        if self.num_rounds < 1:
            raise OptionError(f"--rounds must be at least 1, got {self.num_rounds}")
        if self.repeats < 1:
            raise OptionError(f"--repeats must be at least 1, got {self.repeats}")
        if 1 not in self.sizes or min(self.sizes) < 1:
            raise OptionError("--sizes must be positive and hold 1: every cost is given relative to one token")
        if not self.contexts or min(self.contexts) < 0:
            raise OptionError("--contexts must be a list of numbers from 0")

    @property
    def longest(self) -> int:
        """Tokens of the longest text that is measured."""
        return max(max(self.contexts) + max(self.sizes), self.prompt + 1, self.generate + 17)

    def peer_sizes(self, context: int) -> tuple[int, ...]:
        """The sizes that llama.cpp is measured at behind a context."""
        return self.sizes if context == 0 else tuple(size for size in self.sizes if size in PEER_SIZES)


def our_round(engine: Engine, bandwidth: Callable[[], float], plan: KernelPlan) -> Figures:
    """One round of ours. Each forward pass's cost is the median of `repeats`, all sizes taking turns."""
    figures: Figures = {
        "read_bytes_per_s": bandwidth(),
        "prompt_tokens_per_s": engine.prompt_tokens_per_s(plan.prompt),
        "decode_tokens_per_s": engine.decode_tokens_per_s(plan.generate),
    }
    forward: dict[int, dict[int, float]] = {}
    for context in plan.contexts:
        engine.forward_seconds(1, context=context)  # computes the context, which is then in the cache
        samples: dict[int, list[float]] = {size: [] for size in plan.sizes}
        for _ in range(plan.repeats):
            for size in plan.sizes:
                samples[size].append(engine.forward_seconds(size, context=context))
        forward[context] = {size: statistics.median(values) for size, values in samples.items()}
    costs = engine.round_costs(num_verified=plan.num_verified, num_rounds=max(1, plan.generate // plan.num_verified))
    rounds = {
        name: {"num_tokens": cost.num_tokens, "whole_s": cost.whole_s, "parts_s": cost.parts_s}
        for name, cost in zip(("plain", "verify"), costs, strict=True)
    }
    return {**figures, "forward_s": forward, "rounds": rounds}


def peer_round(peer: Peer, plan: KernelPlan) -> Figures:
    """One round of llama.cpp's, by its own programs."""
    speeds = peer.bench(prompt=plan.prompt, generate=plan.generate)
    figures: Figures = {
        "prompt_tokens_per_s": speeds[f"pp{plan.prompt}"],
        "decode_tokens_per_s": speeds[f"tg{plan.generate}"],
        "forward_s": {
            context: peer.decode_steps(plan.peer_sizes(context), context=context, num_steps=plan.repeats)
            for context in plan.contexts
        },
    }
    if 0 in plan.contexts:
        figures["short_prompt_s"] = {0: peer.short_prompts(plan.sizes, context=0, repeats=plan.repeats)}
    return figures


def measure(
    engine: Engine, bandwidth: Callable[[], float], peer: Peer | None, plan: KernelPlan, *, note: Note
) -> dict[str, Any]:
    """Rounds of ours and theirs in turn, and their summary; the rounds are kept for other questions."""
    sides: dict[str, Callable[[], Figures]] = {OURS: lambda: our_round(engine, bandwidth, plan)}
    if peer is not None:
        sides[THEIRS] = lambda: peer_round(peer, plan)
    engine.decode_tokens_per_s(4)  # the first pages and allocations: nothing that a user meets twice
    rounds = alternate(
        sides, num_rounds=plan.num_rounds, after=lambda done: note(f"round {done} of {plan.num_rounds} done")
    )
    return {**summary(rounds, num_weight_bytes=engine.num_weight_bytes), "rounds": rounds}


def summary(rounds: Mapping[str, Sequence[Figures]], *, num_weight_bytes: int) -> dict[str, Any]:
    """Medians by side, costs relative to one token (paired by round), and speeds of ours relative to theirs."""
    ours = rounds[OURS]
    result: dict[str, Any] = {
        "num_weight_bytes": num_weight_bytes,
        "read_bytes_per_s": _summary(r["read_bytes_per_s"] for r in ours),
        OURS: {**_side(ours), "of_bandwidth_limit": _of_limit(ours, num_weight_bytes), "rounds": _round_costs(ours)},
        THEIRS: None,
        "ours_to_theirs": None,
    }
    if THEIRS in rounds:
        theirs = rounds[THEIRS]
        result[THEIRS] = _side(theirs)
        result["ours_to_theirs"] = {
            **{s: _summary(paired_ratios([r[s] for r in ours], [r[s] for r in theirs])) for s in SPEEDS},
            "one_token": {
                context: _summary(
                    paired_ratios(
                        [r["forward_s"][context][1] for r in theirs], [r["forward_s"][context][1] for r in ours]
                    )
                )
                for context in ours[0]["forward_s"]
            },
        }
    return result


def _summary(values: Any) -> dict[str, float | int]:
    return summarise(values).to_json_dict()


def _side(rounds: Sequence[Figures]) -> dict[str, Any]:
    """Speeds and, for each kind of forward pass, seconds of one token and the cost of n tokens relative to it."""
    result: dict[str, Any] = {speed: _summary(r[speed] for r in rounds) for speed in SPEEDS}
    for kind in ("forward_s", "short_prompt_s"):
        if kind in rounds[0]:
            result[kind.removesuffix("_s")] = {context: _relative(rounds, kind, context) for context in rounds[0][kind]}
    return result


def _relative(rounds: Sequence[Figures], kind: str, context: int) -> dict[str, Any]:
    """Seconds of a forward pass of one token, and T(n)/T(1) with both taken from the same round."""
    ones = [r[kind][context][1] for r in rounds]
    relative = {
        size: _summary(paired_ratios([r[kind][context][size] for r in rounds], ones))
        for size in rounds[0][kind][context]
    }
    return {"one_token_s": _summary(ones), "relative": relative}


def _of_limit(rounds: Sequence[Figures], num_weight_bytes: int) -> dict[str, float | int]:
    """Bytes of weights read per second in a forward pass of one token, relative to the bandwidth of the same round."""
    context = min(rounds[0]["forward_s"])
    read = [num_weight_bytes / r["forward_s"][context][1] for r in rounds]
    return _summary(paired_ratios(read, [r["read_bytes_per_s"] for r in rounds]))


def _round_costs(rounds: Sequence[Figures]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, first in rounds[0]["rounds"].items():
        costs = [r["rounds"][name] for r in rounds]
        result[name] = {
            "num_tokens": first["num_tokens"],
            "whole_s": _summary(cost["whole_s"] for cost in costs),
            "parts_s": {kind: _summary(cost["parts_s"][kind] for cost in costs) for kind in first["parts_s"]},
        }
    return result
