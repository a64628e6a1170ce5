"""From answers to figures: which setting is how much faster than plain decoding, where, and what to use."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from foredraft.planner import Recommended
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.tune.measure import Answer
from foredraft.tune.settings import PLAIN, Setting, for_llama_cpp, for_vllm

AS_GOOD = 0.97
SURE_SHARE = 0.75
"""`auto` is recommended, since it goes on adapting, unless a fixed setting was faster by more than 3 % in the median
over the answers, and faster at all in three quarters of them: a few answers on a busy machine say little."""
INPUT_EDGES = (64, 256, 1024, 4096)
OUTPUT_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A setting over all prompts. to_plain: median over the answers of its speed / that of plain decoding beside it.

    worst: the smallest. equal: whether every text was that of plain decoding; None for lenient rules.
    """

    setting: str
    tokens_per_s: float
    to_plain: float
    worst: float
    acceptance_rate: float | None
    mean_acceptance_length: float
    equal: bool | None
    by_family: Mapping[str, float]
    accepted_per_position: tuple[float, ...]


class Result:
    """Answers, and all that follows from them. settings and prompts: those that were measured."""

    def __init__(self, settings: Sequence[Setting], prompts: Sequence[Prompt], answers: Sequence[Answer]) -> None:
        self.settings = {setting.name: setting for setting in settings}
        self.prompts = {prompt.key: prompt for prompt in prompts}
        self.answers = list(answers)
        self._plain = {(a.prompt, a.turn): a for a in answers if a.setting == PLAIN}
        self.figures = [self._figures(setting) for setting in settings]

    def of(self, setting: str) -> list[Answer]:
        """The answers of one setting."""
        return [answer for answer in self.answers if answer.setting == setting]

    def ratio(self, answer: Answer) -> float:
        """Speed of an answer / speed of plain decoding on the same prompt in the same turn."""
        return self._plain[answer.prompt, answer.turn].s_per_token / answer.s_per_token

    def _figures(self, setting: Setting) -> Figures:
        answers = self.of(setting.name)
        ratios = [self.ratio(answer) for answer in answers]
        drafted, rounds = sum(a.num_drafted for a in answers), sum(a.num_rounds for a in answers)
        families = sorted({prompt.family for prompt in self.prompts.values()})
        deepest = max((len(a.accepted_per_position) for a in answers), default=0)
        return Figures(
            setting=setting.name,
            tokens_per_s=median(1.0 / answer.s_per_token for answer in answers),
            to_plain=median(ratios),
            worst=min(ratios),
            acceptance_rate=sum(a.num_accepted for a in answers) / drafted if drafted else None,
            mean_acceptance_length=sum(len(a.token_ids) for a in answers) / rounds,
            equal=None if setting.lenient is not None else all(self._same_text(answer) for answer in answers),
            by_family={family: self._family(setting.name, family) for family in families},
            accepted_per_position=tuple(
                sum(a.accepted_per_position[i] for a in answers if i < len(a.accepted_per_position)) / rounds
                for i in range(deepest)
            ),
        )

    def _same_text(self, answer: Answer) -> bool:
        return answer.token_ids == self._plain[answer.prompt, answer.turn].token_ids

    def _family(self, setting: str, family: str) -> float:
        return median(self.ratio(a) for a in self.of(setting) if self.prompts[a.prompt].family == family)

    def figure(self, setting: str) -> Figures:
        """The figures of one setting."""
        return next(figures for figures in self.figures if figures.setting == setting)

    @property
    def best_auto(self) -> Setting:
        """The fastest of the settings that choose by themselves."""
        return self._fastest([s for s in self.settings.values() if s.method == "auto"])

    @property
    def best_fixed(self) -> Setting:
        """The fastest of the fixed settings that lose nothing, plain decoding among them."""
        return self._fastest([s for s in self.settings.values() if s.method != "auto" and s.lenient is None])

    @property
    def chosen(self) -> Setting:
        """What is recommended."""
        auto, fixed = self.best_auto, self.best_fixed
        beside = {(answer.prompt, answer.turn): answer for answer in self.of(fixed.name)}
        ratios = [beside[a.prompt, a.turn].s_per_token / a.s_per_token for a in self.of(auto.name)]
        loses = median(ratios) < AS_GOOD and sum(r < 1.0 for r in ratios) >= SURE_SHARE * len(ratios)
        return fixed if loses and not fixed.min_survival else auto

    @property
    def recommended(self) -> Recommended:
        """The same, as a profile keeps it."""
        chosen = self.chosen
        return Recommended(
            draft=chosen.draft, num_draft_tokens=chosen.num_draft_tokens, num_draft_branches=chosen.num_branches
        )

    @property
    def for_others(self) -> dict[str, dict[str, str] | None]:
        """For vLLM and llama.cpp: the best setting that they have something like, and how it is written there."""
        ranked = sorted(self.figures, key=lambda figures: -figures.to_plain)
        found: dict[str, dict[str, str] | None] = {}
        for name, write in (("vllm", for_vllm), ("llama_cpp", for_llama_cpp)):
            written = ((f.setting, write(self.settings[f.setting])) for f in ranked if f.to_plain > 1.0)
            first = next(((setting, text) for setting, text in written if text), None)
            found[name] = None if first is None else {"setting": first[0], "options": first[1]}
        return found

    def heat_map(self) -> dict[str, Any]:
        """How much faster the best `auto` comes to outputs of some lengths, by the length of the prompt.

        Seconds include the reading of the prompt. inputs: words for ranges of prompt tokens; ratios: a row for each,
        None where there was no such answer.
        """
        auto = self.of(self.best_auto.name)
        edges = (0, *INPUT_EDGES, 1 << 62)
        rows, inputs = [], []
        for low, high in itertools.pairwise(edges):
            own = [answer for answer in auto if low < answer.num_prompt_tokens <= high]
            if own:
                inputs.append(f"up to {high}" if high < edges[-1] else f"over {low}")
                rows.append([self._heat(own, length) for length in OUTPUT_LENGTHS])
        used = [i for i in range(len(OUTPUT_LENGTHS)) if any(row[i] is not None for row in rows)]
        return {
            "setting": self.best_auto.name,
            "inputs": inputs,
            "outputs": [OUTPUT_LENGTHS[i] for i in used],
            "ratios": [[row[i] for i in used] for row in rows],
        }

    def _heat(self, answers: Sequence[Answer], length: int) -> float | None:
        ratios = []
        for answer in answers:
            ours, plain = answer.seconds_to(length), self._plain[answer.prompt, answer.turn].seconds_to(length)
            if ours and plain:
                ratios.append(plain / ours)
        return median(ratios) if ratios else None

    def curves(self) -> dict[str, list[tuple[int, float]]]:
        """Speed to that of plain decoding over the number of draft tokens, of each method that has such settings."""
        found: dict[str, list[tuple[int, float]]] = {}
        for figures in self.figures:
            setting = self.settings[figures.setting]
            if setting.is_plain_chain and setting.num_draft_tokens is not None:
                found.setdefault(setting.method, []).append((setting.num_draft_tokens, figures.to_plain))
        return found

    def lenient(self) -> list[tuple[float, float]]:
        """Speed to that of plain decoding over the threshold of the lenient rule."""
        settings = [self.settings[figures.setting] for figures in self.figures]
        return [
            (setting.lenient, figures.to_plain)
            for setting, figures in zip(settings, self.figures, strict=True)
            if setting.lenient is not None
        ]

    def positions(self) -> dict[str, tuple[float, ...]]:
        """Of each method, at its longest chains: the share of rounds in which the 1st, 2nd, ... token was accepted."""
        longest: dict[str, Setting] = {}
        for setting in self.settings.values():
            if setting.is_plain_chain:
                longest[setting.method] = setting
        return {method: self.figure(setting.name).accepted_per_position for method, setting in longest.items()}

    def _fastest(self, settings: Sequence[Setting]) -> Setting:
        return max(settings, key=lambda setting: self.figure(setting.name).to_plain)


def to_json(result: Result, costs: Mapping[str, Calibration]) -> dict[str, Any]:
    """All figures as plain values."""
    best_by_family = {}
    for family in result.figures[0].by_family:
        fixed = [s.name for s in result.settings.values() if s.method != "auto" and s.lenient is None]
        best = max(fixed, key=lambda name: result.figure(name).by_family[family])
        auto = result.figure(result.best_auto.name).by_family[family]
        by_hindsight = result.figure(best).by_family[family]
        best_by_family[family] = {"best": best, "best_to_plain": by_hindsight, "auto_to_plain": auto}
    return {
        "settings": [asdict(figures) for figures in result.figures],
        "families": best_by_family,
        "best_auto": result.best_auto.name,
        "best_fixed": result.best_fixed.name,
        "recommended": asdict(result.recommended) | {"setting": result.chosen.name},
        "for_others": result.for_others,
        "cost": {name: asdict(calibration) for name, calibration in costs.items()},
        "heat_map": result.heat_map(),
        "speed_over_length": result.curves(),
        "speed_over_lenient_threshold": result.lenient(),
        "accepted_per_position": result.positions(),
    }
