"""Two sides of a benchmark with known figures."""

from collections.abc import Sequence

from foredraft.bench.engine import RoundCost


class Ours:
    """Forwards of 2 ms and 0.1 ms for every token; each round is slower by half than the one before."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.slower = 1.0

    num_weight_bytes = 21_000_000

    def forward_seconds(self, num_tokens: int, *, context: int) -> float:
        return self.slower * (0.002 + 0.0001 * num_tokens + 1e-6 * context)

    def prompt_tokens_per_s(self, num_tokens: int) -> float:
        self.log.append("ours")
        self.slower *= 1.5
        return 200.0 / self.slower

    def decode_tokens_per_s(self, num_tokens: int) -> float:
        return 40.0 / self.slower

    def round_costs(self, *, num_verified: int, num_rounds: int) -> tuple[RoundCost, RoundCost]:
        plain = RoundCost(1, self.slower * 0.004, {"linear": self.slower * 0.003, "outside": self.slower * 0.001})
        return plain, RoundCost(num_verified, 0.008, {"linear": 0.007, "outside": 0.001})


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
