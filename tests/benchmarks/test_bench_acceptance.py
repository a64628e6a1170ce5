import json
from pathlib import Path

import numpy as np
import pytest
from helpers.engines import tiny_file

from benchmarks import __main__ as command
from benchmarks.acceptance import rates, report, summary
from foredraft.kernels.reference import ReferenceKernels
from foredraft.sampling import SamplingParams, filtered_probs
from foredraft.testing import TableModel

V = 12
TARGET, OTHER = TableModel(1, V, seed=1), TableModel(1, V, seed=2)
PARAMS = SamplingParams(temperature=1.0)


def mean_rates(draft: TableModel, *, params: SamplingParams = PARAMS, num_seeds: int = 40) -> dict[str, float]:
    found = [
        rates(TARGET.logits([t]), draft.logits([t]), [t] * (t + 1), params, ReferenceKernels(), num_seeds)
        for t in range(V)
    ]
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def test_rates_are_those_of_the_theory() -> None:
    found = mean_rates(OTHER)
    coupled, overlap = [], []
    for token in range(V):
        p, q = (filtered_probs(model.logits([token]), PARAMS) for model in (TARGET, OTHER))
        coupled.append(sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in range(V)))
        overlap.append(np.minimum(p, q).sum())
    assert found["optimum"] == pytest.approx(np.mean(overlap))
    assert found["coupled 1"] == pytest.approx(np.mean(coupled), abs=0.06)
    assert found["coupled 1"] < found["optimum"]
    assert found["coupled 1"] < found["coupled 2"] < found["coupled 4"] < 1
    assert found["optimum"] < found["tree 2"] < found["tree 4"] < 1
    assert found["independent"] < found["greedy"] + 0.1 < 1


def test_a_model_that_drafts_for_itself_is_always_right_where_it_can_be() -> None:
    found = mean_rates(TARGET, params=SamplingParams(temperature=1.0, top_p=0.8), num_seeds=5)
    for name in ("optimum", "coupled 1", "coupled 4", "tree 4"):
        assert found[name] == pytest.approx(1.0, abs=1e-9)
    assert found["independent"] < found["greedy"] < 1


def test_means_are_over_places_not_over_prompts() -> None:
    names = mean_rates(OTHER, num_seeds=1)
    records = [
        {"prompt": "a/1", "family": "a", "num_places": 10, **dict.fromkeys(names, 1.0)},
        {"prompt": "b/1", "family": "b", "num_places": 30, **dict.fromkeys(names, 0.0)},
    ]
    result = summary(records)
    assert result["families"]["all"]["optimum"] == 0.25
    assert list(result["families"]) == ["a", "b", "all"]
    assert report(result).count("\n") == 4


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"question_id": 1, "family": "chat", "turns": ["and then the"]}))
    output = tmp_path / "out.json"
    arguments = ["acceptance", "-m", tiny_file(), "--draft", tiny_file(seed=1), "--prompts", prompts, "-o", output]
    arguments += ["--max-tokens", 6, "--num-seeds", 3, "--context-length", 128]
    assert command.main([str(argument) for argument in arguments]) == 0
    found = json.loads(output.read_text())
    assert found["benchmark"] == "acceptance"
    assert 1 <= found["families"]["all"]["num_places"] <= 6
    assert found["draft"]
    assert "| chat" in capsys.readouterr().out
    assert command.main([*map(str, arguments), "--temperature", "0"]) == 2
