"""What was found out about a model on a machine, in a file: where a planner starts from instead of from nothing.

`foredraft tune` writes it, `--profile` and `LLM(profile=...)` read it. docs/tuning.md describes it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from foredraft.config import DraftConfig
from foredraft.errors import OptionError, UserError
from foredraft.files import text_of, user_path, write_whole
from foredraft.planner.cost import Calibration
from foredraft.planner.survival import Survival

FORMAT = 2


class ProfileError(UserError):
    """A profile cannot be read or written, or was made for something else."""


@dataclass(frozen=True, kw_only=True)
class Learned:
    """How good a drafter was. greedy, sampled: `Survival.to_json` of each kind of text, empty for one not seen.

    greedy_acceptance, sampled_acceptance: of a model-based drafter's tokens how many were accepted, and how many were
    drafted behind accepted ones; recent ones count most.
    greedy_gain, sampled_gain: tokens that asking it would have gained for each token of a completion.
    """

    greedy: Mapping[str, Any] = field(default_factory=dict)
    sampled: Mapping[str, Any] = field(default_factory=dict)
    greedy_acceptance: tuple[float, float] = (0.0, 0.0)
    sampled_acceptance: tuple[float, float] = (0.0, 0.0)
    greedy_gain: float = 0.0
    sampled_gain: float = 0.0

    def survivals(self) -> dict[bool, Survival]:
        """What was learned of the confidences, by whether the texts were greedy. Raises ValueError for nonsense."""
        kinds = {True: self.greedy, False: self.sampled}
        return {kind: Survival.from_json(state) for kind, state in kinds.items() if state}

    def acceptance(self) -> dict[bool, tuple[float, float]]:
        """Tokens accepted and drafted, by whether the texts were greedy, where any were counted."""
        kinds = {True: self.greedy_acceptance, False: self.sampled_acceptance}
        return {kind: numbers for kind, numbers in kinds.items() if numbers[1] > 0}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a planner may start from.

    model, tokenizer: name of the model's file, and fingerprint of its vocabulary. machine: processor and cores.
    key: what the calibrations depend on; they count where it is the same. calibrations: the target's under "", and
    those of model-based drafters under their names. learned: by the drafters' names. recommended: the way of drafting
    that did best.
    """

    model: str
    tokenizer: str
    machine: Mapping[str, Any]
    key: Mapping[str, Any]
    calibrations: Mapping[str, Calibration]
    learned: Mapping[str, Learned]
    recommended: DraftConfig = field(default_factory=DraftConfig)

    def calibration(self, key: Mapping[str, object], drafter: str = "") -> Calibration | None:
        """The calibration of the target or of a drafter, if it was made for what `key` says."""
        return self.calibrations.get(drafter) if json.loads(json.dumps(key)) == self.key else None

    def check(self, *, model: str, tokenizer: str) -> None:
        """Raise ProfileError if this was made for another model."""
        if (model, tokenizer) != (self.model, self.tokenizer):
            raise ProfileError(
                f"--profile was made for {self.model}, and the model is {model}"
                f"{'' if model != self.model else ' with another vocabulary'}: run foredraft tune for it"
            )

    def recommended_for(self, asked: DraftConfig) -> DraftConfig:
        """What is recommended, with the memory and the acceptance rule that were asked for."""
        return replace(self.recommended, memory=asked.memory, acceptance=asked.acceptance)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "recommended": self.recommended.to_json()}

    def write(self, path: str | Path) -> None:
        """Write the file. Raises ProfileError where that is not possible."""
        text = json.dumps({"format": FORMAT, **self.to_json()}, indent=1, allow_nan=False)
        try:
            write_whole(user_path(path), text + "\n")
        except UserError as error:
            raise ProfileError(str(error)) from error

    @classmethod
    def read(cls, path: str | Path) -> "Profile":
        """The profile of a file. Raises ProfileError where it cannot be read or is none."""
        try:
            values = json.loads(text_of(user_path(path).read_bytes()))
            if values["format"] != FORMAT:
                raise ProfileError(
                    f"{path} is of another version of foredraft (format {values['format']}, this one reads {FORMAT}): "
                    "run foredraft tune again"
                )
            return _profile(values)
        except OSError as error:
            raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from error
        except KeyError as error:
            raise ProfileError(f"{path} is not a profile of foredraft tune: {error} is missing") from error
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError, OptionError) as error:
            raise ProfileError(f"{path} is not a profile of foredraft tune: {error}") from error


def _profile(values: dict[str, Any]) -> Profile:
    return Profile(
        model=str(values["model"]),
        tokenizer=str(values["tokenizer"]),
        machine=dict(values["machine"]),
        key=dict(values["key"]),
        calibrations={name: Calibration.from_json(fields) for name, fields in values["calibrations"].items()},
        learned={name: _learned(fields) for name, fields in values["learned"].items()},
        recommended=DraftConfig.from_json(values["recommended"]),
    )


def _learned(fields: Mapping[str, Any]) -> Learned:
    known = Learned(
        greedy=fields["greedy"],
        sampled=fields["sampled"],
        greedy_acceptance=_accepted_and_drafted(fields["greedy_acceptance"]),
        sampled_acceptance=_accepted_and_drafted(fields["sampled_acceptance"]),
        greedy_gain=float(fields["greedy_gain"]),
        sampled_gain=float(fields["sampled_gain"]),
    )
    known.survivals()  # raises here rather than in the middle of a completion
    if not (math.isfinite(known.greedy_gain) and math.isfinite(known.sampled_gain)):
        raise ValueError("a gain must be a finite number")
    return known


def _accepted_and_drafted(values: Any) -> tuple[float, float]:
    accepted, drafted = values
    if not 0 <= accepted <= drafted:
        raise ValueError("at most as many tokens can be accepted as were drafted")
    return float(accepted), float(drafted)
