import math
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.bench.measuring import alternate, first_difference, in_lockstep, paired_ratios, rotated, summarise


def test_summary_is_median_and_quartiles() -> None:
    found = summarise([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.low, found.median, found.high, found.num) == (2.0, 3.0, 4.0, 5)


def test_summary_of_one_value() -> None:
    assert summarise([2.5]).to_json_dict() == {"median": 2.5, "low": 2.5, "high": 2.5, "num": 1}


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_summary_of_nonsense(values: list[float]) -> None:
    with pytest.raises(ValueError, match=r"nothing|finite"):
        summarise(values)


@given(st.lists(st.floats(0.1, 1e6), min_size=1))
def test_summary_lies_within_the_sample(values: list[float]) -> None:
    found = summarise(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)


def test_paired_ratios_are_blind_to_what_slows_both() -> None:
    assert paired_ratios([20.0, 10.0, 2.0], [10.0, 5.0, 1.0]) == [2.0, 2.0, 2.0]


def test_pairs_need_partners_and_positive_denominators() -> None:
    with pytest.raises(ValueError, match="2 values cannot be paired with 1"):
        paired_ratios([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="positive"):
        paired_ratios([1.0], [0.0])


def test_sides_alternate() -> None:
    calls: list[str] = []
    rounds: list[int] = []

    def side(name: str) -> int:
        calls.append(name)
        return len(calls)

    found = alternate(
        {"ours": lambda: side("ours"), "theirs": lambda: side("theirs")}, num_rounds=3, after=rounds.append
    )
    assert calls == ["ours", "theirs"] * 3
    assert found == {"ours": [1, 3, 5], "theirs": [2, 4, 6]}
    assert rounds == [1, 2, 3]


def test_no_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        alternate({"ours": lambda: 1}, num_rounds=0)


def test_who_has_come_least_far_goes_next() -> None:
    """Kind: completions are measured one after the other, while the machine becomes faster or slower."""
    order: list[str] = []

    def run(name: str, tokens_per_step: int) -> Generator[int, None, str]:
        for step in range(1, 1 + 12 // tokens_per_step):
            order.append(name)
            yield tokens_per_step * step
        return name.upper()

    results = in_lockstep({"plain": run("plain", 1), "fast": run("fast", 4), "whole": run("whole", 12)})
    assert results == {"plain": "PLAIN", "fast": "FAST", "whole": "WHOLE"}
    assert order == ["plain", "fast", "whole", *["plain"] * 3, "plain", "fast", *["plain"] * 4, "fast", *["plain"] * 3]


def test_everyone_is_first_in_turn() -> None:
    assert [rotated(["a", "b", "c"], turn) for turn in (0, 1, 2, 3)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 1) == []


@pytest.mark.parametrize(
    ("left", "right", "index"),
    [([1, 2], [1, 2], None), ([], [], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([], [4], 0)],
)
def test_first_difference(left: list[int], right: list[int], index: int | None) -> None:
    assert first_difference(left, right) == index
