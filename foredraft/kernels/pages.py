"""Weights are read from a mapped file once, to be repacked; what was read need not stay in memory."""

import mmap

import numpy as np
from numpy.typing import NDArray


def release_pages(view: NDArray[np.uint8]) -> bool:
    """Let go of the whole pages under a view of a mapped file; reading them again fetches them again.

    Does nothing for arrays that do not lie in a mapped file, for those that could be written to (memory without a file
    behind it would lose its contents), and where the system has no such call. Returns whether the array lies in a
    mapped file and cannot be written to.
    """
    if view.flags.writeable:
        return False
    owner: object = view
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    if not isinstance(owner, mmap.mmap):
        return False
    if not hasattr(owner, "madvise"):
        return True
    offset = view.ctypes.data - np.frombuffer(owner, dtype=np.uint8).ctypes.data
    first = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
    last = (offset + view.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
    return True
