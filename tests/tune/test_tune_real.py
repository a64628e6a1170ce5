"""Tuning a real model: exact texts, fair conditions, profiles that load, predictions that hold."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import REAL, assert_refused, runner

from foredraft import LLM
from foredraft.config import DraftConfig
from foredraft.drafters import DelegatingDrafter, Drafter, SequenceView
from foredraft.errors import OptionError
from foredraft.planner import Profile, ProfileError
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams
from foredraft.trace import SequenceStart, Trace
from foredraft.tree import Budget, DraftTree
from foredraft.tune.measure import Measuring
from foredraft.tune.prompts import BUILT_IN
from foredraft.tune.recorded import read
from foredraft.tune.replay import Replay
from foredraft.tune.run import Wanted, tune
from foredraft.tune.settings import PLAIN

SKIP = "skip:28-29"
PROMPTS = (BUILT_IN[1], BUILT_IN[7])
AUTO = replace(PLAIN, drafters=("auto",))


def fixed(drafter: str, number: int) -> DraftConfig:
    return replace(PLAIN, drafters=(drafter,), num_draft_tokens=number)


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
    assert names[:3] == ["none", "auto", f"auto+{SKIP}"]
    assert {"suffix:4", f"{SKIP}:8"} < set(names)
    assert all(figures["equal"] for figures in report["settings"])
    assert report["settings"][0]["speed_up"] == 1.0
    assert len(report["runs"]) == len(names) * len(PROMPTS)
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
    assert set(tuned_llm.methods) >= set(chosen.drafters) - {"auto", "none", SKIP}


def test_what_a_profile_recommends_is_used_unless_something_is_asked_for(
    tuned: tuple[dict[str, Any], Profile], smollm2_path: Path
) -> None:
    _, profile = tuned
    values = {name: getattr(profile, name) for name in profile.__dataclass_fields__}
    fixed = Profile(**values | {"recommended": DraftConfig(drafters=("lookup",), num_draft_tokens=3)})
    used = LLM(smollm2_path, profile=fixed)
    assert "lookup" in used.methods[-1]
    [done] = used.generate("a b c a b c a b c a b", SamplingParams(max_tokens=8, ignore_eos=True))
    assert done.speculation.num_draft_tokens > 0
    assert "lookup" not in LLM(smollm2_path, profile=fixed, draft="suffix").methods
    other = Profile(**values | {"model": "another.gguf"})
    with pytest.raises(ProfileError, match=r"made for another\.gguf"):
        LLM(smollm2_path, profile=other)


@pytest.mark.parametrize("setting", [fixed("suffix", 4), AUTO], ids=lambda config: config.name)
def test_nothing_profits_from_an_earlier_completion(measuring: Measuring, llm: LLM, setting: DraftConfig) -> None:
    prompt = PROMPTS[1]
    first = measuring.complete(measuring.engine(setting), prompt)
    engine = measuring.engine(setting)
    starts: list[int] = []
    traced = llm.with_drafts(
        "none", trace=lambda r: starts.append(r.num_cached_tokens) if isinstance(r, SequenceStart) else None
    )
    for _ in range(2):
        measuring.complete(traced, prompt)
    assert starts == [0, 0]
    if setting != AUTO:
        again = [measuring.complete(engine, prompt) for _ in range(2)]
        assert {len(one.ends) for one in again} == {len(first.ends)}


class Seen(DelegatingDrafter):
    """Notes how much of a text a draft model had still to prefill, each time it was asked."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.uncached: list[int] = []

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.uncached += [self.num_uncached_tokens(sequence) for sequence in sequences]
        return super().propose(sequences, budgets)


def test_a_draft_model_prefills_the_prompt_each_time(llm: LLM) -> None:
    """Kind: the second completion of a prompt is faster, since the draft model knows it."""
    measuring = Measuring(llm, [SKIP], max_tokens=24)
    seen = measuring._models[SKIP, 1] = Seen(measuring._drafter(SKIP))
    engine, at_first = measuring.engine(fixed(SKIP, 2)), []
    for complete in (measuring.complete, measuring.complete, lambda engine, prompt: engine.chat(_chat(prompt))):
        seen.uncached.clear()
        complete(engine, PROMPTS[1])
        at_first.append(seen.uncached[0])
    assert at_first[0] == at_first[1] > 32
    assert at_first[2] < 32, "so that it could have been found"


def _chat(prompt: Prompt) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt.text}]


def test_when_the_time_is_up_no_further_prompt_is_begun(measuring: Measuring) -> None:
    settings = [PLAIN, fixed("suffix", 2)]
    runs = measuring.run(settings, PROMPTS, num_turns=2, progress=lambda done, planned: None, deadline=0.0, least=1)
    assert [run.setting for run in runs] == ["none", "suffix:2"]
    assert {run.prompt for run in runs} == {PROMPTS[0].key}


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
    for name, recorded in (("suffix", "suffix"), ("recycle", "recycle"), (SKIP, "skip")):
        engine = measuring.engine(fixed(name, 4))
        runs = [measuring.complete(engine, prompt) for prompt in PROMPTS]
        measured = sum(run.num_tokens for run in runs) / sum(run.completion.speculation.num_rounds for run in runs)
        predicted = replay.play(fixed(recorded, 4)).mean_acceptance_length
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
    assert "| suffix:4 " in replayed.stdout.decode()
    found = json.loads((tmp_path / "replay.json").read_text())["settings"]
    assert {"suffix:4", "suffix"} <= {one["setting"] for one in found}


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
