from pathlib import Path

import pytest

from benchmarks.server import Server, parse_completion, speculation_options
from foredraft.bench.peer import LlamaCpp, PeerError


def program(folder: Path, name: str, text: str) -> None:
    """A stand-in for one of llama.cpp's programs."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def peer(folder: Path) -> LlamaCpp:
    return LlamaCpp(folder, Path("model.gguf"), 2)


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


def test_a_completion_counts_what_follows_the_first_token() -> None:
    timings = {"predicted_n": 16, "predicted_ms": 500.0, "predicted_per_second": 30.0, "draft_n_accepted": 11}
    completion = {"choices": [{"message": {"content": "hello"}}], "timings": timings}
    assert parse_completion(completion) == {
        "text": "hello",
        "num_tokens": 16,
        "tokens_per_s": 30.0,
        "decode_s": 0.5,
        "mean_acceptance_length": 3.75,
    }
