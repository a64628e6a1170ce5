"""`foredraft bench kernels`: on real weights, briefly; the figures themselves are for machines left alone."""

import json
from pathlib import Path

import pytest
from helpers.command_line import Run, assert_refused

SHORT = ("--rounds", "1", "--repeats", "1", "--sizes", "1,2", "--contexts", "0")


def test_the_json_object(real: Run, tmp_path: Path, smollm2_path: Path) -> None:
    output = tmp_path / "figures.json"
    result = real("bench", "kernels", "-m", str(smollm2_path), *SHORT, "--json", "-o", str(output))
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == figures
    assert result.stderr.decode().splitlines() == ["start 1 of 1 done", "round 1 of 1 done"]
    size = smollm2_path.stat().st_size
    assert figures["model"]["num_bytes"] == size
    assert 0.9 * size < figures["num_weight_bytes"] < 1.1 * size
    ours = figures["foredraft"]
    assert set(ours["forward"]["0"]["relative"]) == {"1", "2"}
    for found in (ours["prompt_tokens_per_s"], ours["decode_tokens_per_s"], ours["forward"]["0"]["one_token_s"]):
        assert found["num"] == 1
        assert found["median"] > 0
    assert 0 < ours["of_bandwidth_limit"]["median"] < 2
    assert ours["rounds"]["verify"]["num_tokens"] == 8
    assert figures["start_up"]["foredraft"]["ready_s"]["median"] > 0
    assert figures["llama.cpp"] is None
    assert str(smollm2_path.parent) not in result.stdout.decode()


def test_bench_alone_shows_its_commands(real: Run) -> None:
    result = real("bench")
    assert result.returncode == 0
    assert b"kernels" in result.stdout


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        (["--rounds", "0"], ["--rounds must be at least 1, got 0"]),
        (["--repeats", "0"], ["--repeats must be at least 1, got 0"]),
        (["--threads", "0"], ["--threads must be at least 1, got 0"]),
        (["--sizes", "2,4"], ["--sizes", "hold 1"]),
        (["--sizes", "1,,x"], ["--sizes must be integers", "1,2,4"]),
        (["--contexts", "-1"], ["--contexts"]),
        (["--contexts", "0,8192"], ["--contexts: 8192", "context of 8192", "longest is 8160"]),
        (["--peer-dir", "nowhere"], ["no such folder: nowhere"]),
        (["--peer-dir", "."], ["has no llama-bench and no llama-batched-bench"]),
        (["-o", "nowhere/figures.json"], ["no such folder: nowhere"]),
        (["-o", "."], ["is a folder"]),
        (["-m", "nowhere.gguf"], ["nowhere.gguf"]),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    real: Run, smollm2_path: Path, wrong: list[str], parts: list[str]
) -> None:
    assert_refused(real("bench", "kernels", "-m", str(smollm2_path), *wrong), *parts)


def test_a_peer_needs_a_file_that_it_can_read(real: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert_refused(real("bench", "kernels", "-m", "./folder", "--peer-dir", "."), "--peer-dir needs a .gguf model")
