"""The examples run, and print what they say they do."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.documents import ROOT, read

EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))


def _run(name: str, user: dict[str, str], *arguments: str, stdin: str = "") -> str:
    result = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        env=user,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_generate(user: dict[str, str]) -> None:
    assert "tokens per second" in _run("generate.py", user)


def test_chat(user: dict[str, str]) -> None:
    answers = _run("chat.py", user, stdin="Say hello.\nAnd now in French.\n")
    assert answers.count("\n") >= 2


def test_compare(user: dict[str, str]) -> None:
    assert _run("compare.py", user, "target.gguf", "draft.gguf").count("same tokens") == 3


def test_batch(user: dict[str, str]) -> None:
    assert "same tokens" in _run("batch.py", user)


def test_own_drafter(user: dict[str, str]) -> None:
    shown = _run("own_drafter.py", user)
    assert "same tokens" in shown
    assert float(shown.partition("length ")[2].split()[0]) > 1.3


def test_rounds(user: dict[str, str]) -> None:
    text = _run("rounds.py", user)
    assert text.startswith("round 0: ")
    assert " accepted" in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_listed_and_tested(name: str) -> None:
    assert f"[{name}]({name})" in read(Path("examples/README.md"))
    assert f"def test_{name.removesuffix('.py')}(" in Path(__file__).read_text()
