"""Releasing what was read of a mapped file: memory goes down, and nothing else changes."""

import mmap
import os
from pathlib import Path

import numpy as np

from foredraft.kernels.pages import release_pages

SIZE = 32 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_pages_of_a_file_are_released_and_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(SIZE))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    view = np.frombuffer(mapped, dtype=np.uint8)[100 : SIZE - 100]  # neither end lies on a page
    checksum = int(view.sum(dtype=np.uint64))
    before = resident_bytes()
    release_pages(view)
    assert before - resident_bytes() > SIZE // 2
    assert int(view.sum(dtype=np.uint64)) == checksum


def test_memory_that_is_no_file_keeps_its_contents() -> None:
    for array in (np.full(SIZE, 7, dtype=np.uint8), np.frombuffer(bytearray(b"7" * SIZE), dtype=np.uint8)):
        expected = int(array[0])
        release_pages(array[1:])
        assert (array == expected).all()


def test_anonymous_maps_are_left_alone() -> None:
    """Kind: the call that drops clean pages of a file empties memory that has no file behind it."""
    with mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as anonymous:
        anonymous.write(b"x" * (1 << 20))
        view = np.frombuffer(anonymous, dtype=np.uint8)
        release_pages(view)
        assert (view == ord("x")).all()
        del view
