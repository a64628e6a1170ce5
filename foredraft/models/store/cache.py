"""The cache folder: files enter it whole or not at all.

A file is written in a working folder whose name starts with a dot and the name of its model, checked,
forced to the disk, and only then renamed to its real name. Whatever kills the process before the rename
leaves only a working folder behind, and the next process that holds the model's lock removes it.
"""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import filelock
import platformdirs

from foredraft.errors import DownloadError

BLOCK = 1 << 20  # bytes copied at a time


@dataclass(frozen=True)
class Progress:
    """What a pull does at the moment, and how many of how many bytes are done (`total` 0: unknown)."""

    step: str
    done: int = 0
    total: int = 0


ProgressCallback = Callable[[Progress], None]


def cache_folder() -> Path:
    """Where built-in models are kept: `$FOREDRAFT_CACHE`, or foredraft/models in the user's cache folder."""
    chosen = os.environ.get("FOREDRAFT_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("foredraft") / "models"


def sha256_of(path: Path, progress: ProgressCallback | None = None) -> str:
    """Return the sha256 of a file as lower-case hexadecimal digits."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            if progress:
                progress(Progress("checking", done, total))
    return digest.hexdigest()


def disk_error(name: str, folder: Path, error: OSError) -> DownloadError:
    """Return the one line for an operating system error met while writing model `name` into `folder`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(name, folder)
    reason = error.strerror or type(error).__name__
    return DownloadError(
        f"cannot pull {name}: {reason}: {error.filename or folder}; set FOREDRAFT_CACHE to a folder that can be written"
    )


def disk_full(name: str, folder: Path) -> DownloadError:
    """Return the one line for a disk without room for model `name`."""
    return DownloadError(
        f"cannot pull {name}: no space left on the disk of {folder}; "
        "free some, or set FOREDRAFT_CACHE to a folder on another disk"
    )


@contextlib.contextmanager
def pulling(name: str, folder: Path, progress: ProgressCallback | None = None) -> Iterator[Path]:
    """Hold the lock of model `name` and yield an empty working folder on the cache's disk.

    Leftovers of pulls that died are removed first: nobody else works on this model while we hold its lock.

    Raises:
        DownloadError: the cache folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / f".{name}.lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            if progress:
                progress(Progress("waiting for another process that is pulling it"))
            lock.acquire()
    except OSError as error:
        raise disk_error(name, folder, error) from error
    try:
        remove_leftovers(name, folder)
        try:
            work = Path(tempfile.mkdtemp(prefix=f".{name}.work-", dir=folder))
        except OSError as error:
            raise disk_error(name, folder, error) from error
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        lock.release()


def remove_leftovers(name: str, folder: Path) -> None:
    """Remove what dead pulls of model `name` left; to be called with the model's lock held."""
    for work in folder.glob(f".{name}.work-*"):
        shutil.rmtree(work, ignore_errors=True)


def enter(
    source: BinaryIO,
    size: int,
    sha256: str,
    work: Path,
    destination: Path,
    progress: ProgressCallback | None = None,
) -> None:
    """Copy `source` to `destination` by way of the working folder, which is on the same disk.

    `destination` appears, complete and already on the disk, only when the copy has the expected size (bytes)
    and sha256.

    Raises:
        DownloadError: the content is not the expected one.
        OSError: the disk is full or cannot be written.
    """
    partial = work / f"{destination.name}.partial"
    digest, done = hashlib.sha256(), 0
    with partial.open("wb") as file:
        while block := source.read(BLOCK):
            file.write(block)
            digest.update(block)
            done += len(block)
            if progress:
                progress(Progress("unpacking", done, size))
        file.flush()
        os.fsync(file.fileno())
    if done != size or digest.hexdigest() != sha256:
        raise DownloadError(
            f"cannot pull {destination.stem}: the download is damaged ({done} bytes with sha256 "
            f"{digest.hexdigest()[:12]}..., expected {size} with {sha256[:12]}...); "
            "nothing was kept, try again"
        )
    os.replace(partial, destination)
    sync_folder(destination.parent)


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to the disk, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
