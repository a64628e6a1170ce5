import json
from pathlib import Path

import pytest

from foredraft.errors import OptionError
from foredraft.prompts import Prompt, read_prompts


def test_prompts_from_files(tmp_path: Path) -> None:
    lines = tmp_path / "p.txt"
    lines.write_bytes("one é\r\n\n two \n".encode())
    assert [(p.key, p.text) for p in read_prompts(lines)] == [("prompts/1", "one é"), ("prompts/3", " two ")]
    objects = tmp_path / "p.jsonl"
    entries = [
        {"prompt": "a\nb", "more": 1},
        {"question_id": 7, "family": "code", "turns": ["b\u2028c", "d"]},
        {"category": "chat", "prompt": "e"},
        {"category": "chat", "family": "prose", "prompt": "f"},
    ]
    objects.write_text("\n\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries), encoding="utf-8")
    assert read_prompts(objects) == [
        Prompt("prompts/1", "prompts", "a\nb"),
        Prompt("code/7", "code", "b\u2028c"),
        Prompt("chat/5", "chat", "e"),
        Prompt("prose/7", "prose", "f"),
    ]


@pytest.mark.parametrize(("name", "line"), [("p.txt", b"one"), ("p.jsonl", b'{"prompt": "one"}')])
def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path, name: str, line: bytes) -> None:
    """Kind: a UTF-8 byte order mark in front of prompts is text, or makes the first line unreadable."""
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + line + b"\r\n")
    assert read_prompts(tmp_path / name) == [Prompt("prompts/1", "prompts", "one")]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: ~ in a path that no shell has seen is the name of a folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "p.txt").write_text("one\n")
    assert [prompt.text for prompt in read_prompts(Path("~/p.txt"))] == ["one"]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("p.jsonl", b'{"text": "a"}\n', 'line 1: expected an object with "prompt" or "turns"'),
        ("p.jsonl", b'{"prompt": "a"}\n{"turns": []}\n', "line 2"),
        ("p.jsonl", b'{"prompt": ""}\n', "line 1"),
        ("p.jsonl", b"[1]\n", "line 1"),
        ("p.jsonl", b"{\n", "line 1"),
        ("p.jsonl", b"hello\n", "line 1"),
        ("p.jsonl", b"[" * 100_000, "line 1"),
        ("p.jsonl", b"", "holds no prompts"),
        ("p.txt", b"\n \n", "holds no prompts"),
        ("p.txt", b"a\xff", "are not UTF-8: byte 1"),
    ],
)
def test_files_that_hold_no_prompts_are_refused(tmp_path: Path, name: str, content: bytes, problem: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=problem):
        read_prompts(tmp_path / name)
    with pytest.raises(OptionError, match="cannot read the prompts"):
        read_prompts(tmp_path / "missing.txt")
