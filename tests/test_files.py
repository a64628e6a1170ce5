"""Files of results: whole or not there, and nothing else is touched."""

import os
import stat
import threading
from pathlib import Path

import pytest

from foredraft.errors import UserError
from foredraft.files import check_writable, read_text, text_of, user_path, write_whole


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    path.write_text("old", encoding="utf-8")
    write_whole(path, "new\n")
    assert path.read_text(encoding="utf-8") == "new\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "figures.json", "half of it \udc80")
    assert not list(tmp_path.iterdir())


def test_others_may_read_as_the_user_s_mask_says(tmp_path: Path) -> None:
    """Kind: files of results can be read by nobody else, or written by all."""
    path, before = tmp_path / "figures.json", os.umask(0o027)
    try:
        write_whole(path, "text")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        check_writable(tmp_path)
    with pytest.raises(UserError, match="no such folder"):
        check_writable(tmp_path / "nowhere" / "file")
    with pytest.raises(UserError, match="cannot write"):
        write_whole(tmp_path / "nowhere" / "file", "")
    check_writable(tmp_path / "file")


def test_what_is_no_file_stays_what_it_is(tmp_path: Path) -> None:
    """Kind: a device, a pipe or a link is replaced by a file of results: `--html /dev/full` broke the machine."""
    (tmp_path / "file").write_text("old", encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to("file")
    check_writable(link)
    write_whole(link, "new")
    assert link.is_symlink()
    assert (tmp_path / "file").read_text(encoding="utf-8") == "new"

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    check_writable(pipe)
    write_whole(pipe, "through")
    reader.join()
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_full_device_is_told_and_left_alone() -> None:
    full = Path("/dev/full")
    check_writable(full)
    with pytest.raises(UserError, match="cannot write /dev/full: No space left"):
        write_whole(full, "text")
    assert stat.S_ISCHR(full.stat().st_mode)


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    """Kind: a name that is too long is a traceback instead of a line."""
    check_writable(tmp_path / ("x" * 300))
    with pytest.raises(UserError, match="cannot write"):
        write_whole(tmp_path / ("x" * 300), "text")


def test_the_text_of_a_file_has_no_byte_order_mark(tmp_path: Path) -> None:
    """Kind: a UTF-8 byte order mark is taken for text."""
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\xef\xbb\xbf")
    assert read_text(path) == "a\r\n\ufeff"
    assert text_of(b"") == ""
    with pytest.raises(UnicodeDecodeError) as refused:
        text_of(b"\xef\xbb\xbfa\xff")
    assert refused.value.start == 4


def test_paths_as_users_write_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: ~ in a path that no shell has seen is the name of a folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/a/b") == tmp_path / "a" / "b"
    assert user_path("~") == tmp_path
    assert user_path(Path("a/~")) == Path("a/~")
    assert user_path("~no-such-user/a") == Path("~no-such-user/a")
