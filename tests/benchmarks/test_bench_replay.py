import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.replay import Question
from foredraft.llm import LLM
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams

TEXTS = ("Repeat three times: the tide comes in, the tide goes out.", "Count from one to thirty in words.")


def test_predictions_beside_what_is_measured(
    smollm2_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lengths are those that the engine comes to; speeds depend on the machine, so here they are only there."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(TEXTS) + "\n")
    model = str(smollm2_path)
    modes = "suffix:4,draft:2,suffix+recycle"
    arguments = ["replay", "-m", model, "--draft", model, "--prompts", str(prompts), "--modes", modes]
    assert command.main([*arguments, "--max-tokens", "48", "-o", str(tmp_path / "r.json")]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    assert str(smollm2_path.parent) not in result["command"]
    found = {row["mode"]: row for row in result["modes"]}
    assert list(found) == modes.split(",")
    assert all(row["predicted"] > 0 and row["measured"] > 0 for row in found.values())
    params = SamplingParams(max_tokens=48)
    for mode, draft, number in (("suffix:4", "suffix", 4), ("draft:2", model, 2)):
        llm = LLM(model, draft=draft, num_draft_tokens=number, draft_memory="none")
        told = [llm.chat([{"role": "user", "content": text}], params).speculation for text in TEXTS]
        emitted = sum(one.mean_acceptance_length * one.num_rounds for one in told)
        expected = emitted / sum(one.num_rounds for one in told)
        assert found[mode]["mean_acceptance_length"] == pytest.approx(expected, rel=0.02)
    assert "| `suffix+recycle` |" in capsys.readouterr().out


@pytest.mark.parametrize("mode", ["auto", "auto:4", "suffix+recycle:4", "draft:3"])
def test_modes_that_a_replay_does_not_know(mode: str) -> None:
    with pytest.raises(ValueError, match=r"--modes|--draft"):
        Question(modes=[mode], draft=None, prompts=[Prompt("a", "b", "c")], max_tokens=8)
