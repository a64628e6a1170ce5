"""Results of runs, as they are committed: what was run, on what and when, and what came out."""

import argparse
import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foredraft.bench.machine import describe_file, describe_machine
from foredraft.bench.peer import LlamaCpp
from foredraft.files import write_whole
from foredraft.models.store import resolve

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).resolve().parent / "results"
ABOUT = ("benchmark", "command", "commit", "machine", "model", "draft", "num_threads", "peer_version")
"""Fields that every result has."""
DIGITS = 5


def about(
    benchmark: str, arguments: Sequence[str], options: argparse.Namespace, peer: LlamaCpp | None = None
) -> dict[str, Any]:
    """What is run, where and with what. To be asked before the run: a load above 0 then spoils the figures."""
    draft = getattr(options, "draft", None)
    return {
        "benchmark": benchmark,
        "command": command_line(arguments),
        "commit": commit(),
        "machine": describe_machine(),
        "model": describe_file(resolve(options.model)),
        "draft": None if draft is None else describe_file(resolve(draft)),
        "num_threads": options.threads,
        "peer_version": None if peer is None else peer.version(),
    }


def command_line(arguments: Sequence[str]) -> str:
    """The command, its files by their names: where they lie is nobody's business."""
    shown = [Path(word).name if "/" in word else word for word in arguments]
    return shlex.join(["python", "-m", "benchmarks", *shown])


def commit() -> str | None:
    """The commit that is checked out, with a + where files differ from it; None where that cannot be said."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def write(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    write_whole(path, _dumped(_rounded(result), 3) + "\n")


def read_all(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """The results of a folder, by the names of their files."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


def _rounded(value: Any) -> Any:
    """As many digits as a measurement is worth."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _dumped(value: Any, depth: int, indent: str = "") -> str:
    """JSON with a line for each entry of the outer objects, so that changes can be read."""
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = indent + " "
    lines = [f"{inner}{json.dumps(str(name))}: {_dumped(one, depth - 1, inner)}" for name, one in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
