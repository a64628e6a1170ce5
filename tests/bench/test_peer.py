import json
from pathlib import Path

import pytest

from foredraft.bench.peer import LlamaCpp, PeerError, parse_batched_bench, parse_bench

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


def test_missing_programs_are_all_named(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="has no llama-bench and no llama-batched-bench"):
        peer(tmp_path).check(["llama-bench", "llama-batched-bench"])
    with pytest.raises(PeerError, match="has no llama-bench;"):
        peer(tmp_path).version()
    with pytest.raises(PeerError, match=r"no such folder: .*nowhere"):
        peer(tmp_path / "nowhere").check(["llama-bench"])


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "llama-bench").write_text("", encoding="utf-8")
    with pytest.raises(PeerError, match=r"llama-bench cannot be run: Permission denied"):
        peer(tmp_path).version()


def test_a_start_is_one_token_without_warm_up(tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", f'echo "$@" > {tmp_path}/arguments')
    assert peer(tmp_path).start().whole_s > 0
    arguments = (tmp_path / "arguments").read_text(encoding="utf-8").split()
    assert arguments[4:] == ["-p", "1", "-n", "0", "-r", "1", "--no-warmup", "-o", "json"]


def test_version_may_come_on_either_stream(tmp_path: Path) -> None:
    program(tmp_path, "llama-bench", "echo 'version: 7 (abc)' >&2; echo 'built with a compiler' >&2")
    assert peer(tmp_path).version() == "version: 7 (abc)"
