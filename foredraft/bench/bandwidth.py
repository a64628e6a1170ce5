"""How fast this machine reads memory: the limit of anything that must read all weights for every token."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

TOTAL_BYTES = 512 * 2**20
"""More than the caches of a processor hold."""
NUM_PASSES = 4


class ReadBandwidth:
    """Arrays that are read over and over.

    The largest of 32-bit integers is searched, one array for each thread: NumPy does it with vector instructions and
    without the interpreter's lock, so that memory and not arithmetic sets the pace.
    """

    def __init__(self, *, num_threads: int, total_bytes: int = TOTAL_BYTES) -> None:
        num_values = max(1, total_bytes // (4 * num_threads))
        self._pool = ThreadPoolExecutor(num_threads)
        self._arrays = list(self._pool.map(_filled, [num_values] * num_threads))

    def measure(self, *, num_passes: int = NUM_PASSES) -> float:
        """Bytes per second, of the fastest of some passes: a limit is what the machine can do at its best."""
        num_bytes = sum(array.nbytes for array in self._arrays)
        fastest = float("inf")
        for _ in range(num_passes):
            started = time.perf_counter()
            for _ in self._pool.map(np.max, self._arrays):
                pass
            fastest = min(fastest, time.perf_counter() - started)
        return num_bytes / fastest

    def close(self) -> None:
        """End the threads and give the memory back."""
        self._pool.shutdown()
        self._arrays = []


def _filled(num_values: int) -> NDArray[np.int32]:
    return np.full(num_values, 1, np.int32)
