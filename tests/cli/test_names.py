"""Options as users of other programs type them, and texts and paths as shells and their users write them."""

import json
from pathlib import Path

import pytest
from helpers.command_line import Run, assert_refused
from typer.main import get_command

from foredraft.cli import names
from foredraft.cli.inputs import read_prompt, unescaped
from foredraft.cli.main import app
from foredraft.cli.sampling import SamplingFlags
from foredraft.errors import OptionError

COMMANDS = get_command(app).commands  # type: ignore[attr-defined]


def translated(command: str, *arguments: str) -> list[str]:
    return names.in_our_words(COMMANDS[command], list(arguments))


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("--temp 1 -n 5 -c 99 -t 2 -s 7", "--temperature 1 --max-tokens 5 --context-length 99 --threads 2 --seed 7"),
        ("--temp=0.8 --n-predict=-1", "--temperature=0.8 --max-tokens=-1"),
        ("--top-k 9 --n 2", "--top-k 9 --n 2"),
        ("-m target.gguf -md draft.gguf", "-m target.gguf --draft draft.gguf"),
        ("-p -1 -q", "-q -- -1"),
        ("-p one --temp 1", "--temperature 1 -- one"),
        ("--prompt=one -- two", "-- two one"),
        ("--stop --temp --stop -ngl prompt", "--stop --temp --stop -ngl prompt"),
        ("-q -- -p", "-q -- -p"),
        ("--nobody-knows 1 -x", "--nobody-knows 1 -x"),
        ("-f prompt.txt -sys S -j {}", "--prompt-file prompt.txt --system S --json-schema {}"),
    ],
)  # fmt: skip
def test_names_of_the_same_are_taken(typed: str, ours: str) -> None:
    """Kind: an option under the name it has elsewhere is unknown, or taken for another: -md was -m d."""
    assert translated("generate", *typed.split()) == ours.split()


def test_names_count_where_the_command_has_the_option() -> None:
    assert translated("check", "--temp", "1") == ["--temp", "1"]
    assert translated("pull", "-n", "5") == ["-n", "5"]


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("--repeat-penalty 1.1", "--repeat-penalty is --repetition-penalty here, which counts all of the prompt"),
        ("-r User:", "-r is --stop here, which ends the answer"),
        ("--grammar-file=g.gbnf", "--grammar-file is --grammar here, with @ before the file"),
        ("-ngl 99", "-ngl has no counterpart: foredraft computes on the processor; leave it out"),
        ("-ctk q8_0", "-ctk has no counterpart"),
        ("-fa on", "-fa has no counterpart"),
        ("--lora a.gguf", "--lora has no counterpart: adapters cannot be applied; merge it into the model first"),
    ],
)
def test_what_is_written_otherwise_is_told(typed: str, line: str) -> None:
    """Kind: a name of a peer's is answered with "no such option", and a wrong guess."""
    with pytest.raises(OptionError) as refused:
        translated("generate", *typed.split())
    assert str(refused.value).startswith(line)


def test_the_names_are_none_of_ours_and_lead_to_ours() -> None:
    ours = {name for command in COMMANDS.values() for parameter in command.params for name in parameter.opts}
    tables = (names.SAME, names.OURS, names.WITHOUT)
    typed = [name for table in tables for name in table] + list(names.PROMPT)
    assert len(typed) == len(set(typed))
    assert not ours & set(typed)
    assert {*names.SAME.values(), *(name for name, _ in names.OURS.values())} <= ours


def test_the_commands_understand_them(fake: Run) -> None:
    given = fake("generate", "-m", "fake.gguf", "-q", "-n", "-1", "--temp", "0.5", "-c", "64", "-p", "arguments")
    arguments = json.loads(given.stdout)
    assert (arguments["params"]["max_tokens"], arguments["params"]["temperature"]) == (None, 0.5)
    assert arguments["context_length"] == 64
    assert_refused(fake("generate", "-m", "fake.gguf", "-ngl", "99", "x"), "-ngl has no counterpart")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"a\nb\tc\r\\\'\"", "a\nb\tc\r\\'\""),
        (r"\x41\x0a\xc3\xa4\xF0\x9f\x8c\x8d", "A\nä🌍"),
        (r"\\n \d \z ä \x", "\\n \\d \\z ä \\x"),
        ("\\", "\\"),
    ],
)
def test_escapes_as_llama_cpp_reads_them(text: str, meant: str) -> None:
    r"""Kind: --stop '\n' never ends a text."""
    assert unescaped("--stop", text) == meant


def test_escapes_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    given = {"stop": [r"\n"], "bad_words": [r"\t"], "dry_sequence_breakers": [r"\n"], "dry_multiplier": 1.0}
    plain, read = SamplingFlags(**given).params(), SamplingFlags(escape=True, **given).params()
    assert (plain.stop, plain.bad_words, plain.dry_sequence_breakers) == ((r"\n",), (r"\t",), (r"\n",))
    assert (read.stop, read.bad_words, read.dry_sequence_breakers) == (("\n",), ("\t",), ("\n",))
    file = tmp_path / "prompt.txt"
    file.write_text(r"a\nb")
    assert read_prompt(r"a\nb", None, raw=True, escape=True) == "a\nb"
    assert read_prompt(r"a\nb", None, raw=True) == r"a\nb"
    assert read_prompt(None, file, raw=True, escape=True) == r"a\nb", "files are left alone"
    with pytest.raises(OptionError, match="--stop is not valid UTF-8: byte 0xff at offset 1"):
        unescaped("--stop", r"a\xff")


def test_no_tokens_and_as_many_as_fit(fake: Run) -> None:
    """Kind: a length of 0, to look at the prompt only, and of -1, as elsewhere, are refused."""
    assert SamplingFlags().params(max_tokens=0).max_tokens == 0
    assert SamplingFlags().params(max_tokens=-1).max_tokens is None
    assert fake("chat", "-m", "fake.gguf", "-q", "--max-tokens", "-1", stdin=b"hello").stdout == b"hello\n"


def test_all_paths_may_begin_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: ~ in a path that no shell has seen, as in --output=~/file, is the name of a folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    num_paths = 0
    for command in [*COMMANDS.values(), *COMMANDS["bench"].commands.values()]:
        for parameter in command.params:
            if parameter.metavar in ("FILE", "FOLDER", "DIR") and "--draft-memory" not in parameter.opts:
                num_paths += 1
                found = parameter.process_value(command.make_context("x", [], resilient_parsing=True), "~/x")
                assert found == tmp_path / "x", (command.name, parameter.name)
    assert num_paths > 15
    (tmp_path / "p.txt").write_text("from a file")
    assert SamplingFlags(prediction="@~/p.txt").params().prediction == "from a file"


def test_the_memory_of_drafts_may_begin_with_a_tilde(fake: Run, models: Path) -> None:
    given = fake("generate", "-m", "fake.gguf", "-q", "--draft-memory", "~/texts", "arguments", HOME=str(models))
    assert json.loads(given.stdout)["draft"]["memory"] == str(models / "texts")
