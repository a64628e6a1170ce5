"""Files of users: how their names and their text are read; files of results, which are whole or not there."""

import os
import tempfile
from pathlib import Path

from foredraft.errors import UserError

BYTE_ORDER_MARK = "\ufeff"
"""What some editors put in front of UTF-8 text. It is not part of the text."""


def user_path(name: str | os.PathLike[str]) -> Path:
    """The path that a user named: ~ and ~user at its start are folders, where there are such."""
    path = Path(name)
    try:
        return path.expanduser()
    except RuntimeError:  # no such user
        return path


def text_of(content: bytes) -> str:
    """The text that UTF-8 bytes hold, without a byte order mark. Raises UnicodeDecodeError, offsets as in `content`."""
    return without_mark(content.decode("utf-8"))


def without_mark(text: str) -> str:
    """The text without a byte order mark in front."""
    return text.removeprefix(BYTE_ORDER_MARK)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file without a byte order mark, line ends as they are. Raises OSError, UnicodeDecodeError."""
    return text_of(path.read_bytes())


def check_writable(path: Path, option: str = "--output") -> None:
    """Raise UserError where a file cannot be written at the end: better before measuring than after."""
    # Named as it was given, unless the file is a link to one that lies elsewhere.
    folder = _real(path).parent if os.path.islink(path) and not _is_special(path) else path.parent
    if os.path.isdir(path):  # unlike the methods of Path, this does not raise where nothing may be looked up
        raise UserError(f"{option}: {path} is a folder; name a file")
    if not os.path.isdir(folder):
        raise UserError(f"{option}: no such folder: {folder}; create it first")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise UserError(f"{option}: no permission to write {path}")
    if not _is_special(path) and not os.access(folder, os.W_OK):
        raise UserError(f"{option}: no permission to write into {folder}")


def write_whole(path: Path, text: str) -> None:
    """Write a text file in one step. Raises UserError when it cannot be written.

    A link stays one, and what it leads to is replaced. What is no file, such as a pipe or a device, is written to.
    """
    try:
        if _is_special(path):
            path.write_text(text, encoding="utf-8")
        else:
            _replace(_real(path), text)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _replace(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    ) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o666 & ~_umask())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _is_special(path: Path) -> bool:
    """Whether this is no file that may be replaced. /dev/stdout may lead to one, which others write to as well."""
    return os.path.exists(path) and (not os.path.isfile(path) or path.absolute().is_relative_to("/dev"))


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
