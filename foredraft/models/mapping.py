"""Map a file into memory, and say in one line what is wrong with it."""

import mmap
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelFileError
from foredraft.models.mistaken import refuse_pointer


def map_file(path: Path) -> tuple[mmap.mmap, NDArray[np.uint8]]:
    """The file as a read-only map, for parsing, and as a read-only uint8 view of all its bytes.

    Raises ModelFileError when the file is missing, unreadable, empty, not a regular file, or stands for one
    that git-lfs has not fetched.
    """
    try:
        if path.is_dir():
            raise ModelFileError(f"{path}: is a folder, a model file is needed")
        if path.exists() and not path.is_file():
            raise ModelFileError(f"{path}: is not a regular file")
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelFileError(f"{path}: the file is empty; fetch it again")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelFileError(f"{path}: cannot be read ({reason})") from None
    refuse_pointer(path, mapped[:64])
    return mapped, np.frombuffer(mapped, dtype=np.uint8)


def shown(text: str) -> str:
    """A text from a file in quotes, fit for a one-line message: printable, and not longer than a line."""
    quoted = ascii(text[:200])
    return quoted if len(quoted) <= 100 else quoted[:96] + "...'"
