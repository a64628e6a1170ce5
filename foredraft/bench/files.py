"""Files of results: whole or not there."""

import os
import tempfile
from pathlib import Path

from foredraft.errors import UserError


def check_writable(path: Path, option: str = "--output") -> None:
    """Raise UserError where a file cannot be written at the end: better before measuring than after."""
    folder = path.parent
    if path.is_dir():
        raise UserError(f"{option}: {path} is a folder; name a file")
    if not folder.is_dir():
        raise UserError(f"{option}: no such folder: {folder}; create it first")
    if not os.access(folder, os.W_OK):
        raise UserError(f"{option}: no permission to write into {folder}")


def write_whole(path: Path, text: str) -> None:
    """Write a text file in one step. Raises UserError when it cannot be written."""
    try:
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
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
