import time
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.measuring import first_difference, in_lockstep, rotated, spaced
from benchmarks.tables import figure, table


def test_every_name_is_first_in_turn() -> None:
    assert [rotated(["a", "b", "c"], turn) for turn in (0, 1, 2, 3)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 1) == []


@given(st.integers(1, 200), st.integers(1, 200))
def test_spaced_indices_are_distinct_and_within(num: int, wanted: int) -> None:
    found = spaced(num, wanted)
    assert len(found) == min(num, wanted)
    assert found == sorted(set(found))
    assert found[0] == 0
    assert found[-1] < num


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [([1, 2], [1, 2], None), ([], [], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [4], 0)],
)
def test_first_difference(left: list[int], right: list[int], index: int | None) -> None:
    assert first_difference(left, right) == index


def test_table_lines_up() -> None:
    assert table(["x", "value"], [["first", "1.0"], ["b", "22.50"]]).splitlines() == [
        "| x     | value |",
        "|-------|------:|",
        "| first |   1.0 |",
        "| b     | 22.50 |",
    ]
    assert figure(None) == "-"
    assert figure(1.005, 1) == "1.0"


def test_who_has_come_least_far_goes_next() -> None:
    """Kind: answers are measured one after the other, while the machine becomes faster or slower."""
    order: list[str] = []

    def answer(name: str, tokens_per_step: int, step_s: float) -> Generator[int, None, str]:
        for step in range(1, 1 + 12 // tokens_per_step):
            order.append(name)
            time.sleep(step_s)
            yield tokens_per_step * step
        return name.upper()

    answers = {"plain": answer("plain", 1, 0.0), "fast": answer("fast", 4, 0.02), "whole": answer("whole", 12, 0.0)}
    results, seconds = in_lockstep(answers)
    assert results == {"plain": "PLAIN", "fast": "FAST", "whole": "WHOLE"}
    assert order == ["plain", "fast", "whole", *["plain"] * 3, "plain", "fast", *["plain"] * 4, "fast", *["plain"] * 3]
    assert seconds["fast"] >= 3 * 0.02 > seconds["whole"]
