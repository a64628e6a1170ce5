"""What a replay predicts of settings, and what they are measured at, on the same prompts.

Predictions take the costs of passes from calibrations made between the completions: a machine whose speed changes
spends as much of its time in each of its states in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import median
from typing import Any

from foredraft.bench.completing import steps
from foredraft.bench.measuring import in_lockstep, rotated
from foredraft.bench.tables import figure, table
from foredraft.config import DraftConfig
from foredraft.llm import LLM, SamplingParams
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.trace import Trace
from foredraft.tune.measure import Measuring
from foredraft.tune.recorded import Recorded, read
from foredraft.tune.replay import Replay, Replayed

from .modes import PLAIN, config_of
from .speculation import WARM_UP


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is compared. modes: one drafter with `:K`, or drafters joined by `+` that the planner chooses from."""

    modes: Sequence[str]
    draft: str | None
    prompts: Sequence[Prompt]
    max_tokens: int
    raw: bool = False

    def __post_init__(self) -> None:
        for mode in self.modes:
            if "auto" in mode or ("+" in mode and ":" in mode):
                raise ValueError(f"--modes {mode}: give one drafter with :K, or drafters joined by + for the planner")
            self.config(mode)

    def config(self, mode: str) -> DraftConfig:
        """The way of drafting of a mode."""
        return config_of(mode, draft=self.draft)

    def measuring(self, llm: LLM) -> Measuring:
        """What records and calibrates."""
        models = [] if self.draft is None else [self.draft]
        return Measuring(llm, models, max_tokens=self.max_tokens, raw=self.raw)


def record(llm: LLM, question: Question) -> Recorded:
    """Complete the prompts plainly, and keep what all drafters of the modes propose."""
    trace = Trace()
    asked = dict.fromkeys(name for mode in question.modes for name in question.config(mode).drafters)
    names = [name for name in asked if name != question.draft]
    question.measuring(llm).record(names, question.prompts, trace)
    return read(trace)


def measure(llm: LLM, question: Question) -> tuple[dict[str, float], dict[str, Calibration]]:
    """Seconds of decoding all prompts in each mode, in lockstep, and what passes cost meanwhile."""
    measuring = question.measuring(llm)
    engines = {mode: llm.with_drafts(question.config(mode)) for mode in (PLAIN, *question.modes)}
    params = SamplingParams(max_tokens=question.max_tokens)
    in_lockstep({mode: steps(engine, WARM_UP, params, raw=question.raw) for mode, engine in engines.items()})
    seconds = dict.fromkeys(engines, 0.0)
    seen: list[dict[str, Calibration]] = []
    for turn, prompt in enumerate(question.prompts):
        seen.append(measuring.calibrations())
        begun = {
            mode: steps(engines[mode], prompt.text, params, raw=question.raw) for mode in rotated(list(engines), turn)
        }
        for mode, measured in in_lockstep(begun).items():
            seconds[mode] += measured.decode_s
    return seconds, {name: _middle([one[name] for one in seen]) for name in seen[0]}


def _middle(calibrations: Sequence[Calibration]) -> Calibration:
    """The medians of several."""
    first = calibrations[0]
    medians = [median(one.seconds[place] for one in calibrations) for place in range(len(first.num_tokens))]
    return Calibration(
        first.num_tokens,
        tuple(accumulate(medians, max)),
        median(one.per_position for one in calibrations),
        median(one.per_position_token for one in calibrations),
    )


def predict(recorded: Recorded, calibrations: Mapping[str, Calibration], question: Question) -> dict[str, Replayed]:
    """What the replay says of each mode, with other costs than those of the recording."""
    replay = Replay(replace(recorded, calibrations=dict(calibrations)))
    found = {}
    for mode in question.modes:
        config = question.config(mode)
        names = tuple(recorded.model_based[0] if name == question.draft else name for name in config.drafters)
        found[mode] = replay.play(replace(config, drafters=names))
    return found


def compare(llm: LLM, question: Question) -> list[dict[str, Any]]:
    """For each mode its speed-up, predicted and measured, and the mean acceptance length predicted."""
    recorded = record(llm, question)
    seconds, calibrations = measure(llm, question)
    return [
        {
            "mode": mode,
            "mean_acceptance_length": one.mean_acceptance_length,
            "predicted": one.speed_up,
            "measured": seconds[PLAIN] / seconds[mode],
        }
        for mode, one in predict(recorded, calibrations, question).items()
    ]


def report(result: Mapping[str, Any]) -> str:
    """The table."""
    return table(
        ("mode", "length", "predicted speed-up", "measured", "ratio"),
        [
            (
                f"`{row['mode']}`",
                figure(row["mean_acceptance_length"]),
                figure(row["predicted"]),
                figure(row["measured"]),
                figure(row["predicted"] / row["measured"], 3),
            )
            for row in result["modes"]
        ],
    )
