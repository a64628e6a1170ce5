"""How large a cache is made: what was asked for, else what there is a use and memory for."""

from typing import Any

import pytest

from foredraft.cache.capacity import num_positions, parse_memory
from foredraft.errors import OptionError


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        (1000, 1000),
        ("1000", 1000),
        ("512M", 512_000_000),
        ("512MB", 512_000_000),
        ("2G", 2_000_000_000),
        ("1.5GiB", 1_610_612_736),
        (" 3 ki ", 3072),
    ],
)
def test_sizes_as_people_write_them(text: int | str, num_bytes: int) -> None:
    assert parse_memory(text) == num_bytes


@pytest.mark.parametrize("wrong", ["", "G", "-1G", "1T", "2 G B", 0, -5, True, 1.5, None, "0.0001", "9" * 400, [1]])
def test_sizes_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match="--kv-memory must be a size such as") as caught:
        parse_memory(wrong)
    assert repr(wrong) in str(caught.value)


def positions(**given: int | None) -> int:
    usual: dict[str, Any] = {
        "kv_memory": None,
        "bytes_per_position": 1000,
        "context_length": 4096,
        "max_running": 8,
        "free_memory": 10**12,
    }
    return num_positions(**(usual | given))


def test_what_is_asked_for_is_given() -> None:
    assert positions(kv_memory=5_000_999, free_memory=0) == 5000


def test_by_itself_it_holds_the_longest_sequences_that_may_run() -> None:
    assert positions() == 8 * 4096
    assert positions(max_running=1) == 4096


@pytest.mark.parametrize(
    ("free_memory", "expected"), [(20_000_000, 10_000), (5_000_000, 2500), (1000, 2048), (0, 2048)]
)
def test_it_takes_half_of_the_free_memory_at_most(free_memory: int, expected: int) -> None:
    """Kind: a model for long contexts takes all memory, though nobody writes long texts."""
    assert positions(free_memory=free_memory) == expected


def test_a_short_context_needs_no_more_than_itself() -> None:
    assert positions(context_length=64, free_memory=0) == 64


@pytest.mark.parametrize(("context_length", "least"), [(4096, 256_000), (100, 100_000)])
def test_a_size_that_holds_nearly_nothing_is_refused(context_length: int, least: int) -> None:
    """Kind: a slip in the unit makes every prompt too long, and the message says nothing of it."""
    assert positions(kv_memory=least, context_length=context_length) == least // 1000
    with pytest.raises(OptionError, match=f"--kv-memory .* of this model: give at least {least}"):
        positions(kv_memory=least - 1, context_length=context_length)
