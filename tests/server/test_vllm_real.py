"""A real vLLM behind `foredraft serve --engine vllm`: the same text whoever drafts. Only where vLLM is installed."""

import contextlib
import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from helpers.tiny import TinyModel

pytestmark = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")

PROMPT = "the cat sat on the mat. the cat sat on the mat. the cat"
START_S = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # vLLM has no attention for the narrow heads of other tests.
    model = TinyModel(seed=1, width=128, num_heads=2, num_kv_heads=1, head_width=64)
    return model.write_folder(tmp_path_factory.mktemp("vllm") / "tiny")


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server, which ends in good order."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = folder.parent / f"{port}.log"
    command = [sys.executable, "-P", "-m", "foredraft.cli.main", "serve", "--engine", "vllm", "-m", str(folder)]
    command += ["--port", str(port), "--max-running", "4", "--kv-memory", "64M", "--api-key", "k", *options]
    # In float32, so that rounding does not depend on how many tokens a pass has.
    command += ["--", "--dtype", "float32", "--enforce-eager"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment)
    try:
        until = time.monotonic() + START_S
        while True:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            time.sleep(0.5)
        yield f"http://127.0.0.1:{port}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def text(url: str, prompt: str = PROMPT) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": 120, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{url}/v1/completions", json=body, headers={"Authorization": "Bearer k"}, timeout=300)
    return str(answer.raise_for_status().json()["choices"][0]["text"])


def counted(url: str) -> dict[str, float]:
    """vLLM's own metrics of drafting."""
    found = re.findall(
        r"^vllm:spec_decode_num_(\w+)_total\{.*\} (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE
    )
    return {name: float(value) for name, value in found if name in ("draft_tokens", "accepted_tokens")}


@pytest.fixture(scope="module")
def plain(folder: Path) -> str:
    with served(folder) as url:
        assert httpx.post(f"{url}/v1/completions", json={"model": "tiny", "prompt": "a"}).status_code == 401
        assert not counted(url)
        return text(url)


def test_our_proposer_changes_nothing_but_the_number_of_passes(folder: Path, plain: str) -> None:
    with served(folder, "--draft", "suffix", "--num-draft-tokens", "8") as url:
        assert text(url) == plain
        first = counted(url)
        assert 10 <= first["accepted_tokens"] < first["draft_tokens"]
        assert text(url) == plain
        second = counted(url)
    # The whole text has been there before, in a sequence that is over.
    assert second["accepted_tokens"] - first["accepted_tokens"] > 100


def test_a_draft_model_is_vllms_own_affair(folder: Path, plain: str) -> None:
    with served(folder, "--draft", str(folder), "--num-draft-tokens", "3") as url:
        assert text(url) == plain
        counts = counted(url)
    assert counts["accepted_tokens"] == counts["draft_tokens"] >= 90
