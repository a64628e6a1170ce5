"""How many positions a cache is to hold."""

import math
import re

from foredraft.errors import OptionError

LEAST_POSITIONS = 2048
"""A cache holds so many, or the whole context where that is less, however little memory is free."""
MOST_OF_FREE_MEMORY = 0.5
"""Part of the free memory that a cache may grow to, unless told otherwise: the rest is for draft models and others."""
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_memory(value: int | str, *, option: str = "--kv-memory") -> int:
    """Bytes, from a number or a text such as 512M, 2G, 1.5GiB. Raises OptionError."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", value.strip().lower()) if isinstance(value, str) else None
    size = float(match[1]) * _UNITS[match[2] or ""] if match else 0.0
    num_bytes = round(size) if math.isfinite(size) else 0
    if num_bytes < 1:
        raise OptionError(f"{option} must be a size such as 512M, 2G or 1.5GiB, got {value!r}")
    return num_bytes


def num_positions(
    *, kv_memory: int | None, bytes_per_position: int, context_length: int, max_running: int, free_memory: int
) -> int:
    """Positions of the cache of a target.

    kv_memory: bytes that were asked for; None: enough for `max_running` sequences as long as the context, but no more
    than a part of the free memory. Raises OptionError for a size that holds next to nothing.
    """
    if kv_memory is not None:
        positions = kv_memory // bytes_per_position
        if positions < min(context_length, LEAST_POSITIONS // 8):
            least = min(context_length, LEAST_POSITIONS // 8) * bytes_per_position
            raise OptionError(f"--kv-memory {kv_memory} holds {positions} tokens of this model: give at least {least}")
        return positions
    affordable = int(MOST_OF_FREE_MEMORY * free_memory) // bytes_per_position
    wanted = min(max_running * context_length, affordable)
    return max(wanted, min(context_length, LEAST_POSITIONS))
