"""The command itself: help, version, exit codes, and that no traceback reaches a user."""

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.command_line import FAKE, Run, assert_refused, environment

import foredraft
from foredraft.cli.main import main


def test_version(real: Run) -> None:
    result = real("--version")
    assert (result.returncode, result.stdout.decode()) == (0, f"foredraft {foredraft.__version__}\n")


def test_help_lists_the_commands(real: Run) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        result = real(*arguments)
        assert result.returncode == 0
        for command in ("pull", "generate", "chat"):
            assert f"\n  {command} ".encode() in result.stdout
        assert b"..." not in result.stdout.split(b"Commands:")[1], "a line of help was cut"


@pytest.mark.parametrize("command", ["pull", "generate", "chat"])
def test_help_of_each_command(real: Run, command: str) -> None:
    result = real(command, "--help")
    assert result.returncode == 0
    assert f"Usage: foredraft {command}".encode() in result.stdout
    assert b"str | None" not in result.stdout


def test_help_does_not_load_what_it_does_not_need() -> None:
    code = (
        "import sys, foredraft.cli.main as m; m.main(['generate', '--help']); "
        "print([n for n in ('numpy', 'tokenizers', 'huggingface_hub', 'jinja2', 'torch',"
        " 'foredraft.llm', 'foredraft._native') if n in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=True)
    assert result.stdout.endswith(b"[]\n"), result.stdout[-200:]


def test_help_is_quick(real: Run) -> None:
    real("--help")  # so that the compiled files of Python are there

    def seconds() -> float:
        started = time.perf_counter()
        real("--help")
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) < 0.5


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--nope"], ["No such option", "--nope", "see `foredraft --help`"]),
        (["nope"], ["No such command 'nope'"]),
        (["pull"], ["Missing argument 'NAME'", "see `foredraft pull --help`"]),
        (["generate", "--nope", "x"], ["--nope", "see `foredraft generate --help`"]),
        (["generate", "--max-tokens", "many", "x"], ["--max-tokens"]),
        (["generate", "--max-tokens", "1.5", "x"], ["--max-tokens"]),
        (["generate", "--temperature", "hot", "x"], ["--temperature"]),
        (["generate", "--seed"], ["--seed"]),
        (["generate", "one", "two"], ["two"]),
        (["chat", "one"], ["one"]),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(real: Run, arguments: list[str], parts: list[str]) -> None:
    assert_refused(real(*arguments), *parts)


def test_a_fault_of_ours_is_one_line_too(fake: Run) -> None:
    result = fake("generate", "-m", "fake.gguf", "boom")
    assert result.returncode == 1
    line = result.stderr.decode()
    assert line == (
        "foredraft: internal error: RuntimeError: a kernel went wrong; "
        "please report it (FOREDRAFT_DEBUG=1 shows the traceback)\n"
    )


def test_the_traceback_is_there_when_asked_for(fake: Run) -> None:
    result = fake("generate", "-m", "fake.gguf", "boom", FOREDRAFT_DEBUG="1")
    assert result.returncode == 1
    assert b"Traceback (most recent call last)" in result.stderr
    assert b"foredraft: internal error" in result.stderr


def test_main_can_be_called_with_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert main(["generate", "--nope"]) == 2
    assert capsys.readouterr().out == f"foredraft {foredraft.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "closed", "code", "out", "error"),
    [
        ("generate hello", ">&-", 2, "", "foredraft: standard output is closed; send it to a file or to /dev/null"),
        ("generate hello", "2>&-", 0, "hello\n", ""),
        ("generate hello", "2>/dev/full", 0, "hello\n", ""),
        ("generate hello --top-p 2", "2>/dev/full", 2, "", ""),
        ("chat", "</dev/null >/dev/full", 0, "", ""),
        ("chat", "<fake.gguf >/dev/full", 2, "", "foredraft: cannot write the output: No space left on device\n"),
        ("generate --help", ">/dev/full", 2, "", "foredraft: cannot write the output: No space left on device\n"),
        ("generate", "<&-", 2, "", "foredraft: no prompt: give it as an argument"),
        ("chat", "<&-", 2, "", "foredraft: standard input is closed; a chat reads its messages from there"),
    ],
)
def test_a_stream_without_anyone(models: Path, arguments: str, closed: str, code: int, out: str, error: str) -> None:
    command, *more = arguments.split()
    line = shlex.join([*FAKE, command, "-m", "fake.gguf", *more])
    result = subprocess.run(
        ["sh", "-c", f"{line} {closed}"], capture_output=True, encoding="utf-8", cwd=models, env=environment()
    )
    assert (result.returncode, result.stdout) == (code, out), result.stderr
    assert result.stderr.startswith(error)
    assert result.stderr.count("\n") == (1 if error else 0)
