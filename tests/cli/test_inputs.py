"""Text that comes in: what editors and shells put around it, and paths as people write them."""

from pathlib import Path

import pytest
from helpers.command_line import Run

from foredraft.cli.inputs import read_prompt
from foredraft.cli.sampling import SamplingFlags

MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("raw", [False, True])
def test_a_byte_order_mark_is_no_part_of_a_prompt(tmp_path: Path, raw: bool) -> None:
    """Kind: a UTF-8 byte order mark in front of a file is read as text, and the answer is another one."""
    file = tmp_path / "prompt.txt"
    file.write_bytes(MARK + b"Say hi.")
    assert read_prompt(None, file, raw=raw) == "Say hi."
    assert read_prompt("\ufeffSay hi.", None, raw=raw) == "Say hi."
    file.write_bytes(MARK + MARK + b"x\xef\xbb\xbf")
    assert read_prompt(None, file, raw=raw) == "\ufeffx\ufeff", "one in front is the mark; others are text"


def test_a_byte_order_mark_is_no_part_of_standard_input(fake: Run) -> None:
    """Kind: as above, through a pipe."""
    assert fake("generate", "-m", "fake.gguf", "-q", stdin=MARK + b"hello").stdout == b"hello\n"
    told = fake("chat", "-m", "fake.gguf", "-q", stdin=MARK + b"hello\nthere\n")
    assert (told.returncode, told.stdout) == (0, b"hello\nthere\n")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("json_schema", '{"type": "array"}', '{"type": "array"}'),
        ("grammar", 'start: "a"', 'start: "a"'),
        ("prediction", "def f(): pass", "def f(): pass"),
    ],
)
def test_a_byte_order_mark_is_no_part_of_a_form(tmp_path: Path, name: str, text: str, wanted: str) -> None:
    """Kind: a byte order mark makes a schema or a grammar unreadable."""
    file = tmp_path / "form"
    file.write_bytes(MARK + text.encode())
    assert getattr(SamplingFlags(**{name: f"@{file}"}).params(), name) == wanted
    assert getattr(SamplingFlags(**{name: f"\ufeff{text}"}).params(), name) == wanted


def test_places_of_bytes_count_the_byte_order_mark(fake: Run, models: Path) -> None:
    """Kind: an offset in a complaint is not that of the file."""
    (models / "bad.txt").write_bytes(MARK + b"ab\xff")
    result = fake("generate", "-m", "fake.gguf", "--prompt-file", "bad.txt")
    assert b"byte 0xff at offset 5" in result.stderr
