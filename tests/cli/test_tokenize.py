"""`foredraft tokenize` and `detokenize`, with the tokenizer of a tiny model."""

import json
from pathlib import Path

import pytest
from gguf import GGUFWriter
from helpers.command_line import REAL, runner
from helpers.tiny import TinyModel

from foredraft.cli.main import main
from foredraft.models.source import open_model
from foredraft.text import load_tokenizer


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(TinyModel(family="qwen2").write_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf"))


def _out(capfdbinary: pytest.CaptureFixture[bytes], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capfdbinary.readouterr().out.decode()


def test_the_tokens_of_a_text(model: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Kind: nobody can see what the model reads of a text."""
    shown = _out(capfdbinary, "tokenize", "-m", model, "the end")
    assert shown == "   257 -> 'the'\n    32 -> ' '\n   101 -> 'e'\n   270 -> 'nd'\n"
    assert _out(capfdbinary, "tokenize", "-m", model, "--ids", "the end") == "[257, 32, 101, 270]\n"
    given = json.loads(_out(capfdbinary, "tokenize", "-m", model, "--json", "ä"))
    tokenizer = load_tokenizer(open_model(model).tokenizer_data)
    assert given == {"ids": tokenizer.encode("ä"), "tokens": ["\ufffd", "\ufffd"], "num_tokens": 2}


def test_special_tokens_are_read_where_that_is_asked_for(model: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = "<|im_start|>a"
    plain = json.loads(_out(capfdbinary, "tokenize", "-m", model, "--ids", text))
    assert len(plain) > 2
    assert json.loads(_out(capfdbinary, "tokenize", "-m", model, "--ids", "--special", "-p", text)) == [273, 97]
    assert _out(capfdbinary, "tokenize", "-m", model, "--special", text).startswith("   273 -> '<|im_start|>'\n")


def test_the_tokens_that_a_model_wants_around_text(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = TinyModel().write_folder(tmp_path / "folder")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "add_bos_token": True, "bos_token": "<|endoftext|>"})
    )
    wanted = load_tokenizer(folder).encode("a")
    assert json.loads(_out(capfdbinary, "tokenize", "-m", str(folder), "--ids", "a")) == wanted
    assert json.loads(_out(capfdbinary, "tokenize", "-m", str(folder), "--ids", "--no-bos", "a")) == [97]


@pytest.mark.parametrize("form", [["257", "32", "101"], ["257,32, 101"], ["[257, 32, 101]"], ["[257,", "32,", "101]"]])
def test_the_text_of_ids(model: str, capfdbinary: pytest.CaptureFixture[bytes], form: list[str]) -> None:
    assert _out(capfdbinary, "detokenize", "-m", model, *form) == "the e\n"
    given = _out(capfdbinary, "detokenize", "-m", model, "--json", *form)
    assert json.loads(given) == {"text": "the e", "num_tokens": 3}


def test_special_tokens_are_shown_unless_they_are_to_be_skipped(
    model: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert _out(capfdbinary, "detokenize", "-m", model, "273", "97") == "<|im_start|>a\n"
    assert _out(capfdbinary, "detokenize", "-m", model, "--skip-special", "273", "97") == "a\n"


def test_there_and_back_through_pipes(model: str, tmp_path: Path) -> None:
    run, text = runner(REAL, tmp_path), "\ufeffäöü 🌍\r\n  the\n".encode()
    ids = run("tokenize", "-m", model, "--ids", stdin=text).stdout
    assert run("detokenize", "-m", model, stdin=ids).stdout == text.removeprefix(b"\xef\xbb\xbf") + b"\n"
    (tmp_path / "t.txt").write_bytes(text)
    assert run("tokenize", "-m", model, "--ids", "-f", "t.txt").stdout == ids


def test_a_vocabulary_without_weights_is_enough(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Kind: files with a vocabulary only, or of a model that cannot be run, have tokens all the same."""
    path, folder = tmp_path / "vocab.gguf", TinyModel().write_folder(tmp_path / "folder")
    writer = GGUFWriter(path, "mamba")
    TinyModel().add_metadata(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    for model in (path, folder):
        assert _out(capfdbinary, "tokenize", "-m", str(model), "--ids", "the end") == "[257, 32, 101, 270]\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("detokenize 9999", "there is no token 9999: the model has ids from 0 to 27"),
        ("detokenize -- -1", "token ids must be integers of at least 0, got '-1'"),
        ("detokenize 1.5", "token ids must be integers of at least 0, got '1.5'"),
        ("detokenize []", "there are no token ids; give some"),
        ("tokenize --ids --json a", "--ids and --json are two forms of the same"),
    ],
)
def test_what_is_refused(model: str, capfd: pytest.CaptureFixture[str], arguments: str, part: str) -> None:
    command, *more = arguments.split()
    assert main([command, "-m", model, *more]) == 2
    assert part in capfd.readouterr().err
