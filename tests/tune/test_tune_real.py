"""Tuning a real model: exact texts, fair conditions, profiles that load, predictions that hold."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import REAL, assert_refused, runner

from foredraft import LLM
from foredraft.errors import OptionError
from foredraft.planner import Profile, ProfileError, Recommended
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams
from foredraft.trace import SequenceStart, Trace
from foredraft.tune.measure import Measuring
from foredraft.tune.prompts import BUILT_IN
from foredraft.tune.replay import Replay, read
from foredraft.tune.run import Wanted, tune
from foredraft.tune.settings import PLAIN, Setting

SKIP = "skip:28-29"
PROMPTS = (BUILT_IN[1], BUILT_IN[7])


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, draft="none")


@pytest.fixture(scope="module")
def measuring(llm: LLM) -> Measuring:
    return Measuring(llm, [SKIP], max_tokens=24)


@pytest.fixture(scope="module")
def tuned(llm: LLM) -> tuple[dict[str, Any], Profile]:
    wanted = Wanted(methods=("suffix",), models=(SKIP,), prompts=PROMPTS, max_tokens=6, quick=True)
    said: list[str] = []
    done: list[tuple[int, int]] = []
    found = tune(llm, wanted, announce=said.append, progress=lambda *now: done.append(now))
    assert len(said) == 1
    assert "about" in said[0]
    assert done[-1][0] == done[-1][1] == len(done)
    return found


def test_all_settings_say_the_same_and_plain_is_one(tuned: tuple[dict[str, Any], Profile]) -> None:
    report, _ = tuned
    names = [figures["setting"] for figures in report["settings"]]
    assert names[:3] == ["none", "auto", f"auto with {SKIP}"]
    assert {"suffix 4", f"{SKIP} 8"} < set(names)
    assert all(figures["equal"] for figures in report["settings"])
    assert report["settings"][0]["to_plain"] == 1.0
    assert len(report["answers"]) == len(names) * len(PROMPTS)
    assert set(report["cost"]) == {"", "skip"}
    json.dumps(report, allow_nan=False)


def test_the_profile_loads_and_changes_nothing_in_the_text(
    tuned: tuple[dict[str, Any], Profile], llm: LLM, smollm2_path: Path, tmp_path: Path
) -> None:
    _, profile = tuned
    assert {"suffix", "recycle"} <= set(profile.learned)
    profile.write(tmp_path / "p.json")
    tuned_llm = LLM(smollm2_path, profile=tmp_path / "p.json")
    params = SamplingParams(max_tokens=16, ignore_eos=True)
    [ours] = tuned_llm.generate("One, two, three, one, two, three, one,", params)
    [plain] = llm.generate("One, two, three, one, two, three, one,", params)
    assert ours.token_ids == plain.token_ids
    chosen = Profile.read(tmp_path / "p.json").recommended
    assert set(tuned_llm.methods) >= set(chosen.draft) - {"auto", "none", SKIP}


def test_what_a_profile_recommends_is_used_unless_something_is_asked_for(
    tuned: tuple[dict[str, Any], Profile], smollm2_path: Path
) -> None:
    _, profile = tuned
    values = {name: getattr(profile, name) for name in profile.__dataclass_fields__}
    fixed = Profile(**values | {"recommended": Recommended(draft=("lookup",), num_draft_tokens=3)})
    used = LLM(smollm2_path, profile=fixed)
    assert "lookup" in used.methods[-1]
    [done] = used.generate("a b c a b c a b c a b", SamplingParams(max_tokens=8, ignore_eos=True))
    assert done.speculation.num_draft_tokens > 0
    assert "lookup" not in LLM(smollm2_path, profile=fixed, draft="suffix").methods
    other = Profile(**values | {"model": "another.gguf"})
    with pytest.raises(ProfileError, match=r"made for another\.gguf"):
        LLM(smollm2_path, profile=other)


@pytest.mark.parametrize("setting", [Setting(method="suffix", num_draft_tokens=4), Setting(method="auto")])
def test_nothing_profits_from_an_earlier_answer(measuring: Measuring, llm: LLM, setting: Setting) -> None:
    prompt = PROMPTS[1]
    first = measuring.answer(measuring.engine(setting), setting, prompt, turn=0)
    engine = measuring.engine(setting)
    starts: list[int] = []
    traced = llm.with_drafts(
        "none", trace=lambda r: starts.append(r.num_cached_tokens) if isinstance(r, SequenceStart) else None
    )
    for _ in range(2):
        measuring.answer(traced, Setting(method=PLAIN), prompt, turn=0)
    assert starts == [0, 0]
    if setting.method == "suffix":
        again = [measuring.answer(engine, setting, prompt, turn=0) for _ in range(2)]
        assert {one.num_rounds for one in again} == {first.num_rounds}


def test_a_draft_model_reads_the_prompt_each_time(measuring: Measuring) -> None:
    setting = Setting(method="skip", models=(SKIP,), num_draft_tokens=2)
    pool = measuring._drafter(SKIP, 1)._decoder.cache.pool  # type: ignore[attr-defined]
    measuring.answer(measuring.engine(setting), setting, PROMPTS[1], turn=0)
    assert pool.num_kept > 0
    measuring._drafter(SKIP, 1).forget_texts()  # type: ignore[attr-defined]
    assert (pool.num_kept, pool.num_used) == (0, 0)


def test_when_the_time_is_up_no_further_prompt_is_begun(measuring: Measuring) -> None:
    settings = [Setting(method=PLAIN), Setting(method="suffix", num_draft_tokens=2)]
    answers = measuring.run(settings, PROMPTS, num_turns=2, progress=lambda done, planned: None, deadline=0.0, least=1)
    assert [answer.setting for answer in answers] == ["none", "suffix 2"]
    assert {answer.prompt for answer in answers} == {PROMPTS[0].key}


def test_prompts_of_random_tokens_are_refused(measuring: Measuring, llm: LLM) -> None:
    measuring.check_natural(BUILT_IN)
    ids = np.random.default_rng(0).integers(1000, llm.tokenizer.vocab_size - 200, 48)
    nonsense = Prompt("x/1", "x", llm.tokenizer.decode(ids.tolist()))
    with pytest.raises(OptionError, match="x/1 looks like random tokens"):
        measuring.check_natural([PROMPTS[0], nonsense])


def test_predictions_are_within_a_tenth_of_measured_runs(measuring: Measuring) -> None:
    trace = Trace()
    measuring.record(["suffix", "recycle"], PROMPTS, trace)
    replay = Replay(read(trace))
    settings = [
        Setting(method="suffix", num_draft_tokens=4),
        Setting(method="recycle", num_draft_tokens=4),
        Setting(method="skip", models=(SKIP,), num_draft_tokens=4),
    ]
    for setting in settings:
        engine = measuring.engine(setting)
        answers = [measuring.answer(engine, setting, prompt, turn=0) for prompt in PROMPTS]
        measured = sum(len(a.token_ids) for a in answers) / sum(a.num_rounds for a in answers)
        predicted = replay.fixed(setting.method, 4).mean_acceptance_length
        assert predicted == pytest.approx(measured, rel=1e-9)


def test_the_commands(smollm2_path: Path, tmp_path: Path) -> None:
    run = runner([*REAL, "tune", "-m", str(smollm2_path)], tmp_path)
    few = ("--draft", "suffix", "--max-tokens", "6", "--quick", "--prompts", "p.txt")
    (tmp_path / "p.txt").write_text("Say hello, hello, hello.\nSay goodbye.\n")
    done = run(*few, "--html", "t.html", "--profile", "p.json", "-o", "t.json")
    assert done.returncode == 0, done.stderr
    assert "use: --draft" in done.stdout.decode()
    assert "about" in done.stderr.decode()
    assert json.loads((tmp_path / "t.json").read_text())["plan"]["num_prompts"] == 2
    assert (tmp_path / "t.html").read_text().startswith("<!DOCTYPE html>")
    answer = runner([*REAL, "generate", "-m", str(smollm2_path), "-q", "--max-tokens", "4"], tmp_path)
    assert answer("--profile", "p.json", "hello").stdout == answer("--draft", "none", "hello").stdout
    assert_refused(answer("--profile", "p.txt", "hello"), "p.txt is not a profile")
    assert run(*few, "--record", "r.jsonl", "-q").returncode == 0
    replayed = runner([*REAL, "tune"], tmp_path)("--replay", "r.jsonl", "-o", "replay.json")
    assert replayed.returncode == 0, replayed.stderr
    assert "| suffix 4 " in replayed.stdout.decode()
    found = json.loads((tmp_path / "replay.json").read_text())["settings"]
    assert {"suffix 4", "auto of suffix"} <= {one["setting"] for one in found}


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--draft", "none"], ["--draft none is measured in any case"]),
        (["--draft", "sufix"], ["unknown draft 'sufix'"]),
        (["--minutes", "0"], ["--minutes"]),
        (["--max-tokens", "0"], ["--max-tokens"]),
        (["--prompts", "none.txt"], ["cannot read the prompts"]),
        (["--html", "none/t.html"], ["--html: no such folder"]),
        (["--profile", "none/p.json"], ["--profile: no such folder"]),
        (["--replay", "r.jsonl"], ["--replay", "--model means nothing"]),
        (["--record", "r.jsonl", "--html", "t.html"], ["--record", "--html means nothing"]),
        (["--record", "r.jsonl", "--json"], ["--record", "--json means nothing"]),
        (["--record", "r.jsonl", "--replay", "r.jsonl"], ["means nothing"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_loaded(
    options: list[str], parts: list[str], tmp_path: Path
) -> None:
    assert_refused(runner([*REAL, "tune", "-m", "none.gguf", "-q"], tmp_path)(*options), *parts)


def test_a_recording_is_replayed_without_a_model(tmp_path: Path) -> None:
    """Kind: an option is silently without effect."""
    replay = runner([*REAL, "tune", "--replay", "none.jsonl"], tmp_path)
    assert_refused(replay(), "cannot read the trace")
    for option in (["--max-tokens", "4"], ["--draft", "suffix"], ["--html", "t.html"]):
        assert_refused(replay(*option), f"{option[0]} means nothing")
