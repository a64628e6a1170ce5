from collections.abc import Sequence

import pytest

from benchmarks.kernels import KernelPlan, measure, report

PLAN = KernelPlan(sizes=(1, 4, 8), contexts=(0, 32), prompt=16, generate=4, num_rounds=3, repeats=2)


class Ours:
    """Forwards of 2 ms and 0.1 ms for every token; each round is slower by half than the one before."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.slower = 1.0

    def forward_seconds(self, num_tokens: int, *, context: int) -> float:
        return self.slower * (0.002 + 0.0001 * num_tokens + 1e-6 * context)

    def prompt_tokens_per_s(self, num_tokens: int) -> float:
        self.log.append("ours")
        self.slower *= 1.5
        return 200.0 / self.slower

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        return 40.0 / self.slower


class Theirs:
    """Half as fast as ours, slowed down in the same rounds; forwards in proportion to their tokens."""

    def __init__(self, ours: Ours) -> None:
        self.ours = ours

    def bench(self, *, prompt: int, generate: int) -> dict[str, float]:
        self.ours.log.append("theirs")
        return {f"pp{prompt}": 100.0 / self.ours.slower, f"tg{generate}": 20.0 / self.ours.slower}

    def short_prompts(self, sizes: Sequence[int], *, context: int, repeats: int) -> dict[int, float]:
        return {size: 0.002 * size for size in sizes}

    def decode_steps(self, sizes: Sequence[int], *, context: int, num_steps: int) -> dict[int, float]:
        return {size: 0.003 * size for size in sizes}


def test_both_sides_take_turns_and_ratios_are_paired() -> None:
    log: list[str] = []
    ours = Ours(log)
    result = measure(ours, Theirs(ours), PLAN)
    assert log == ["ours", "theirs"] * 3
    found = result["summary"]
    assert found["ours_to_theirs"]["decode_tokens_per_s"]["median"] == pytest.approx(2.0)
    assert found["ours_to_theirs"]["prompt_tokens_per_s"] == pytest.approx(
        {"median": 2.0, "low": 2.0, "high": 2.0, "num": 3}
    )
    relative = found["foredraft"]["forward_s"][0]["relative"]
    assert relative[8]["median"] == pytest.approx(2.8 / 2.1)
    assert relative[8]["low"] == pytest.approx(relative[8]["high"])
    assert found["llama.cpp"]["short_prompt_s"][32]["relative"][4]["median"] == pytest.approx(4.0)


def test_report_has_every_figure() -> None:
    ours = Ours([])
    text = report(measure(ours, Theirs(ours), PLAN))
    assert "| plain decode" in text
    assert "forward after 32 tokens" in text
    assert "llama.cpp, prompt of n" in text
    assert "| T(8) / T(1)             |      1.33 |      8.00 |                   8.00 |" in text


def test_without_a_peer() -> None:
    result = measure(Ours([]), None, PLAN)
    assert "ours_to_theirs" not in result["summary"]
    assert "llama.cpp" not in report(result)


def test_sizes_need_the_one_they_are_relative_to() -> None:
    with pytest.raises(ValueError, match="hold 1"):
        KernelPlan(sizes=(2, 4))
