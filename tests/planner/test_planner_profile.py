"""A profile: what a planner learned, kept in a file, and where a later one starts from."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.planning import TILES, auto_planner, planned

from foredraft.bench.simulate import known_sequence, simulate
from foredraft.config import DraftConfig
from foredraft.errors import OptionError
from foredraft.planner import AutoPlanner, Learned, Profile, ProfileError
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.survival import Survival
from foredraft.testing import SimulatedClock, SyntheticDrafter

TEXT = [place % 97 for place in range(600)]
STEP_S = 0.1


def planner_of(acceptance: float, learned: dict[str, Learned] | None = None) -> tuple[AutoPlanner, SimulatedClock]:
    clock = SimulatedClock()
    model = SyntheticDrafter(
        TEXT, acceptance, step_s=lambda num: STEP_S, clock=clock, name="model", confidence=lambda chance: 0.9
    )
    free = SyntheticDrafter(TEXT, acceptance / 2, seed=1, name="free", confidence=lambda chance: 0.9)
    steps = {"model": Calibration((1, 64), (STEP_S, STEP_S))}
    return auto_planner([free, model], clock, steps, learned=learned), clock


def learned_from(acceptance: float) -> dict[str, Learned]:
    planner, clock = planner_of(acceptance)
    simulate([known_sequence(0, [1, *TEXT], 1)], planner, CostModel(TILES).seconds, clock)
    return planner.learned


def profile() -> Profile:
    return Profile(
        model="m.gguf",
        tokenizer="ab",
        machine={"processor": "x", "num_cores": 2},
        key={"threads": 2, "kernels": ["native", "avx2"]},
        calibrations={"": TILES, "model": Calibration((1, 64), (0.1, 0.2))},
        learned=learned_from(0.9),
        recommended=DraftConfig(drafters=("suffix", "d.gguf"), num_draft_tokens=4, num_branches=2),
    )


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    written = profile()
    written.write(tmp_path / "p.json")
    read = Profile.read(tmp_path / "p.json")
    assert (read.model, read.tokenizer, read.machine, read.key) == ("m.gguf", "ab", written.machine, written.key)
    assert (read.calibrations, read.recommended) == (written.calibrations, written.recommended)
    assert set(read.learned) == {"free", "model"}
    assert read.learned == written.learned
    assert read.learned["model"].greedy_acceptance[1] > 5
    assert 0.0 < read.learned["model"].greedy_gain < 1.0
    assert not read.learned["model"].sampled


def test_what_was_learned_is_believed_at_once() -> None:
    """The first round of a new planner drafts as the last one of the old. 20: no tree of one sequence is larger."""
    for acceptance, least, most in [(0.95, 4, 20), (0.05, 0, 0)]:
        planner, _ = planner_of(acceptance, learned_from(acceptance))
        [tree] = planned(planner, known_sequence(5, [1, *TEXT], 1)).trees
        assert least <= tree.num_draft_tokens <= most
    fresh, _ = planner_of(0.05)
    [tree] = planned(fresh, known_sequence(5, [1, *TEXT], 1)).trees
    assert tree.num_draft_tokens > 0


def test_old_counts_weigh_no_more_than_some() -> None:
    """As a hundred tokens in each bin: of a new text that is unlike the old ones, so many are seen in a few rounds."""
    survival = Survival()
    for _ in range(300):
        survival.learn(0, 0.7, 1, right=True)
    later = Survival.from_json(survival.to_json())
    assert later.chance(-1, 0.7, 1) == pytest.approx(survival.chance(-1, 0.7, 1), abs=0.05)
    assert max(total for _, total in later.to_json()["all_depths"]) == pytest.approx(100.0)


def test_acceptance_belongs_to_its_kind_of_text() -> None:
    """Kind: how often a draft model was right in greedy text is taken for how often it is in sampled text."""
    both = Learned(greedy_acceptance=(8.0, 9.0), sampled_acceptance=(1.0, 5.0))
    assert both.acceptance() == {True: (8.0, 9.0), False: (1.0, 5.0)}
    assert Learned(sampled_acceptance=(1.0, 5.0)).acceptance() == {False: (1.0, 5.0)}


def test_what_is_recommended_keeps_to_what_was_asked_for_besides() -> None:
    found = profile().recommended_for(DraftConfig(memory="none", acceptance="traversal", num_draft_tokens=1))
    assert (found.drafters, found.num_draft_tokens, found.num_branches) == (("suffix", "d.gguf"), 4, 2)
    assert (found.memory, found.acceptance) == ("none", "traversal")
    with pytest.raises(OptionError, match="judges chains"):
        profile().recommended_for(DraftConfig(acceptance="block", num_draft_tokens=1))


def test_calibrations_count_for_the_same_key_only() -> None:
    known = profile()
    key = {"threads": 2, "kernels": ("native", "avx2")}  # JSON makes lists of tuples
    assert known.calibration(key) == TILES
    assert known.calibration(key, "model") == Calibration((1, 64), (0.1, 0.2))
    assert known.calibration(key, "another") is None
    assert known.calibration({**key, "threads": 4}) is None


def test_a_profile_of_another_model_is_refused() -> None:
    profile().check(model="m.gguf", tokenizer="ab")
    with pytest.raises(ProfileError, match=r"made for m\.gguf, and the model is n\.gguf: run foredraft tune"):
        profile().check(model="n.gguf", tokenizer="ab")
    with pytest.raises(ProfileError, match="another vocabulary"):
        profile().check(model="m.gguf", tokenizer="cd")


CALIBRATION = {"num_tokens": [1, 2], "seconds": [1.0, 1.1], "per_position": 0.0, "per_position_token": 0.0}
WRONG_CALIBRATIONS: list[dict[str, Any]] = [
    {"num_tokens": [2, 4]},
    {"num_tokens": [1, 10**9]},  # would be tabulated
    {"num_tokens": [1, math.inf]},
    {"seconds": [1.0, math.inf]},
    {"seconds": [math.nan, 1.0]},
    {"per_position": math.nan},
    {"per_position_token": -1.0},
]


def broken(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The JSON of a profile with another value somewhere."""
    written = replace(profile(), learned={"free": Learned(greedy=Survival().to_json())})
    values = json.loads(json.dumps({"format": 2, **written.to_json()}))
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("learned", "free", "greedy", "all_depths"), [[2.0, 1.0]] * 12),
        (("learned", "free", "greedy", "bins"), []),
        (("learned", "free", "greedy_acceptance"), [3, 1]),
        (("recommended", "num_draft_tokens"), "many"),
        (("learned",), None),
        (("learned", "free", "greedy_gain"), math.nan),
        (("learned", "free", "sampled_gain"), math.inf),
        (("recommended", "drafters"), [1]),
        (("recommended", "draft"), "suffix"),
        (("recommended",), None),
        *((("calibrations",), {"": {**CALIBRATION, **wrong}}) for wrong in WRONG_CALIBRATIONS),
    ],
)
def test_a_file_that_is_none_is_refused_with_a_reason(tmp_path: Path, path: tuple[str, ...], value: Any) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(broken(("calibrations",), {"": CALIBRATION})))
    Profile.read(file)
    file.write_text(json.dumps(broken(path, value)))
    with pytest.raises(ProfileError, match=r"is not a profile of foredraft tune: (?!.* is missing)"):
        Profile.read(file)


def test_what_a_profile_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"format": 2, "model": "m"}')
    with pytest.raises(ProfileError, match="'tokenizer' is missing"):
        Profile.read(tmp_path / "p.json")


@pytest.mark.parametrize("format", [1, 3])
def test_a_profile_of_another_version_is_refused_with_what_to_do(tmp_path: Path, format: int) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(broken(("format",), format)))
    message = rf"p\.json is of another version of foredraft \(format {format}, this one reads 2\): run foredraft tune"
    with pytest.raises(ProfileError, match=message):
        Profile.read(file)


def test_that_no_length_is_recommended_comes_back(tmp_path: Path) -> None:
    """Kind: a length that the planner is to choose is read as a length of 0."""
    replace(profile(), recommended=DraftConfig()).write(tmp_path / "p.json")
    assert Profile.read(tmp_path / "p.json").recommended == DraftConfig()


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot read the profile"):
        Profile.read(tmp_path / "none.json")
    with pytest.raises(ProfileError, match="cannot write"):
        profile().write(tmp_path / "none" / "p.json")
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="is not a profile"):
        Profile.read(tmp_path / "text")
