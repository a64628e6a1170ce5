import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.measuring import in_lockstep
from benchmarks.ours import Engine as RealEngine
from benchmarks.records import Records
from benchmarks.speculation import WARM_UP, Answer, SpeculationPlan, missing, planned_cells, run
from benchmarks.summary import report, summary
from foredraft.llm import LLM
from foredraft.prompts import Prompt

PROMPTS = [Prompt(f"{family}/{i}", family, f"prompt {i}") for i, family in enumerate(["code"] * 4 + ["chat"] * 2)]
PLAN = SpeculationPlan(sampled_at=0.8, seeds=(1, 2), num_sampled=2)


def answer(speed: float, *, wrong_on: str = "", log: list[str] | None = None) -> Answer:
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
        }

    return call


def opened(path: Path) -> Records:
    records = Records(path, {"modes": ["none", "lookup"]})
    records.open()
    return records


def test_ratios_are_paired_by_prompt(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    answers = {"foredraft none": answer(10.0), "foredraft lookup": answer(15.0)}
    answers["llama.cpp none"] = answer(12.0)
    run(answers, PROMPTS, PLAN, records)
    found = summary(planned_cells(PROMPTS, PLAN, records))
    assert found["num_different"] == 0
    assert found["num_compared"] == 6 + 2 * 2
    modes = found["greedy"]["families"]["code"]["modes"]
    assert modes["foredraft lookup"]["num"] == 4
    assert modes["foredraft lookup"]["ratio_to_none"] == {"median": 1.5, "low": 1.5, "high": 1.5, "num": 4}
    assert modes["llama.cpp none"]["ratio_to_none"]["median"] == 1.0
    best = found["greedy"]["families"]["all"]["ours_to_best_peer"]
    assert best["best_peer"] == "llama.cpp none"
    assert best["ratio"]["foredraft lookup"]["median"] == pytest.approx(1.25)
    assert list(found["sampled"]["families"]["all"]["modes"]) == ["foredraft none", "foredraft lookup"]
    assert "token ids equal to plain decoding: 10 of 10" in report(found)


def test_what_the_planner_decides_is_set_beside_the_best_fixed_mode(tmp_path: Path) -> None:
    def with_expectation(speed: float, expected_s: float | None) -> Answer:
        def call(text: str, temperature: float, seed: int | None) -> Generator[int, None, dict[str, Any]]:
            run = yield from answer(speed)(text, temperature, seed)
            expected = {
                "expected_tokens": None if expected_s is None else run["tokens_per_s"],
                "expected_s": expected_s,
            }
            return run | {"speculation": expected}

        return call

    records = opened(tmp_path / "r.jsonl")
    modes = {"none": 10.0, "auto": 18.0, "suffix:4": 15.0, "draft:3": 12.0}
    answers = {f"foredraft {m}": with_expectation(v, 0.9 if m == "auto" else None) for m, v in modes.items()}
    run(answers, PROMPTS, SpeculationPlan(), records)
    found = summary(planned_cells(PROMPTS, SpeculationPlan(), records))
    beside = found["greedy"]["families"]["code"]["against_fixed"]
    assert beside["best_fixed"] == "foredraft suffix:4"
    assert list(beside["ratio"]) == ["foredraft auto"]
    assert beside["ratio"]["foredraft auto"]["median"] == pytest.approx(1.2)
    assert beside["to_expected"]["foredraft auto"]["median"] == pytest.approx(0.9)
    assert "foredraft auto: 1.20 of foredraft suffix:4, the best fixed one here, 0.90 of what" in report(found)


def test_a_difference_is_found_and_placed(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    answers = {"foredraft none": answer(10.0), "foredraft lookup": answer(15.0, wrong_on="prompt 4")}
    plan = SpeculationPlan()
    run(answers, PROMPTS, plan, records)
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
        return answer(15.0)(text, temperature, seed)

    records = opened(tmp_path / "r.jsonl")
    with pytest.raises(KeyboardInterrupt):
        run({"foredraft none": answer(10.0), "foredraft lookup": interrupted}, PROMPTS, PLAN, records)
    assert [cell["prompt"] for cell in records.cells] == ["code/0", "code/1", "code/2"]
    log: list[str] = []
    again = opened(tmp_path / "r.jsonl")
    whole = {"foredraft none": answer(10.0), "foredraft lookup": answer(15.0, log=log)}
    run(whole, PROMPTS, PLAN, again)
    assert log == [WARM_UP, *(f"prompt {i}" for i in (3, 4, 5, 0, 0, 3, 3))]
    assert not missing(PROMPTS, PLAN, again)


def test_only_what_is_planned_is_reported(tmp_path: Path) -> None:
    records = opened(tmp_path / "r.jsonl")
    run({"foredraft none": answer(10.0)}, PROMPTS, SpeculationPlan(), records)
    assert len(planned_cells(PROMPTS[:2], SpeculationPlan(), records)) == 2


@pytest.mark.parametrize(("sampled_at", "seeds"), [(0.8, ()), (None, (1,)), (0.0, (1,)), (float("nan"), (1,))])
def test_sampled_pass_needs_temperature_and_seeds(sampled_at: float | None, seeds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="--temperature"):
        SpeculationPlan(sampled_at=sampled_at, seeds=seeds)


class Engine:
    """Stands in for `ours.Engine`: drafting with `broken` changes the tokens."""

    def __init__(self, llm: None, mode: str, **_: Any) -> None:
        self.call = answer(10.0, wrong_on="text" if mode == "broken" else "")

    def answer(
        self, text: str, *, max_tokens: int, temperature: float, seed: int | None
    ) -> Generator[int, None, dict[str, Any]]:
        return self.call(text, temperature, seed)


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    model, prompts = tmp_path / "model.gguf", tmp_path / "prompts.jsonl"
    model.write_bytes(b"x")
    prompts.write_text('{"question_id": 1, "family": "f", "turns": ["text"]}\n', encoding="utf-8")
    monkeypatch.setattr(command, "Engine", Engine)
    monkeypatch.setattr(command, "LLM", lambda *_, **__: None)
    monkeypatch.setattr(command, "built_in_path", Path)
    kept = ["--records", str(tmp_path / "r.jsonl"), "-o", str(tmp_path / "o.json")]
    return ["speculation", "-m", str(model), "--prompts", str(prompts), *kept]


def test_command_writes_its_section_and_keeps_the_others(arguments: list[str], tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    output.write_text('{"kernels": {"kept": true}}', encoding="utf-8")
    assert command.main([*arguments, "--modes", "lookup", "--temperature", "0.8", "--seeds", "1,2"]) == 0
    written = json.loads(output.read_text(encoding="utf-8"))
    assert written["kernels"] == {"kept": True}
    assert written["speculation"]["num_compared"] == 3
    assert str(tmp_path) not in output.read_text(encoding="utf-8")


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


def test_modes_are_ways_of_drafting(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, draft="none")
    expected = None
    for mode, methods in [
        ("none", ("none",)),
        ("lookup:3", ("lookup",)),
        ("lookup+draft:2", ("lookup", "model:smollm2-135m")),
        ("auto+draft", ("suffix", "recycle", "prediction", "model:smollm2-135m")),
    ]:
        engine = RealEngine(llm, mode, draft=str(smollm2_path))
        assert tuple(name for name in engine._llm._planner.methods if name != "grammar") == methods
        steps = engine.answer("Count to twenty.", max_tokens=12, temperature=0.0, seed=None)
        [done] = in_lockstep({mode: steps})[0].values()
        assert done["num_tokens"] == len(done["token_ids"]) == 12
        assert done["decode_s"] > 0.0
        expected = expected or done["token_ids"]
        assert done["token_ids"] == expected
    with pytest.raises(ValueError, match="needs --draft"):
        RealEngine(llm, "auto+draft", draft=None)
