"""`foredraft serve`, as a process: what it prints, how it ends, and what it refuses."""

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.engines import tiny_file

COMMAND = [sys.executable, "-P", "-m", "foredraft.cli.main", "serve"]


@contextlib.contextmanager
def started(*options: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server process, its address, and the line with curl."""
    process = subprocess.Popen(
        [*COMMAND, "--port", "0", *options], stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    assert process.stderr is not None
    try:
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("curl "):
                break
        assert len(lines) >= 2, lines
        yield process, lines[-2].partition("chat at ")[2].split("/ ")[0], lines[-1]
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def ask(url: str, **more: Any) -> dict[str, Any]:
    return {"url": f"{url}/v1/completions", "json": {"model": "m", "prompt": "ab", **more}, "timeout": 60}


def test_the_line_it_prints_works_as_it_stands(smollm2_path: Path) -> None:
    with started("-m", str(smollm2_path)) as (_, url, curl):
        answer = json.loads(subprocess.run(curl, shell=True, capture_output=True, check=True).stdout)
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["message"]["content"]
        assert "<html" in httpx.get(f"{url}/").text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_answers_come_to_their_end(number: signal.Signals) -> None:
    with started("-m", str(tiny_file()), "--served-model-name", "m") as (process, url, _):
        received: list[str] = []
        with httpx.stream("POST", **ask(url, max_tokens=200, ignore_eos=True, stream=True)) as response:
            for line in response.iter_lines():
                received.append(line)
                if len(received) == 4:
                    process.send_signal(number)
        assert received[-2] == "data: [DONE]"
        assert process.wait(20) == 0


def test_a_second_signal_ends_it_at_once(smollm2_path: Path) -> None:
    with (
        started("-m", str(smollm2_path), "--served-model-name", "m") as (process, url, _),
        httpx.stream("POST", **ask(url, max_tokens=4000, ignore_eos=True, stream=True)) as response,
    ):
        lines = response.iter_lines()  # dropped, it would close the connection
        next(lines)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_the_log_says_nothing_of_texts() -> None:
    with started("-m", str(tiny_file()), "--served-model-name", "m") as (process, url, _):
        httpx.post(**{**ask(url, max_tokens=1), "json": {"model": "m", "prompt": "a secret", "max_tokens": 1}})
        httpx.post(**ask(url, regex="a secret (", max_tokens=1))
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        assert process.stderr is not None
        log = process.stderr.read()
    assert log.count("POST /v1/completions") == 2
    assert "secret" not in log


def test_a_key_from_the_environment() -> None:
    with started("-m", str(tiny_file()), "--served-model-name", "m", env={"FOREDRAFT_API_KEY": "k"}) as (_, url, curl):
        assert "Bearer $FOREDRAFT_API_KEY" in curl
        assert httpx.post(**ask(url, max_tokens=1)).status_code == 401
        assert httpx.post(**ask(url, max_tokens=1), headers={"Authorization": "Bearer k"}).status_code == 200


def test_https(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    options = ["--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)]
    with started("-m", str(tiny_file()), "--served-model-name", "m", *options) as (_, url, _curl):
        assert url.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{url}/health", verify=context).json() == {"status": "ok"}


def refused(*options: str, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}
    )
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def test_what_cannot_be_is_said_in_a_line(tmp_path: Path) -> None:
    tiny = ["-m", str(tiny_file())]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen on 127.0.0.1" in refused(*tiny, "--port", str(taken.getsockname()[1]))
    assert "cannot listen on 203.0.113.7" in refused(*tiny, "--host", "203.0.113.7", "--port", "0")
    assert "no such file" in refused("-m", str(tmp_path / "none.gguf"), "--port", "0").lower()
    assert "give both" in refused(*tiny, "--ssl-keyfile", "x")
    bad = tmp_path / "bad.pem"
    bad.write_text("nonsense")
    assert "TLS files" in refused(*tiny, "--port", "0", "--ssl-certfile", str(bad), "--ssl-keyfile", str(bad))
    assert "--served-model-name" in refused(*tiny, "--served-model-name", "a", "--served-model-name", "b")
    assert "same name" in refused(*tiny, *tiny, "--port", "0")
    assert "--memory" in refused(*tiny, "--memory", "1M", "--port", "0")
    assert "--max-queue" in refused(*tiny, "--max-queue", "0")
    assert "--allowed-origin" in refused(*tiny, "--allowed-origin", "example.com")
    assert "request log" in refused(*tiny, "--request-log", str(tmp_path), "--port", "0")


def test_a_package_that_is_missing_is_named() -> None:
    hidden = "import sys; sys.modules['fastapi'] = None; from foredraft.cli.main import main; sys.exit(main(['serve']))"
    done = subprocess.run([sys.executable, "-P", "-c", hidden], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "pip install 'foredraft[serve]'" in done.stderr
