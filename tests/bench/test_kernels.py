import json
from typing import Any

import pytest
from helpers.bench_sides import Ours, Theirs

from foredraft.bench.kernels import KernelPlan, measure
from foredraft.bench.report import report
from foredraft.bench.starting import summary as summary_of_starts
from foredraft.errors import OptionError

PLAN = KernelPlan(sizes=(1, 4, 8, 12), contexts=(0, 32), prompt=16, generate=4, num_rounds=3, repeats=2)


def measured(*, with_peer: bool, log: list[str] | None = None) -> dict[str, Any]:
    ours = Ours([] if log is None else log)
    notes: list[str] = []
    peer = Theirs(ours) if with_peer else None
    slowed = 1.5  # by the prompt, which comes after the bandwidth in a round
    result = measure(ours, lambda: 20e9 / (ours.slower * slowed), peer, PLAN, note=notes.append)
    assert notes == [f"round {done} of 3 done" for done in (1, 2, 3)]
    return result


def whole(result: dict[str, Any], *, with_peer: bool) -> dict[str, Any]:
    """What the command adds to the figures."""
    start = {"ready_s": 0.5, "whole_s": 0.75, "peak_bytes": 200e6}
    rounds = {"foredraft": [start] * 3, "llama.cpp": [{"whole_s": 0.25, "peak_bytes": 250e6}] * 3}
    starts = summary_of_starts(rounds if with_peer else {"foredraft": [start] * 3}, num_file_bytes=100_000_000)
    return {
        "machine": {"processor": "a processor", "load_average_at_start": 0.1},
        "model": {"name": "a.gguf", "num_bytes": 100_000_000},
        "num_threads": 2,
        "isa": "portable",
        "peer_version": "version: 7" if with_peer else None,
        "settings": {"num_rounds": 3},
        "start_up": starts,
        **result,
    }


def test_both_sides_take_turns_and_ratios_are_paired() -> None:
    log: list[str] = []
    found = measured(with_peer=True, log=log)
    assert log == ["ours", "theirs"] * 3
    assert found["ours_to_theirs"]["decode_tokens_per_s"]["median"] == pytest.approx(2.0)
    expected = {"median": 2.0, "low": 2.0, "high": 2.0, "num": 3}
    assert found["ours_to_theirs"]["prompt_tokens_per_s"] == pytest.approx(expected)
    relative = found["foredraft"]["forward"][0]["relative"]
    assert relative[8]["median"] == pytest.approx(2.8 / 2.1)
    assert relative[8]["low"] == pytest.approx(relative[8]["high"])
    assert found["llama.cpp"]["short_prompt"][0]["relative"][4]["median"] == pytest.approx(4.0)


def test_the_limit_is_taken_from_the_same_round() -> None:
    found = measured(with_peer=False)["foredraft"]["of_bandwidth_limit"]
    # Read: 21 MB of weights in 2.1 ms are 10 GB/s, of 20 GB/s, whatever slows both down.
    assert found == pytest.approx({"median": 0.5, "low": 0.5, "high": 0.5, "num": 3})


def test_behind_a_context_the_peer_is_measured_at_few_sizes() -> None:
    forward = measured(with_peer=True)["llama.cpp"]["forward"]
    assert list(forward[0]["relative"]) == [1, 4, 8, 12]
    assert list(forward[32]["relative"]) == [1, 4, 8]


def test_the_parts_of_a_round() -> None:
    rounds = measured(with_peer=False)["foredraft"]["rounds"]
    assert rounds["verify"]["num_tokens"] == 8
    assert rounds["verify"]["parts_s"]["linear"]["median"] == 0.007
    plain = rounds["plain"]
    assert sum(part["median"] for part in plain["parts_s"].values()) == pytest.approx(plain["whole_s"]["median"])


def test_tables_with_a_peer() -> None:
    result = whole(measured(with_peer=True), with_peer=True)
    lines = report(result).splitlines()
    assert lines[:4] == [
        "a.gguf (100 MB), 2 threads, portable, medians of 3",
        "a processor, load 0.1 at the start",
        "read bandwidth 8.9 GB/s; a token reads 21 MB of weights",
        "llama.cpp version: 7",
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert ["figure", "foredraft", "llama.cpp", "ratio"] in rows
    assert ["T(1) after 0 tokens, of the bandwidth limit", "50%", "-", "-"] in rows
    assert ["start, one token, end, s", "0.75", "0.25", "-"] in rows
    assert ["peak memory to file", "2.00", "-", "-"] in rows
    assert ["n = 8", "1.33", "8.00", "1.33", "8.00", "8.00"] in rows
    assert ["n = 12", "1.52", "12.00", "1.52", "-", "12.00"] in rows
    assert ["outside", "2.25", "25.0%", "1.00", "12.5%"] in rows
    assert not any(line != line.rstrip() for line in lines)


def test_tables_without_a_peer() -> None:
    result = whole(measured(with_peer=False), with_peer=False)
    assert result["llama.cpp"] is result["ours_to_theirs"] is result["start_up"]["llama.cpp"] is None
    assert "llama.cpp" not in report(result)


def test_what_is_printed_can_be_read_again() -> None:
    for with_peer in (True, False):
        json.loads(json.dumps(whole(measured(with_peer=with_peer), with_peer=with_peer), allow_nan=False))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sizes": (2, 4)}, "hold 1"),
        ({"sizes": (0, 1)}, "positive"),
        ({"contexts": (-1,)}, "--contexts"),
        ({"contexts": ()}, "--contexts"),
        ({"num_rounds": 0}, "--rounds must be at least 1, got 0"),
        ({"repeats": 0}, "--repeats must be at least 1, got 0"),
    ],
)
def test_senseless_plans_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KernelPlan(**wrong)
