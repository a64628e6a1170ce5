"""What was found out about a model on a machine, in a file: where a planner starts from instead of from nothing.

`foredraft tune` writes it, `--profile` and `LLM(profile=...)` read it. docs/tuning.md describes it.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from foredraft.errors import UserError
from foredraft.files import write_whole
from foredraft.planner.cost import Calibration
from foredraft.planner.survival import Survival

FORMAT = 1


class ProfileError(UserError):
    """A profile cannot be read or written, or was made for something else."""


@dataclass(frozen=True, kw_only=True)
class Recommended:
    """The drafting that did best: names as `--draft` takes them, and the other options; None: not given."""

    draft: tuple[str, ...] = ("auto",)
    num_draft_tokens: int | None = None
    num_draft_branches: int = 1


@dataclass(frozen=True, kw_only=True)
class Learned:
    """How good a drafter was. greedy, sampled: `Survival.to_json` of each kind of text, empty for one not seen.

    greedy_share, sampled_share: of a costly drafter's tokens how many were right, and all; recent ones count most.
    greedy_gain, sampled_gain: tokens that asking it would have gained for each token of an answer.
    """

    greedy: Mapping[str, Any] = field(default_factory=dict)
    sampled: Mapping[str, Any] = field(default_factory=dict)
    greedy_share: tuple[float, float] = (0.0, 0.0)
    sampled_share: tuple[float, float] = (0.0, 0.0)
    greedy_gain: float = 0.0
    sampled_gain: float = 0.0

    def survivals(self) -> dict[bool, Survival]:
        """What was learned of the confidences, by whether the texts were greedy. Raises ValueError for nonsense."""
        kinds = {True: self.greedy, False: self.sampled}
        return {kind: Survival.from_json(state) for kind, state in kinds.items() if state}

    def shares(self) -> dict[bool, tuple[float, float]]:
        """The shares of right tokens, where any were counted."""
        kinds = {True: self.greedy_share, False: self.sampled_share}
        return {kind: share for kind, share in kinds.items() if share[1] > 0}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a planner may start from.

    model, tokenizer: name of the model's file, and fingerprint of its vocabulary. machine: processor and cores.
    key: what the calibrations depend on; they count where it is the same. calibrations: the target's under "", and
    those of costly drafters under their names. learned: by the drafters' names.
    """

    model: str
    tokenizer: str
    machine: Mapping[str, Any]
    key: Mapping[str, Any]
    calibrations: Mapping[str, Calibration]
    learned: Mapping[str, Learned]
    recommended: Recommended = Recommended()

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

    def write(self, path: str | Path) -> None:
        """Write the file. Raises ProfileError where that is not possible."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, indent=1, allow_nan=False)
        try:
            write_whole(Path(path), text + "\n")
        except UserError as error:
            raise ProfileError(str(error)) from error

    @classmethod
    def read(cls, path: str | Path) -> "Profile":
        """The profile of a file. Raises ProfileError where it cannot be read or is none."""
        try:
            values = json.loads(Path(path).read_bytes().decode("utf-8"))
            return _profile(values)
        except OSError as error:
            raise ProfileError(f"cannot read the profile {path}: {error.strerror}") from error
        except KeyError as error:
            raise ProfileError(f"{path} is not a profile of foredraft tune: {error} is missing") from error
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ProfileError(f"{path} is not a profile of foredraft tune: {error}") from error


def _profile(values: dict[str, Any]) -> Profile:
    if values["format"] != FORMAT:
        raise ValueError(f"format {values['format']} is not known, this version reads format {FORMAT}")
    recommended = values["recommended"]
    learned = {
        name: Learned(
            greedy=known["greedy"],
            sampled=known["sampled"],
            greedy_share=_pair(known["greedy_share"]),
            sampled_share=_pair(known["sampled_share"]),
            greedy_gain=float(known["greedy_gain"]),
            sampled_gain=float(known["sampled_gain"]),
        )
        for name, known in values["learned"].items()
    }
    for known in learned.values():
        known.survivals()  # raises here rather than in the middle of a request
        if not (math.isfinite(known.greedy_gain) and math.isfinite(known.sampled_gain)):
            raise ValueError("a gain must be a finite number")
    number = recommended["num_draft_tokens"]
    if isinstance(recommended["draft"], str):
        raise ValueError("the recommended drafters must be a list of names")
    return Profile(
        model=str(values["model"]),
        tokenizer=str(values["tokenizer"]),
        machine=dict(values["machine"]),
        key=dict(values["key"]),
        calibrations={name: Calibration.from_json(fields) for name, fields in values["calibrations"].items()},
        learned=learned,
        recommended=Recommended(
            draft=tuple(str(name) for name in recommended["draft"]),
            num_draft_tokens=None if number is None else int(number),
            num_draft_branches=int(recommended["num_draft_branches"]),
        ),
    )


def _pair(values: Any) -> tuple[float, float]:
    right, total = values
    if not 0 <= right <= total:
        raise ValueError("a share needs at most as many right tokens as tokens")
    return float(right), float(total)
