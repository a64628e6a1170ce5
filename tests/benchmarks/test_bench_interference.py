"""A long prompt arrives while others stream: what is measured is what happens."""

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import figures
from benchmarks.interference import NUM_STREAMS, measure
from foredraft.llm import LLM


def test_streams_go_on_while_a_long_prompt_is_computed(smollm2_path: Path) -> None:
    """Kind: a prompt is computed whole, and all streams wait for it; or what is cancelled keeps its blocks."""
    llm = LLM(smollm2_path, draft="none", threads=2, max_batched_tokens=32)
    found = measure(llm, prompt_tokens=320, max_batched_tokens=32)
    assert found.alone_pause_s > 0
    assert 0 < found.usual_pause_s <= found.longest_pause_s
    assert found.longest_pause_s < found.prompt_s / 2  # a tenth or so; nearly all of it if the prompt is one pass
    assert found.longest_to_budget_pass == pytest.approx(found.longest_pause_s / found.budget_pass_s)
    assert len(found.cancel_s) == NUM_STREAMS + 1
    assert all(0 < seconds < 30 for seconds in found.cancel_s)
    assert llm.decoder.cache.pool.num_used == 0


def test_the_command(smollm2_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "i.json"
    arguments = ["interference", "-m", str(smollm2_path), "--prompt-tokens", "512", "-o", str(output)]
    assert command.main(arguments) == 0
    assert "the longest pause is" in capsys.readouterr().out
    result = json.loads(output.read_text(encoding="utf-8"))
    assert (result["benchmark"], result["prompt_tokens"]) == ("interference", 512)
    assert result["longest_to_budget_pass"] == pytest.approx(result["longest_pause_s"] / result["budget_pass_s"], 1e-3)
    assert str(tmp_path) not in output.read_text(encoding="utf-8")
    rows = figures.interference(result).splitlines()[2:]
    assert len(rows) == 5
    assert f"{1e3 * max(result['cancel_s']):.0f}" in rows[-1]
