"""Fresh processes: how long one takes from its start, and how much memory it takes at most."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import foredraft
from foredraft.errors import ForedraftError, UserError

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True)
class FreshRun:
    """A process from its start to its end. peak_bytes: most memory that it held at a time."""

    returncode: int
    output: str
    errors: str
    whole_s: float
    peak_bytes: int


def run_fresh(command: Sequence[str]) -> FreshRun:
    """Run a command to its end. Raises OSError when it cannot be started."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output,
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log,
    ):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=log)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:  # an interrupt, say: the program must not go on by itself
            process.kill()
            process.wait()
            raise
        whole_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        log.seek(0)
        peak_bytes = usage.ru_maxrss * _MAXRSS_BYTES
        return FreshRun(process.returncode, output.read(), log.read(), whole_s, peak_bytes)


@dataclass(frozen=True)
class OurStart:
    """Start of our own process: seconds until the model is ready to answer, and until one token is out and it ends."""

    ready_s: float
    whole_s: float
    peak_bytes: int


def start_foredraft(model: Path, *, num_threads: int) -> OurStart:
    """Start a process that loads the model and answers with one token.

    Raises UserError for what is wrong with the model, ForedraftError when the process fails otherwise.
    """
    home = str(Path(foredraft.__file__).parents[1])
    path = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    # -P: not a folder `foredraft` that happens to lie where the command is given.
    command = [sys.executable, "-P", "-m", "foredraft.bench.start_up", str(model), str(num_threads)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        started = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "PYTHONPATH": path}
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            ready_s = time.perf_counter() - started
            rest = process.stdout.read()
        whole_s = time.perf_counter() - started
        log.seek(0)
        last = (log.read().strip() or "no output").splitlines()[-1]
    if process.returncode == 2:
        raise UserError(last)
    if process.returncode != 0:
        raise ForedraftError(f"the process that measures the start failed with exit code {process.returncode}: {last}")
    return OurStart(ready_s, whole_s, json.loads(rest)["peak_bytes"])
