"""What a replay predicts of settings, and what they are measured at, on the same prompts.

Predictions take the costs of passes from calibrations made between the answers: a machine whose speed changes has the
same share of its states in both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import median
from typing import Any

from foredraft.llm import LLM
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.trace import Trace
from foredraft.tune.measure import Measuring
from foredraft.tune.replay import Recorded, Replay, Replayed, read

from .measuring import in_lockstep, rotated
from .ours import Engine
from .speculation import WARM_UP
from .tables import figure, table


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
            if "draft" in mode.partition(":")[0].split("+") and self.draft is None:
                raise ValueError(f"--modes {mode} needs --draft")

    def measuring(self, llm: LLM) -> Measuring:
        models = [] if self.draft is None else [self.draft]
        return Measuring(llm, models, max_tokens=self.max_tokens, raw=self.raw)


def record(llm: LLM, question: Question) -> Recorded:
    """Answer the prompts plainly, and keep what all drafters of the modes propose."""
    trace = Trace()
    names = [name for name in _drafters(question.modes) if name != "draft"]
    question.measuring(llm).record(names, question.prompts, trace)
    return read(trace)


def _drafters(modes: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name for mode in modes for name in mode.partition(":")[0].split("+")))


def measure(llm: LLM, question: Question) -> tuple[dict[str, float], dict[str, Calibration]]:
    """Seconds of decoding all prompts in each mode, in lockstep, and what passes cost meanwhile."""
    measuring = question.measuring(llm)
    engines = {mode: Engine(llm, mode, draft=question.draft, raw=question.raw) for mode in ("none", *question.modes)}
    options: dict[str, Any] = {"max_tokens": question.max_tokens, "temperature": 0.0, "seed": None}
    in_lockstep({mode: engine.answer(WARM_UP, **options) for mode, engine in engines.items()})
    seconds = dict.fromkeys(engines, 0.0)
    seen: list[dict[str, Calibration]] = []
    for turn, prompt in enumerate(question.prompts):
        seen.append(measuring.calibrations())
        begun = {mode: engines[mode].answer(prompt.text, **options) for mode in rotated(list(engines), turn)}
        for mode, answer in in_lockstep(begun)[0].items():
            seconds[mode] += answer["decode_s"]
    return seconds, {name: _middle([one[name] for one in seen]) for name in seen[0]}


def _middle(calibrations: Sequence[Calibration]) -> Calibration:
    """The medians of several."""
    first = calibrations[0]
    medians = [median(one.seconds[place] for one in calibrations) for place in range(len(first.rows))]
    return Calibration(
        first.rows,
        tuple(accumulate(medians, max)),
        median(one.per_position for one in calibrations),
        median(one.per_position_row for one in calibrations),
    )


def predict(recorded: Recorded, calibrations: Mapping[str, Calibration], modes: Sequence[str]) -> dict[str, Replayed]:
    """What the replay says of each mode, with other costs than those of the recording."""
    recorded.calibrations = dict(calibrations)
    model = next(iter(recorded.costly), "draft")
    replay = Replay(recorded)
    found = {}
    for mode in modes:
        names, _, number = mode.partition(":")
        drafters = [model if name == "draft" else name for name in names.split("+")]
        found[mode] = replay.fixed(drafters[0], int(number)) if number else replay.auto(drafters)
    return found


def compare(llm: LLM, question: Question) -> list[dict[str, Any]]:
    """For each mode its speed to plain decoding, predicted and measured, and the mean acceptance length predicted."""
    recorded = record(llm, question)
    seconds, calibrations = measure(llm, question)
    return [
        {
            "mode": mode,
            "mean_acceptance_length": one.mean_acceptance_length,
            "predicted": one.to_plain,
            "measured": seconds["none"] / seconds[mode],
        }
        for mode, one in predict(recorded, calibrations, question.modes).items()
    ]


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table."""
    return table(
        ("mode", "length", "predicted", "measured", "ratio"),
        [
            (
                str(row["mode"]),
                figure(row["mean_acceptance_length"]),
                figure(row["predicted"]),
                figure(row["measured"]),
                figure(row["predicted"] / row["measured"], 3),
            )
            for row in rows
        ],
    )
