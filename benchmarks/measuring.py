"""Orders and comparisons that the speculation benchmark needs; its arithmetic is `foredraft.bench.measuring`."""

import time
from collections.abc import Generator, Mapping, Sequence
from typing import TypeVar

Result = TypeVar("Result")


def in_lockstep(answers: Mapping[str, Generator[int, None, Result]]) -> tuple[dict[str, Result], dict[str, float]]:
    """Several answers side by side: the one that has come least far makes the next step. Results, and seconds of each.

    A machine that others use, too, is faster for some seconds and slower for the next. Answers made one after the other
    meet different seconds, and their ratio says more about those than about the answers; in lockstep they share them.

    answers: yield how many tokens they have after each step, and return their result. Where several have come equally
    far, the earlier one in the mapping goes first.
    """
    results: dict[str, Result] = {}
    seconds = dict.fromkeys(answers, 0.0)
    reached = dict.fromkeys(answers, 0)
    while reached:
        name = min(reached, key=reached.__getitem__)
        started = time.perf_counter()
        try:
            reached[name] = next(answers[name])
        except StopIteration as end:
            results[name] = end.value
            del reached[name]
        seconds[name] += time.perf_counter() - started
    return {name: results[name] for name in answers}, seconds


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
