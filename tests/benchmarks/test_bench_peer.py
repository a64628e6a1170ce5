import json
from pathlib import Path

import pytest

from benchmarks.peer import (
    LlamaCpp,
    PeerError,
    Server,
    parse_answer,
    parse_batched_bench,
    parse_bench,
    speculation_options,
)

BENCH = [
    {"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 105.5, "samples_ts": [105.5]},
    {"n_prompt": 0, "n_gen": 64, "n_depth": 0, "avg_ts": 29.25, "samples_ts": [29.25]},
]


def program(folder: Path, name: str, text: str) -> None:
    """A stand-in for one of llama.cpp's programs."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def peer(folder: Path) -> LlamaCpp:
    return LlamaCpp(folder, Path("model.gguf"), 2)


def test_bench_output() -> None:
    assert parse_bench(json.dumps(BENCH)) == {"pp512": 105.5, "tg64": 29.25}


def test_batched_bench_output_is_seconds_of_a_step() -> None:
    steps = '{"pp": 8, "tg": 4, "pl": 1, "t_tg": 0.4}\n{"pp": 8, "tg": 4, "pl": 2, "t_tg": 1.0}'
    assert parse_batched_bench(f"main: loading\n{steps}\n") == {1: 0.1, 2: 0.25}


def test_bench_is_run_on_the_model(tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", f"echo \"$@\" > {tmp_path}/arguments; echo '{json.dumps(BENCH)}'")
    assert peer(tmp_path).bench(prompt=512, generate=64) == {"pp512": 105.5, "tg64": 29.25}
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8").split()
    assert arguments == ["-m", "model.gguf", "-t", "2", "-p", "512", "-n", "64", "-r", "1", "-o", "json"]


def test_missing_figure_is_an_error(tmp_path: Path) -> None:
    program(tmp_path, "llama-batched-bench", 'echo \'{"pp": 1, "tg": 4, "pl": 1, "t_tg": 0.4}\'')
    with pytest.raises(PeerError, match=r"no figure for \[8\]"):
        peer(tmp_path).decode_steps([1, 8], context=0, num_steps=4)


def test_failure_is_one_line(tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", "echo first >&2; echo 'no such model' >&2; exit 3")
    with pytest.raises(PeerError, match=r"exit code 3: no such model$"):
        peer(tmp_path).bench(prompt=1, generate=1)


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="llama-bench does not exist"):
        peer(tmp_path).version()


def test_version_may_come_on_either_stream(tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", "echo 'version: 7 (abc)' >&2; echo 'built with a compiler' >&2")
    assert peer(tmp_path).version() == "version: 7 (abc)"


def test_server_that_does_not_start(tmp_path: Path) -> None:
    program(tmp_path, "llama-server", "echo broken; exit 1")
    log = tmp_path / "server.log"
    with (
        pytest.raises(PeerError, match="mode none did not start"),
        Server(peer(tmp_path), "none", draft=None, context=512, log=log),
    ):
        pass
    assert log.read_text(encoding="utf-8") == "broken\n"


def test_modes_of_the_server() -> None:
    assert speculation_options("none", None) == []
    assert speculation_options("ngram-simple", None) == ["--spec-type", "ngram-simple"]
    assert speculation_options("draft:4", Path("d.gguf")) == [
        *("--spec-type", "draft-simple", "-md", "d.gguf"),
        *("--spec-draft-n-max", "4"),
    ]
    with pytest.raises(PeerError, match="--draft"):
        speculation_options("draft", None)


def test_answer_counts_what_follows_the_first_token() -> None:
    timings = {"predicted_n": 16, "predicted_ms": 500.0, "predicted_per_second": 30.0, "draft_n_accepted": 11}
    answer = {"choices": [{"message": {"content": "hello"}}], "timings": timings}
    assert parse_answer(answer) == {
        "text": "hello",
        "num_tokens": 16,
        "tokens_per_s": 30.0,
        "decode_s": 0.5,
        "mean_acceptance_length": 3.75,
    }
