"""What a forward of n tokens, a prompt and plain decoding cost; ours and llama.cpp's in turn."""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from .measuring import alternate, paired_ratios, summarise
from .tables import figure, table

Costs = Mapping[int, Mapping[int, float]]  # context -> num_tokens -> seconds
Figures = dict[str, Any]


class ForwardEngine(Protocol):
    """The part of `ours.Engine` that is measured here."""

    def forward_seconds(self, num_tokens: int, *, context: int) -> float: ...

    def prompt_tokens_per_s(self, num_tokens: int) -> float: ...

    def decode_tokens_per_s(self, num_tokens: int) -> float: ...


class ForwardPeer(Protocol):
    """The part of `peer.LlamaCpp` that is measured here."""

    def bench(self, *, prompt: int, generate: int) -> dict[str, float]: ...

    def short_prompts(self, sizes: Sequence[int], *, context: int, repeats: int) -> dict[int, float]: ...

    def decode_steps(self, sizes: Sequence[int], *, context: int, num_steps: int) -> dict[int, float]: ...


@dataclass(frozen=True)
class KernelPlan:
    """What to measure: sizes of a forward, contexts it comes after, and how often."""

    sizes: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8, 12, 16)
    contexts: tuple[int, ...] = (0, 1024)
    prompt: int = 512
    generate: int = 64
    num_rounds: int = 5
    repeats: int = 5

    def __post_init__(self) -> None:
        if 1 not in self.sizes:
            raise ValueError("the sizes must hold 1: every cost is given relative to a forward of one token")


def our_round(engine: ForwardEngine, plan: KernelPlan) -> Figures:
    """One round of ours. Each forward's cost is the median of `repeats`, all sizes taking turns."""
    speeds = {
        "prompt_tokens_per_s": engine.prompt_tokens_per_s(plan.prompt),
        "decode_tokens_per_s": engine.decode_tokens_per_s(plan.generate),
    }
    forward: dict[int, dict[int, float]] = {}
    for context in plan.contexts:
        engine.forward_seconds(1, context=context)
        samples: dict[int, list[float]] = {size: [] for size in plan.sizes}
        for _ in range(plan.repeats):
            for size in plan.sizes:
                samples[size].append(engine.forward_seconds(size, context=context))
        forward[context] = {size: statistics.median(values) for size, values in samples.items()}
    return {**speeds, "forward_s": forward}


def peer_round(peer: ForwardPeer, plan: KernelPlan) -> Figures:
    """One round of llama.cpp's, by its own programs."""
    speeds = peer.bench(prompt=plan.prompt, generate=plan.generate)
    return {
        "prompt_tokens_per_s": speeds[f"pp{plan.prompt}"],
        "decode_tokens_per_s": speeds[f"tg{plan.generate}"],
        "forward_s": {
            context: peer.decode_steps(plan.sizes, context=context, num_steps=plan.repeats)
            for context in plan.contexts
        },
        "short_prompt_s": {
            context: peer.short_prompts(plan.sizes, context=context, repeats=plan.repeats)
            for context in plan.contexts
        },
    }


def measure(engine: ForwardEngine, peer: ForwardPeer | None, plan: KernelPlan) -> dict[str, Any]:
    """Rounds of ours and theirs in turn, and their summary; the rounds are kept for other questions."""
    sides: dict[str, Callable[[], Figures]] = {"foredraft": lambda: our_round(engine, plan)}
    if peer is not None:
        sides["llama.cpp"] = lambda: peer_round(peer, plan)
    # The first pages, the first allocations: nothing that a user meets twice.
    engine.decode_tokens_per_s(8)

    def after(num_done: int) -> None:
        print(f"kernels: round {num_done} of {plan.num_rounds} done", file=sys.stderr)

    rounds = alternate(sides, num_rounds=plan.num_rounds, after=after)
    return {"rounds": rounds, "summary": summary(rounds)}


def summary(rounds: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    """Medians by side, costs relative to one token (paired by round), and ratios of ours to theirs."""
    result: dict[str, Any] = {side: summary_of_side(list(figures)) for side, figures in rounds.items()}
    if "llama.cpp" in rounds:
        ours, theirs = rounds["foredraft"], rounds["llama.cpp"]
        result["ours_to_theirs"] = {
            speed: summarise(
                paired_ratios([r[speed] for r in ours], [r[speed] for r in theirs])
            ).to_json_dict()
            for speed in ("prompt_tokens_per_s", "decode_tokens_per_s")
        }
    return result


def summary_of_side(rounds: Sequence[Figures]) -> dict[str, Any]:
    """Speeds and, for each kind of forward, seconds of one token and the cost of n tokens relative to it."""
    result: dict[str, Any] = {
        speed: summarise(r[speed] for r in rounds).to_json_dict()
        for speed in ("prompt_tokens_per_s", "decode_tokens_per_s")
    }
    for kind in ("forward_s", "short_prompt_s"):
        if kind in rounds[0]:
            result[kind] = {context: relative_costs(rounds, kind, context) for context in rounds[0][kind]}
    return result


def relative_costs(rounds: Sequence[Figures], kind: str, context: int) -> dict[str, Any]:
    """Seconds of a forward of one token, and T(n)/T(1) with both taken from the same round."""
    ones = [r[kind][context][1] for r in rounds]
    relative = {
        size: summarise(paired_ratios([r[kind][context][size] for r in rounds], ones)).to_json_dict()
        for size in rounds[0][kind][context]
    }
    return {"one_token_s": summarise(ones).to_json_dict(), "relative": relative}


def report(result: Mapping[str, Any]) -> str:
    """The summary as tables."""
    found = result["summary"]
    sides = [side for side in ("foredraft", "llama.cpp") if side in found]
    ratios = found.get("ours_to_theirs", {})
    speeds = []
    for name, speed in (("prompt", "prompt_tokens_per_s"), ("plain decode", "decode_tokens_per_s")):
        cells = [figure(found[side][speed]["median"], 1) for side in sides]
        speeds.append([name, *cells, figure(ratios[speed]["median"] if ratios else None)])
    parts = [table(["tokens per second", *sides, "ratio"], speeds)]
    columns = [(side, "forward_s", side) for side in sides]
    if "llama.cpp" in found:
        columns.append(("llama.cpp", "short_prompt_s", "llama.cpp, prompt of n"))
    for context in found["foredraft"]["forward_s"]:
        entries = [found[side][kind][context] for side, kind, _ in columns]
        ones = [f"{1000 * entry['one_token_s']['median']:.2f} ms" for entry in entries]
        rows = [["T(1)", *ones]]
        for size in entries[0]["relative"]:
            if size != 1:
                cells = [figure(entry["relative"][size]["median"]) for entry in entries]
                rows.append([f"T({size}) / T(1)", *cells])
        parts.append(table([f"forward after {context} tokens", *(title for _, _, title in columns)], rows))
    return "\n\n".join(parts)
