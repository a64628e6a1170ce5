"""Orders and comparisons that the speculation benchmark needs; its arithmetic is `foredraft.bench.measuring`."""

from collections.abc import Sequence


def rotated(names: Sequence[str], turn: int) -> list[str]:
    """The names starting with another one each turn, so that none is always measured first."""
    start = turn % len(names) if names else 0
    return [*names[start:], *names[:start]]


def spaced(num: int, wanted: int) -> list[int]:
    """`wanted` indices out of `num`, evenly spaced so that all families of an ordered list are among them."""
    if wanted >= num:
        return list(range(num))
    return [i * num // wanted for i in range(wanted)]


def first_difference(left: Sequence[int], right: Sequence[int]) -> int | None:
    """Index of the first token that differs (also where one sequence ends early), None when equal."""
    for i, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return i
    return None if len(left) == len(right) else min(len(left), len(right))
