"""From runs to figures: which setting is how much faster than plain decoding, where, and what to use."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from foredraft.bench.measuring import paired_ratios
from foredraft.config import DraftConfig
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.tune.measure import Run
from foredraft.tune.settings import (
    LENIENT,
    PLAIN,
    chooses_itself,
    for_llama_cpp,
    for_vllm,
    is_exact,
    is_fixed_length,
    options,
)

AS_GOOD = 0.97
SURE_PART = 0.75
"""`auto` is recommended, since it goes on adapting, unless a fixed setting was faster by more than 3 % in the median
over the runs, and faster at all in three quarters of them: a few runs on a busy machine say little."""
INPUT_EDGES = (64, 256, 1024, 4096)
OUTPUT_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A setting over all prompts. speed_up: median over the runs of its speed / that of plain decoding beside it.

    worst: the smallest. equal: whether every text was that of plain decoding; None for lenient rules.
    """

    setting: str
    tokens_per_s: float
    speed_up: float
    worst: float
    acceptance_rate: float | None
    mean_acceptance_length: float
    equal: bool | None
    by_family: Mapping[str, float]
    accepted_per_position: tuple[float, ...]


class Result:
    """Runs, and all that follows from them. settings and prompts: those that were measured."""

    def __init__(self, settings: Sequence[DraftConfig], prompts: Sequence[Prompt], runs: Sequence[Run]) -> None:
        self.settings = {config.name: config for config in settings}
        self.prompts = {prompt.key: prompt for prompt in prompts}
        self.runs = list(runs)
        self._plain = {(run.prompt, run.turn): run.measured for run in runs if run.setting == PLAIN.name}
        self.figures = [self._figures(config) for config in settings]

    def of(self, setting: str) -> list[Run]:
        """The runs of one setting."""
        return [run for run in self.runs if run.setting == setting]

    def speed_up(self, run: Run) -> float:
        """Speed of a run / speed of plain decoding on the same prompt in the same turn."""
        return run.measured.tokens_per_s / self._plain[run.prompt, run.turn].tokens_per_s

    def _figures(self, config: DraftConfig) -> Figures:
        runs = self.of(config.name)
        speed_ups = [self.speed_up(run) for run in runs]
        completions = [run.measured.completion for run in runs]
        told = [completion.speculation for completion in completions]
        drafted, rounds = sum(one.num_draft_tokens for one in told), sum(one.num_rounds for one in told)
        families = sorted({prompt.family for prompt in self.prompts.values()})
        per_position = itertools.zip_longest(*(one.accepted_per_position for one in told), fillvalue=0)
        return Figures(
            setting=config.name,
            tokens_per_s=median(run.measured.tokens_per_s for run in runs),
            speed_up=median(speed_ups),
            worst=min(speed_ups),
            acceptance_rate=sum(one.num_accepted_tokens for one in told) / drafted if drafted else None,
            mean_acceptance_length=sum(len(completion.token_ids) for completion in completions) / rounds,
            equal=all(self._same_text(run) for run in runs) if is_exact(config) else None,
            by_family={family: self._family(config.name, family) for family in families},
            accepted_per_position=tuple(sum(numbers) / rounds for numbers in per_position),
        )

    def _same_text(self, run: Run) -> bool:
        return run.measured.completion.token_ids == self._plain[run.prompt, run.turn].completion.token_ids

    def _family(self, setting: str, family: str) -> float:
        return median(self.speed_up(run) for run in self.of(setting) if self.prompts[run.prompt].family == family)

    def figure(self, setting: str) -> Figures:
        """The figures of one setting."""
        return next(figures for figures in self.figures if figures.setting == setting)

    @property
    def best_auto(self) -> DraftConfig:
        """The fastest of the settings that choose by themselves."""
        return self._fastest([config for config in self.settings.values() if chooses_itself(config)])

    @property
    def fixed(self) -> list[DraftConfig]:
        """The fixed settings that lose nothing, plain decoding among them."""
        return [config for config in self.settings.values() if not chooses_itself(config) and is_exact(config)]

    @property
    def best_fixed(self) -> DraftConfig:
        """The fastest of these."""
        return self._fastest(self.fixed)

    @property
    def chosen(self) -> DraftConfig:
        """What is recommended, of what was measured."""
        auto, fixed = self.best_auto, self.best_fixed
        beside = {(run.prompt, run.turn): run.measured.tokens_per_s for run in self.of(fixed.name)}
        own = self.of(auto.name)
        ratios = paired_ratios(
            [run.measured.tokens_per_s for run in own], [beside[run.prompt, run.turn] for run in own]
        )
        loses = median(ratios) < AS_GOOD and sum(r < 1.0 for r in ratios) >= SURE_PART * len(ratios)
        return fixed if loses and not fixed.min_survival else auto

    @property
    def recommended(self) -> DraftConfig:
        """The same, as it is to be used: earlier texts may be drafted from."""
        return replace(self.chosen, memory=DraftConfig().memory)

    @property
    def for_others(self) -> dict[str, dict[str, str] | None]:
        """For vLLM and llama.cpp: the best setting that they have something like, and how it is written there."""
        ranked = sorted(self.figures, key=lambda figures: -figures.speed_up)
        found: dict[str, dict[str, str] | None] = {}
        for name, write in (("vllm", for_vllm), ("llama_cpp", for_llama_cpp)):
            written = ((f.setting, write(self.settings[f.setting])) for f in ranked if f.speed_up > 1.0)
            first = next(((setting, text) for setting, text in written if text), None)
            found[name] = None if first is None else {"setting": first[0], "options": first[1]}
        return found

    def heat_map(self) -> dict[str, Any]:
        """How much faster the best `auto` comes to outputs of some lengths, by the length of the prompt.

        Seconds include the prefill. inputs: words for ranges of prompt tokens; speed_ups: a list for each, None where
        there was no such run.
        """
        auto = self.of(self.best_auto.name)
        edges = (0, *INPUT_EDGES, 1 << 62)
        found, inputs = [], []
        for low, high in itertools.pairwise(edges):
            own = [run for run in auto if low < run.measured.completion.usage.prompt_tokens <= high]
            if own:
                inputs.append(f"up to {high}" if high < edges[-1] else f"over {low}")
                found.append([self._heat(own, length) for length in OUTPUT_LENGTHS])
        used = [i for i in range(len(OUTPUT_LENGTHS)) if any(line[i] is not None for line in found)]
        return {
            "setting": self.best_auto.name,
            "inputs": inputs,
            "outputs": [OUTPUT_LENGTHS[i] for i in used],
            "speed_ups": [[line[i] for i in used] for line in found],
        }

    def _heat(self, runs: Sequence[Run], length: int) -> float | None:
        speed_ups = []
        for run in runs:
            ours, plain = run.measured.seconds_to(length), self._plain[run.prompt, run.turn].seconds_to(length)
            if ours and plain:
                speed_ups.append(plain / ours)
        return median(speed_ups) if speed_ups else None

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Speed-up over the number of draft tokens, of each drafter that has such settings."""
        found: dict[str, list[tuple[int, float]]] = {}
        for config in filter(is_fixed_length, self.settings.values()):
            assert config.num_draft_tokens is not None
            speed_up = self.figure(config.name).speed_up
            found.setdefault(_drafters(config), []).append((config.num_draft_tokens, speed_up))
        return found

    def lenient(self) -> list[tuple[float, float]]:
        """Speed-up over the threshold of the lenient rule."""
        lossy = [config for config in self.settings.values() if not is_exact(config)]
        return [(LENIENT[config.acceptance], self.figure(config.name).speed_up) for config in lossy]

    def positions(self) -> dict[str, tuple[float, ...]]:
        """Of each drafter, at its longest chains: how often in a round the 1st, 2nd, ... token was accepted."""
        longest = {_drafters(config): config.name for config in self.settings.values() if is_fixed_length(config)}
        return {drafters: self.figure(name).accepted_per_position for drafters, name in longest.items()}

    def _fastest(self, settings: Sequence[DraftConfig]) -> DraftConfig:
        return max(settings, key=lambda config: self.figure(config.name).speed_up)


def _drafters(config: DraftConfig) -> str:
    """The drafters alone, models by the names of their files."""
    return DraftConfig(drafters=config.drafters).name


def to_json(result: Result, costs: Mapping[str, Calibration]) -> dict[str, Any]:
    """All figures as plain values."""
    best_by_family = {}
    for family in result.figures[0].by_family:
        best = max((config.name for config in result.fixed), key=lambda name: result.figure(name).by_family[family])
        auto = result.figure(result.best_auto.name).by_family[family]
        by_hindsight = result.figure(best).by_family[family]
        best_by_family[family] = {"best": best, "best_speed_up": by_hindsight, "auto_speed_up": auto}
    return {
        "settings": [asdict(figures) for figures in result.figures],
        "families": best_by_family,
        "best_auto": result.best_auto.name,
        "best_fixed": result.best_fixed.name,
        "recommended": {
            "setting": result.chosen.name,
            "config": result.recommended.to_json(),
            "options": options(result.recommended),
        },
        "for_others": result.for_others,
        "cost": {name: asdict(calibration) for name, calibration in costs.items()},
        "heat_map": result.heat_map(),
        "speed_up_over_length": result.curves(),
        "speed_up_over_lenient_threshold": result.lenient(),
        "accepted_per_position": result.positions(),
    }
