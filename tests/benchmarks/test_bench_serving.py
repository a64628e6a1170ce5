"""Servers under load: what the figures are made of, and a real run of two servers."""

from pathlib import Path

import pytest

from benchmarks import serving
from benchmarks.figures import serving_load
from benchmarks.serving import OURS, PLAIN, Load, Plan


def seen(server: str, turn: int, count: int, tokens_per_s: float, text: str = "a") -> Load:
    return Load(
        server=server,
        turn=turn,
        num_clients=count,
        num_requests=count,
        num_tokens=int(tokens_per_s * 10),
        seconds=10.0,
        first_token_s=0.1 * (turn + 1),
        texts=(text,) * count,
    )


def test_ratios_are_medians_over_rounds() -> None:
    found = []
    for turn, (ours, plain, peer, other) in enumerate([(30, 20, 10, 5), (60, 20, 15, 20), (20, 20, 10, 1)]):
        found += [seen(OURS, turn, 4, ours), seen(PLAIN, turn, 4, plain)]
        found += [seen("llama-server none", turn, 4, peer), seen("llama-server x", turn, 4, other)]
    result = serving.summary(found)
    [row] = result["clients"]
    assert (row["to_plain"], row["to_peer"], row["equal"]) == (1.5, 3.0, True)
    assert row["servers"][OURS] == {"tokens_per_s": 30, "first_token_s": pytest.approx(0.2)}
    assert "1.50 of plain decoding, the same texts, 3.00 of llama-server's best" in serving.report(result)
    assert "| 4 " in serving_load(result).replace("|       4 ", "| 4 ")


def test_other_texts_are_said() -> None:
    result = serving.summary([seen(OURS, 0, 1, 10), seen(PLAIN, 0, 1, 10, text="b")])
    assert result["clients"][0]["to_peer"] is None
    assert "OTHER TEXTS" in serving.report(result)
    assert "DIFFER" in serving_load(result)


def test_two_servers_answer(smollm2_path: Path, tmp_path: Path) -> None:
    plan = Plan(
        model=smollm2_path,
        prompts=["Name a colour.", "Count to three."],
        clients=(1, 3),
        rounds=1,
        per_client=1,
        max_tokens=6,
        threads=2,
        peer=None,
        peer_modes=(),
        options=(),
        log=tmp_path / "log",
    )
    found = serving.measure(plan)
    assert [(one.num_clients, one.num_requests) for one in found] == [(1, 1), (1, 1), (3, 3), (3, 3)]
    assert all(one.num_tokens <= 6 * one.num_requests and one.first_token_s > 0 for one in found)
    assert all(row["equal"] for row in serving.summary(found)["clients"])
    with pytest.raises(ValueError, match="no prompt"):
        serving.measure(Plan(**{**vars(plan), "prompts": []}))
