"""The documents tell the truth: their code runs, their links lead somewhere, their tables of options are whole."""

import json
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers.documents import DOCUMENTS, ROOT, Block, blocks, links, read, section
from typer.main import get_command

import foredraft
from foredraft.cli.main import app
from foredraft.engine import Completion, Speculation, Timings, Usage

# Commands that set a machine up. They are not run here: `make` runs these tests, and is checked to know the target.
SET_UP = {"git", "cd", "make", "pip", "python3", "python", "pytest", "ruff", "mypy"}
RUN = {"foredraft", "echo", "cat", "printf"}
CLI = Path("docs/cli.md")


def _shell_blocks() -> list[Block]:
    return [block for document in DOCUMENTS for block in blocks(document) if block.language == "sh"]


def _first_words(block: Block) -> set[str]:
    lines = block.code.replace("\\\n", " ").splitlines()
    return {shlex.split(line, comments=True)[0] for line in lines if line.strip() and not line.startswith("#")}


def _id(block: Block) -> str:
    return f"{block.document}:{block.line}"


RUNNABLE = [block for block in _shell_blocks() if not _first_words(block) & SET_UP]


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if any(b.language == "python" for b in blocks(d))], ids=str)
def test_python_code_runs(document: Path, place: Path, user: dict[str, str]) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    needs_server = any("127.0.0.1:8000" in block.code for block in blocks(document) if block.language == "python")
    with server("foredraft serve", user) if needs_server else nullcontext("") as address:
        for block in blocks(document):
            if block.language == "python":
                # Line numbers in a traceback are those of the document.
                code = "\n" * (block.line - 1) + block.code.replace("http://127.0.0.1:8000", address)
                exec(compile(code, str(document), "exec", dont_inherit=True), namespace)


@contextmanager
def server(command: str, user: dict[str, str]) -> Iterator[str]:
    """A server that a command line starts, on a free port; gives its address."""
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"exec {command} --port 0"], stderr=subprocess.PIPE, text=True, env=user
    )
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "chat at " in line:
                yield line.partition("chat at ")[2].split("/ ")[0]
                break
        else:
            raise AssertionError(said)
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    assert process.returncode == 0


@pytest.mark.parametrize("block", RUNNABLE, ids=_id)
def test_commands_run(block: Block, place: Path, user: dict[str, str]) -> None:
    assert _first_words(block) <= RUN, "a command that this test does not know"
    if block.code.startswith("foredraft serve"):
        with server(block.code.strip(), user):
            return
    (place / "prompt.txt").write_text("Once upon a time\n")
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.code],
        input="Good morning.\n/stats\n/exit\n",
        capture_output=True,
        encoding="utf-8",
        env=user,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()
    assert "error" not in result.stderr.lower()


def test_blocks_are_of_a_known_kind() -> None:
    for document in DOCUMENTS:
        for block in blocks(document):
            assert block.language in ("python", "sh", "json", "text"), _id(block)


def test_make_knows_the_targets_that_documents_name() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for block in _shell_blocks():
        for target in re.findall(r"^make ([\w-]+)", block.code, re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), _id(block)


def test_links_lead_to_files() -> None:
    for document in DOCUMENTS:
        for target in links(document):
            assert (ROOT / document.parent / target).exists(), f"{document}: {target}"


def test_files_that_documents_name_are_there() -> None:
    for document in DOCUMENTS:
        for name in re.findall(r"`((?:foredraft|native|tests|examples|benchmarks|docs)/[\w./]*)`", read(document)):
            assert (ROOT / name).exists(), f"{document}: {name}"


def test_every_document_is_reachable_from_the_readme() -> None:
    seen, todo = set(), [Path("README.md")]
    while todo:
        document = todo.pop()
        seen.add(document)
        found = [(ROOT / document.parent / t).resolve().relative_to(ROOT) for t in links(document)]
        todo += [path for path in found if path.suffix == ".md" and path not in seen]
    assert set(DOCUMENTS) <= seen


# --- docs/cli.md ----------------------------------------------------------------------------------------------


def _commands() -> dict[str, Any]:
    group: Any = get_command(app)
    return dict(group.commands)


def _options(command: Any) -> set[str]:
    names = {name for parameter in command.params for name in parameter.opts if name.startswith("-")}
    within = [_options(inner) for inner in getattr(command, "commands", {}).values()]
    return names.union({"-h", "--help"}, *within)


@pytest.mark.parametrize("name", sorted(_commands()))
def test_the_options_of_a_command_are_documented(name: str) -> None:
    text = section(CLI, f"## foredraft {name}") + section(CLI, "## Options of generate and chat")
    rows = [line for line in text.splitlines() if line.startswith("| `-")]
    documented = {option for row in rows for option in re.findall(r"`(-[\w-]+)[^`]*`", row.split("|")[1])}
    options = _options(_commands()[name])
    assert options - documented == set()
    own = section(CLI, f"## foredraft {name}").splitlines()
    own_rows = [line.split("|")[1] for line in own if line.startswith("| `-")]
    assert {option for row in own_rows for option in re.findall(r"`(-[\w-]+)[^`]*`", row)} <= options


def test_options_of_both_commands_are_options_of_both() -> None:
    rows = [line for line in section(CLI, "## Options of generate and chat").splitlines() if line.startswith("| `-")]
    shared = {option for row in rows for option in re.findall(r"`(-[\w-]+)[^`]*`", row.split("|")[1])}
    assert shared <= _options(_commands()["generate"]) & _options(_commands()["chat"])


def test_every_command_has_its_section() -> None:
    titles = re.findall(r"^## foredraft (\w+)$", read(CLI), re.MULTILINE)
    assert sorted(titles) == sorted(_commands())


def test_the_json_object_is_the_one_that_is_printed() -> None:
    [block] = [block for block in blocks(CLI) if block.language == "json"]
    completion = Completion(
        text="",
        token_ids=(),
        finish_reason="stop",
        usage=Usage(prompt_tokens=0, completion_tokens=0),
        timings=Timings(load_s=0, prefill_s=0, decode_s=0, num_prompt_tokens=0, num_completion_tokens=0),
        speculation=Speculation(
            methods=(),
            lossless=True,
            num_rounds=0,
            num_draft_tokens=0,
            num_accepted_tokens=0,
            num_emitted_tokens=0,
            accepted_per_position=(),
            reason="",
        ),
    )
    assert _keys(json.loads(block.code)) == _keys(completion.to_json_dict())


def _keys(value: object) -> object:
    return {name: _keys(inner) for name, inner in value.items()} if isinstance(value, dict) else None


# --- the README -----------------------------------------------------------------------------------------------


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{foredraft.__version__}]" in read(Path("CHANGELOG.md"))


def test_the_picture_of_a_round_is_the_same_everywhere() -> None:
    picture = [line.strip() for line in _picture((ROOT / "foredraft/round.py").read_text())]
    assert picture == [line.strip() for line in _picture(read(Path("README.md")))]


def _picture(text: str) -> list[str]:
    lines = textwrap.dedent(text).splitlines()
    start = next(i for i, line in enumerate(lines) if "planner.plan  ----" in line)
    return lines[start - 1 : start + 4]
