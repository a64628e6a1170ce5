"""`foredraft inspect` on real weights."""

import os
import re
from pathlib import Path
from typing import Any

import pexpect
import pytest
from helpers.command_line import REAL, Run, assert_refused, environment

from foredraft.trace import Trace

PROMPT = "1. The cat sat on the mat. 2. The dog sat on the mat. 3. The cow sat on the mat. 4. The cat sat"
ARGUMENTS = ("--draft", "lookup", "--num-draft-tokens", "4", "--raw", "--max-tokens", "12", PROMPT)


@pytest.fixture
def inspect(real: Run, smollm2_path: Path) -> Run:
    def run(*arguments: str, **options: Any) -> Any:
        return real("inspect", "-m", str(smollm2_path), *arguments, **options)

    return run


def test_a_pipe_gets_the_rounds_without_colours_and_the_files_are_written(
    inspect: Run, real: Run, tmp_path: Path
) -> None:
    result = inspect("--html", "page.html", "--jsonl", "trace.jsonl", *ARGUMENTS)
    assert result.returncode == 0, result.stderr
    text = result.stdout.decode()
    assert result.stderr == b"wrote page.html\n"
    assert "\x1b" not in text
    assert not re.search(r" \n", text), "no spaces at the ends of lines"
    assert "drafter lookup, 12 tokens in " in text
    assert re.search(r"^ +0 +\d+  lookup 4 +\d  .*> \".*\" [\d.]+ % +[\d.]+$", text, re.MULTILINE)

    trace = Trace.read(tmp_path / "trace.jsonl")
    [sequence] = trace.sequences.values()
    assert sum(len(record.emitted) for record in sequence.rounds) == 12
    assert "<!doctype html>" in (tmp_path / "page.html").read_text()
    again = real("inspect", "--from", "trace.jsonl", "--html", "again.html", "-q")
    assert (again.returncode, again.stdout, again.stderr) == (0, result.stdout, b"")
    assert (tmp_path / "again.html").read_text() == (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_a_terminal_gets_colours_unless_no_color(
    inspect: Run, tmp_path: Path, more: dict[str, str], coloured: bool
) -> None:
    assert inspect("-q", "--jsonl", "trace.jsonl", *ARGUMENTS).returncode == 0
    environment_ = environment(**{"TERM": "xterm-256color", **more})
    environment_ = {name: value for name, value in environment_.items() if name != "NO_COLOR" or more}
    text = pexpect.run(
        " ".join([*REAL, "inspect", "--from", "trace.jsonl"]),
        env=environment_,  # type: ignore[arg-type]
        cwd=str(tmp_path),
        encoding="utf-8",
        timeout=60,
    )
    assert ("\x1b[32m" in text) == coloured
    assert (re.search(r"\[ on the", text) is None) == coloured


def test_the_answer_is_that_of_generate(inspect: Run, real: Run, smollm2_path: Path) -> None:
    sampled = ["--temperature", "0.8", "--seed", "3", "--max-tokens", "16", "Name a colour."]
    said = real("generate", "-q", "-m", str(smollm2_path), *sampled).stdout.decode().rstrip("\n")
    shown = inspect("--draft", "none", *sampled, COLUMNS="1000").stdout.decode()
    assert said in re.sub(r"\n  ", "\n", shown)
    assert "no drafter" in shown


def test_files_that_cannot_be_written_or_read_are_refused_before_anything_runs(inspect: Run, real: Run) -> None:
    assert_refused(inspect("--html", "missing/page.html", "x"), "--html", "missing")
    assert_refused(inspect("--jsonl", "missing/t.jsonl", "x"), "missing/t.jsonl")
    assert_refused(real("inspect", "--from", "missing.jsonl"), "missing.jsonl")
    assert_refused(real("inspect", "--from", os.devnull), "is not a trace")


@pytest.mark.parametrize("more", [["--seed", "1"], ["hello"], ["--jsonl", "x"], ["-m", "x"], ["--raw"]])
def test_a_recorded_trace_has_its_own_options(inspect: Run, real: Run, more: list[str]) -> None:
    assert inspect("-q", "--jsonl", "trace.jsonl", *ARGUMENTS).returncode == 0
    name = "PROMPT" if more == ["hello"] else "--model" if more[0] == "-m" else more[0]
    assert_refused(real("inspect", "--from", "trace.jsonl", *more), "--from", name)
