import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import OptionError
from foredraft.prompts import Prompt, read_prompts, spaced, spread


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


def test_prompts_of_several_files_in_order(tmp_path: Path) -> None:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path, number in zip(paths, (3, 1), strict=True):
        path.write_text(json.dumps({"question_id": number, "family": "b", "turns": [f"text {number}"]}))
    assert [(prompt.key, prompt.text) for prompt in read_prompts(*paths)] == [("b/3", "text 3"), ("b/1", "text 1")]
    with pytest.raises(OptionError, match=r"one\.jsonl: b/3 occurs twice"):
        read_prompts(*paths, paths[0])


def prompts(*numbers: int) -> list[Prompt]:
    """So many of each family."""
    return [Prompt(f"{f}/{i}", str(f), "x") for f, number in enumerate(numbers) for i in range(number)]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 60))
def test_fewer_prompts_are_of_all_families(numbers: list[int], wanted: int) -> None:
    given = prompts(*numbers)
    found = spread(given, wanted)
    assert len(set(found)) == len(found) == min(wanted, len(given))
    counts = Counter(prompt.family for prompt in found)
    for family, number in enumerate(numbers):
        assert counts[str(family)] >= min(number, wanted // len(numbers))


def test_families_take_turns_and_prompts_are_spaced() -> None:
    assert [prompt.key for prompt in spread(prompts(6, 1, 3), 5)] == ["0/0", "1/0", "2/0", "0/3", "2/1"]
    assert spread(prompts(6, 1, 3), 3) == spread(prompts(6, 1, 3), 10)[:3]


@given(st.integers(1, 200), st.integers(0, 200))
def test_spaced_prompts_are_distinct_and_in_order(number: int, wanted: int) -> None:
    given = prompts(number)
    found = [given.index(prompt) for prompt in spaced(given, wanted)]
    assert len(found) == min(number, wanted)
    assert found == sorted(set(found))
    assert found[:1] == [0][:wanted]
