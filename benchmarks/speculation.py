"""Every way of drafting on every prompt, side by side: speed, acceptance, and equal tokens."""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.bench.completing import Measured, steps
from foredraft.bench.measuring import in_lockstep, rotated
from foredraft.llm import LLM, SamplingParams
from foredraft.prompts import Prompt, spread

from .records import OURS, Cell, Records
from .server import Server

# Called with the prompt's text, the temperature and the seed. Yields its number of tokens after each step, and returns
# text, speed and figures of acceptance.
Complete = Callable[[str, float, int | None], Generator[int, None, dict[str, Any]]]


WARM_UP = "What is the weather like by the sea?"


@dataclass(frozen=True)
class SpeculationPlan:
    """The greedy pass over all prompts, and a sampled one over some of them.

    `sampled_at` is the temperature of the sampled pass (None: no such pass), made with each of `seeds` on
    `num_sampled` prompts of all families.
    """

    sampled_at: float | None = None
    seeds: tuple[int, ...] = ()
    num_sampled: int = 20

    def __post_init__(self) -> None:
        if (self.sampled_at is None) != (not self.seeds):
            raise ValueError("--temperature and --seeds go together")
        if self.sampled_at is not None and not self.sampled_at > 0:
            raise ValueError("--temperature must be above 0; the greedy pass is always made")

    def cells(self, prompts: Sequence[Prompt]) -> list[tuple[Prompt, float, int | None]]:
        """All that is to be measured, in order."""
        planned: list[tuple[Prompt, float, int | None]] = [(prompt, 0.0, None) for prompt in prompts]
        if self.sampled_at is not None:
            chosen = spread(prompts, self.num_sampled)
            planned += [(prompt, self.sampled_at, seed) for prompt in chosen for seed in self.seeds]
        return planned


def ours(llm: LLM, *, max_tokens: int, raw: bool = False) -> Complete:
    """A way of drafting of ours, to be measured."""

    def complete(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        return run_of((yield from steps(llm, text, params, raw=raw)))

    return complete


def theirs(server: Server, *, max_tokens: int) -> Complete:
    """A way of drafting of llama.cpp's. It cannot be stopped half-way: one step."""

    def complete(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
        run = server.chat(text, max_tokens=max_tokens, temperature=temperature, seed=seed)
        yield int(run["num_tokens"])
        return run

    return complete


def run_of(measured: Measured) -> dict[str, Any]:
    """What is kept of a completion: its tokens, its speed, and where its time went."""
    completion, told = measured.completion, measured.completion.speculation
    fields = ("num_rounds", "num_draft_tokens", "num_accepted_tokens", "expected_tokens", "expected_s", "speedup")
    return {
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "num_tokens": measured.num_tokens,
        "tokens_per_s": measured.tokens_per_s,
        "decode_s": measured.decode_s,
        "seconds": measured.seconds,
        "mean_acceptance_length": told.mean_acceptance_length,
        "speculation": {name: getattr(told, name) for name in fields}
        | {name: getattr(completion.timings, name) for name in ("draft_s", "verify_s", "accept_s")},
    }


def measure_cell(
    modes: Mapping[str, Complete], prompt: Prompt, temperature: float, seed: int | None, *, turn: int
) -> Cell:
    """One prompt in all modes side by side, starting with another mode each turn."""
    begun = {name: modes[name](prompt.text, temperature, seed) for name in rotated(list(modes), turn)}
    runs = in_lockstep(begun)
    return {
        "prompt": prompt.key,
        "family": prompt.family,
        "temperature": temperature,
        "seed": seed,
        "runs": {name: runs[name] for name in modes},
    }


def ours_only(modes: Mapping[str, Complete]) -> dict[str, Complete]:
    """Without the peer: sampling is there to compare our own modes, and its texts are not the peer's."""
    return {name: complete for name, complete in modes.items() if name.startswith(f"{OURS} ")}


def warm_up(modes: Mapping[str, Complete]) -> None:
    """Ask every mode once and forget it: first pages, first allocations, calibration.

    A text that is no prompt: some ways of drafting remember what they have seen, and would see a prompt twice.
    """
    for name, complete in modes.items():
        in_lockstep({name: complete(WARM_UP, 0.0, None)})


def missing(
    prompts: Sequence[Prompt], plan: SpeculationPlan, records: Records
) -> list[tuple[int, Prompt, float, int | None]]:
    """What is planned and not yet recorded, with its turn in the whole plan."""
    done = records.by_key()
    return [
        (turn, prompt, temperature, seed)
        for turn, (prompt, temperature, seed) in enumerate(plan.cells(prompts))
        if (prompt.key, temperature, seed) not in done
    ]


def run(modes: Mapping[str, Complete], prompts: Sequence[Prompt], plan: SpeculationPlan, records: Records) -> None:
    """Measure all that is missing, and keep each cell as soon as it is whole."""
    to_do = missing(prompts, plan, records)
    num_planned = len(plan.cells(prompts))
    if len(to_do) < num_planned:
        print(f"speculation: {num_planned - len(to_do)} of {num_planned} are there already", file=sys.stderr)
    if to_do:
        warm_up(modes)
    for turn, prompt, temperature, seed in to_do:
        asked = modes if temperature == 0 else ours_only(modes)
        records.add(measure_cell(asked, prompt, temperature, seed, turn=turn))
        print(f"speculation: {turn + 1} of {num_planned}: {prompt.key}", file=sys.stderr)


def planned_cells(prompts: Sequence[Prompt], plan: SpeculationPlan, records: Records) -> list[Cell]:
    """The recorded cells that are planned, in order; the file may hold more, of a run with more prompts."""
    found = records.by_key()
    return [found[prompt.key, temperature, seed] for prompt, temperature, seed in plan.cells(prompts)]
