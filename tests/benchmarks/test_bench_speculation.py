import json
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.modes import config_of
from benchmarks.records import Records
from benchmarks.speculation import WARM_UP, Complete, SpeculationPlan, missing, ours, planned_cells, run
from benchmarks.summary import report, summary
from foredraft.bench.measuring import in_lockstep
from foredraft.config import DraftConfig
from foredraft.engine import Chunk, Completion, Speculation, Timings, Usage
from foredraft.llm import LLM
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams

PROMPTS = [Prompt(f"{family}/{i}", family, f"prompt {i}") for i, family in enumerate(["code"] * 4 + ["chat"] * 2)]
PLAN = SpeculationPlan(sampled_at=0.8, seeds=(1, 2), num_sampled=2)
TOLD = {"num_rounds": 2, "draft_s": 0.003, "accept_s": 0.001, "expected_tokens": None, "expected_s": None}


def mode(speed: float, *, wrong_on: str = "", log: list[str] | None = None) -> Complete:
    """A mode of a given speed, whose tokens depend on prompt, temperature and seed only."""

    def call(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
        if log is not None:
            log.append(text)
        yield 1
        last = -1 if text == wrong_on else round(temperature * 10)
        ids = [ord(text[-1]), seed or 0, last]
        return {
            "text": f"{ids}",
            "token_ids": ids,
            "num_tokens": 3,
            "tokens_per_s": speed * (1 + ord(text[-1]) % 7),
            "decode_s": 1.0,
            "mean_acceptance_length": speed / 10,
            "speculation": {**TOLD, "speedup": speed / 20},
        }

    return call


def opened(path: Path) -> Records:
    records = Records(path, {"modes": ["none", "lookup"]})
    records.open()
    return records


def test_ratios_are_paired_by_prompt(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    modes = {"foredraft none": mode(10.0), "foredraft lookup": mode(15.0)}
    modes["llama.cpp none"] = mode(12.0)
    run(modes, PROMPTS, PLAN, records)
    found = summary(planned_cells(PROMPTS, PLAN, records))
    assert found["num_different"] == 0
    assert found["num_compared"] == 6 + 2 * 2
    modes = found["greedy"]["families"]["code"]["modes"]
    assert modes["foredraft lookup"]["num"] == 4
    assert modes["foredraft lookup"]["speed_up"] == {"median": 1.5, "low": 1.5, "high": 1.5, "num": 4}
    assert modes["llama.cpp none"]["speed_up"]["median"] == 1.0
    best = found["greedy"]["families"]["all"]["ours_to_best_peer"]
    assert best["best_peer"] == "llama.cpp none"
    assert best["ratio"]["foredraft lookup"]["median"] == pytest.approx(1.25)
    assert list(found["sampled"]["families"]["all"]["modes"]) == ["foredraft none", "foredraft lookup"]
    assert "token ids equal to plain decoding: 10 of 10" in report(found)


def test_what_the_planner_decides_is_set_beside_the_best_fixed_mode(tmp_path: Path) -> None:
    def with_expectation(speed: float, expected_s: float | None) -> Complete:
        def call(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
            run = yield from mode(speed)(text, temperature, seed)
            expected = {
                "expected_tokens": None if expected_s is None else run["tokens_per_s"],
                "expected_s": expected_s,
            }
            return run | {"speculation": run["speculation"] | expected}

        return call

    records = opened(tmp_path / "r.jsonl")
    speeds = {"none": 10.0, "auto": 18.0, "suffix:4": 15.0, "draft:3": 12.0}
    modes = {f"foredraft {m}": with_expectation(v, 0.9 if m == "auto" else None) for m, v in speeds.items()}
    run(modes, PROMPTS, SpeculationPlan(), records)
    found = summary(planned_cells(PROMPTS, SpeculationPlan(), records))
    beside = found["greedy"]["families"]["code"]["against_fixed"]
    assert beside["best_fixed"] == "foredraft suffix:4"
    assert list(beside["ratio"]) == ["foredraft auto"]
    assert beside["ratio"]["foredraft auto"]["median"] == pytest.approx(1.2)
    assert beside["to_expected"]["foredraft auto"]["median"] == pytest.approx(0.9)
    assert beside["estimated"]["foredraft auto"]["median"] == pytest.approx(0.5)  # 18 / 20, to 18 / 10
    assert "foredraft auto: 1.20 of foredraft suffix:4, the best fixed one here, 0.90 of what" in report(found)
    assert "its own estimate of the speed-up is 0.50 of the measured one" in report(found)
    outside = found["greedy"]["families"]["code"]["modes"]["foredraft auto"]["outside_s"]
    assert outside["median"] == pytest.approx(0.002)


def test_a_difference_is_found_and_placed(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    modes = {"foredraft none": mode(10.0), "foredraft lookup": mode(15.0, wrong_on="prompt 4")}
    plan = SpeculationPlan()
    run(modes, PROMPTS, plan, records)
    found = summary(planned_cells(PROMPTS, plan, records))
    assert found["different"] == [
        {
            "prompt": "chat/4",
            "temperature": 0.0,
            "seed": None,
            "mode": "foredraft lookup",
            "first_difference": 2,
        }
    ]
    assert "DIFFERENT: foredraft lookup on chat/4" in report(found)


def test_an_interrupted_run_measures_only_what_is_missing(tmp_path: Path) -> None:
    def interrupted(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
        if text == "prompt 3":
            raise KeyboardInterrupt
        return mode(15.0)(text, temperature, seed)

    records = opened(tmp_path / "r.jsonl")
    with pytest.raises(KeyboardInterrupt):
        run({"foredraft none": mode(10.0), "foredraft lookup": interrupted}, PROMPTS, PLAN, records)
    assert [cell["prompt"] for cell in records.cells] == ["code/0", "code/1", "code/2"]
    log: list[str] = []
    again = opened(tmp_path / "r.jsonl")
    whole = {"foredraft none": mode(10.0), "foredraft lookup": mode(15.0, log=log)}
    run(whole, PROMPTS, PLAN, again)
    assert log == [WARM_UP, *(f"prompt {i}" for i in (3, 4, 5, 0, 0, 4, 4))]  # the sampled ones are of all families
    assert not missing(PROMPTS, PLAN, again)


def test_only_what_is_planned_is_reported(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    run({"foredraft none": mode(10.0)}, PROMPTS, SpeculationPlan(), records)
    assert len(planned_cells(PROMPTS[:2], SpeculationPlan(), records)) == 2


@pytest.mark.parametrize(("sampled_at", "seeds"), [(0.8, ()), (None, (1,)), (0.0, (1,)), (float("nan"), (1,))])
def test_sampled_pass_needs_temperature_and_seeds(sampled_at: float | None, seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="--temperature"):
        SpeculationPlan(sampled_at=sampled_at, seeds=seeds)


class FakeLLM:
    """Says three tokens that depend on prompt, temperature and seed; drafting with "broken" changes them."""

    has_chat_template = False

    def __init__(self, *_: object, config: DraftConfig | None = None, **__: object) -> None:
        self.config = config or DraftConfig(drafters=("none",))

    def with_drafts(self, config: DraftConfig) -> "FakeLLM":
        return FakeLLM(config=config)

    def reset_prefix_cache(self) -> None:
        """There is none."""

    def stepwise(self, prompt: str, params: SamplingParams) -> Iterator[Chunk]:
        last = -1 if self.config.drafters == ("broken",) and prompt == "text" else round(params.temperature * 10)
        ids = (ord(prompt[-1]), params.seed or 0, last)
        speculation = Speculation(
            methods=(),
            lossless=True,
            num_rounds=3,
            num_draft_tokens=0,
            num_accepted_tokens=0,
            num_emitted_tokens=3,
            accepted_per_position=(),
            reason="",
        )
        timings = Timings(load_s=0, prefill_s=0, decode_s=0.5, num_prompt_tokens=1, num_completion_tokens=3)
        completion = Completion(
            text=f"{ids}",
            token_ids=ids,
            finish_reason="length",
            usage=Usage(prompt_tokens=1, completion_tokens=3),
            timings=timings,
            speculation=speculation,
        )
        yield Chunk("x", ids[:1])
        yield Chunk("y", ids[1:], completion)


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    model, prompts = tmp_path / "model.gguf", tmp_path / "prompts.jsonl"
    model.write_bytes(b"x")
    prompts.write_text('{"question_id": 1, "family": "f", "turns": ["text"]}\n', encoding="utf-8")
    monkeypatch.setattr(command, "LLM", FakeLLM)
    kept = ["--records", str(tmp_path / "r.jsonl"), "-o", str(tmp_path / "o.json")]
    return ["speculation", "-m", str(model), "--prompts", str(prompts), *kept]


def test_the_command_writes_a_result_that_says_where_it_comes_from(arguments: list[str], tmp_path: Path) -> None:
    assert command.main([*arguments, "--modes", "lookup", "--temperature", "0.8", "--seeds", "1,2"]) == 0
    text = (tmp_path / "o.json").read_text(encoding="utf-8")
    written = json.loads(text)
    assert written["num_compared"] == 3
    assert (written["benchmark"], written["model"]) == ("speculation", {"name": "model.gguf", "num_bytes": 1})
    assert written["command"].startswith("python -m benchmarks speculation -m model.gguf --prompts prompts.jsonl")
    assert {"processor", "load_average_at_start", "time"} <= set(written["machine"])
    assert "commit" in written
    assert str(tmp_path) not in text


def test_command_fails_when_tokens_differ(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*arguments, "--modes", "lookup,broken"]) == 1
    assert "foredraft broken on f/1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "wrong",
    [["--peer-modes", "none"], ["--temperature", "0.8"], ["--prompts", "/nowhere.jsonl"]],
)
def test_wrong_options_are_one_line(arguments: list[str], wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*arguments, *wrong]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_modes_are_ways_of_drafting() -> None:
    def config(*drafters: str, number: int | None = None) -> DraftConfig:
        return DraftConfig(drafters=drafters, num_draft_tokens=number, memory="none")

    assert config_of("none", draft=None) == config("none")
    assert config_of("lookup:3", draft=None) == config("lookup", number=3)
    assert config_of("lookup+draft:2", draft="d.gguf") == config("lookup", "d.gguf", number=2)
    assert config_of("auto+draft", draft="d.gguf") == config("auto", "d.gguf")
    with pytest.raises(ValueError, match="needs --draft"):
        config_of("auto+draft", draft=None)
    with pytest.raises(ValueError, match="must be a number"):
        config_of("lookup:x", draft=None)


def test_all_modes_say_the_same(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, draft="none")
    configs = {mode: config_of(mode, draft=str(smollm2_path)) for mode in ("none", "lookup:3", "lookup+draft:2")}
    runs = in_lockstep(
        {
            mode: ours(llm.with_drafts(config), max_tokens=12)("Count to twenty.", 0.0, None)
            for mode, config in configs.items()
        }
    )
    for run_of_mode in runs.values():
        assert run_of_mode["num_tokens"] == len(run_of_mode["token_ids"]) == 12
        assert run_of_mode["seconds"] > run_of_mode["decode_s"] > 0
        assert run_of_mode["token_ids"] == runs["none"]["token_ids"]
    assert runs["lookup+draft:2"]["mean_acceptance_length"] > 2  # the target drafts for itself
