"""How tests run the command line: as a process, with the fake LLM or with the real one."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import foredraft

ROOT = Path(foredraft.__file__).parents[1]  # the processes run what the tests import
FAKE = [sys.executable, str(Path(__file__).parent / "fake_llm.py")]
REAL = [sys.executable, "-P", "-m", "foredraft.cli.main"]  # -P: not the sources where the tests are started

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


def environment(**more: str) -> dict[str, str]:
    """The environment of a test process: this foredraft, and no settings of the user's."""
    settings = ("FOREDRAFT_DEBUG", "COLUMNS", "HF_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**kept, "PYTHONPATH": path, "TERM": "dumb", **more}


def runner(command: list[str], cwd: Path) -> Run:
    """Return a function that runs `command` with more arguments, in the folder `cwd`."""

    def run(*arguments: str | bytes, stdin: bytes | None = b"", **more: str) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            timeout=300,
            cwd=cwd,
            env=environment(**more),
        )

    return run


def assert_refused(result: "subprocess.CompletedProcess[bytes]", *parts: str) -> None:
    """Assert that the user was told in one line, with exit code 2, and that nothing was written to stdout."""
    line = result.stderr.decode()
    assert (result.returncode, result.stdout) == (2, b""), (result, line)
    assert line.startswith("foredraft: ")
    assert line.count("\n") == 1, line
    for part in parts:
        assert part in line
