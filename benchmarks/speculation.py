"""Every way of drafting on every prompt, side by side: speed, acceptance, and equal tokens."""

import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.prompts import Prompt

from .measuring import in_lockstep, rotated, spaced
from .records import OURS, Cell, Records

# Called with the prompt's text, the temperature and the seed. Yields its number of tokens after each step, and returns
# text, speed and figures of acceptance.
Answer = Callable[[str, float, int | None], Generator[int, None, dict[str, Any]]]


WARM_UP = "What is the weather like by the sea?"


@dataclass(frozen=True)
class SpeculationPlan:
    """The greedy pass over all prompts, and a sampled one over some of them.

    `sampled_at` is the temperature of the sampled pass (None: no such pass), made with each of `seeds` on
    `num_sampled` prompts that are evenly spaced over all of them.
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
            chosen = [prompts[i] for i in spaced(len(prompts), self.num_sampled)]
            planned += [(prompt, self.sampled_at, seed) for prompt in chosen for seed in self.seeds]
        return planned


def measure_cell(
    answers: Mapping[str, Answer], prompt: Prompt, temperature: float, seed: int | None, *, turn: int
) -> Cell:
    """One prompt in all modes side by side, starting with another mode each turn."""
    begun = {name: answers[name](prompt.text, temperature, seed) for name in rotated(list(answers), turn)}
    results, seconds = in_lockstep(begun)
    runs = {name: {**result, "wall_s": seconds[name]} for name, result in results.items()}
    return {
        "prompt": prompt.key,
        "family": prompt.family,
        "temperature": temperature,
        "seed": seed,
        "runs": {name: runs[name] for name in answers},
    }


def ours_only(answers: Mapping[str, Answer]) -> dict[str, Answer]:
    """Without the peer: sampling is there to compare our own modes, and its texts are not the peer's."""
    return {name: answer for name, answer in answers.items() if name.startswith(f"{OURS} ")}


def warm_up(answers: Mapping[str, Answer]) -> None:
    """Ask every mode once and forget it: first pages, first allocations, calibration.

    A text that is no prompt: some ways of drafting remember what they have seen, and would see a prompt twice.
    """
    for name, answer in answers.items():
        in_lockstep({name: answer(WARM_UP, 0.0, None)})


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


def run(answers: Mapping[str, Answer], prompts: Sequence[Prompt], plan: SpeculationPlan, records: Records) -> None:
    """Measure all that is missing, and keep each cell as soon as it is whole."""
    to_do = missing(prompts, plan, records)
    num_planned = len(plan.cells(prompts))
    if len(to_do) < num_planned:
        print(f"speculation: {num_planned - len(to_do)} of {num_planned} are there already", file=sys.stderr)
    if to_do:
        warm_up(answers)
    for turn, prompt, temperature, seed in to_do:
        asked = answers if temperature == 0 else ours_only(answers)
        records.add(measure_cell(asked, prompt, temperature, seed, turn=turn))
        print(f"speculation: {turn + 1} of {num_planned}: {prompt.key}", file=sys.stderr)


def planned_cells(prompts: Sequence[Prompt], plan: SpeculationPlan, records: Records) -> list[Cell]:
    """The recorded cells that are planned, in order; the file may hold more, of a run with more prompts."""
    found = records.by_key()
    return [found[prompt.key, temperature, seed] for prompt, temperature, seed in plan.cells(prompts)]
