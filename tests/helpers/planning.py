"""A planner in a world whose best answer is known: drafts right as often as we say, in time that is simulated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from foredraft.planner import AutoPlanner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.testing.synthetic import Acceptance
from foredraft.tune.simulate import KnownRequest, Simulated, SimulatedRound, simulate

TILES = Calibration((1, 8, 16), (1.0, 1.6, 2.8))
"""As measured with our kernels: rows are cheap up to 8."""
STEEP = Calibration((1, 2), (1.0, 2.0))
OVERHEAD_S = 0.05
READ_ROWS = 64
MOST = {True: 16, False: 12}  # tokens drafted at most, by drafters that are free and not


@dataclass
class World:
    """A target and one drafter. step: seconds of a draft step in those of a target's pass; 0: free."""

    acceptance: Acceptance
    step: float = 0.0
    calibration: Calibration = TILES
    confidence: Callable[[float], float] | None = None
    read: float = 0.0

    def run(self, *, num_tokens: int = 1000, num_requests: int = 1) -> Simulated:
        clock = SimulatedClock()
        text = [place % 997 for place in range(num_tokens)]
        drafter = SyntheticDrafter(
            text,
            self.acceptance,
            clock=clock,
            confidence=self.confidence,
            step_s=(lambda num: self.step) if self.step else None,
            read_s=self.read,
        )
        read_s = max(self.step, READ_ROWS * self.read)
        steps = {drafter.name: StepCosts(Calibration((1, READ_ROWS), (self.step, read_s)))} if self.step else {}
        planner = AutoPlanner([drafter], CostModel(self.calibration), steps, clock=clock)
        requests = [KnownRequest(index, [1, *text], 1) for index in range(num_requests)]
        seconds = CostModel(self.calibration).seconds
        return simulate(requests, planner, seconds, clock, overhead_s=OVERHEAD_S, max_running=num_requests)

    def speed(self, num_drafted: int, num_requests: int = 1) -> float:
        """Tokens per second with chains of a length, by formula."""
        path = tokens = 1.0
        for depth in range(1, num_drafted + 1):
            path *= self.chance(depth)
            tokens += path
        verify = CostModel(self.calibration).seconds(num_requests * (num_drafted + 1))
        return num_requests * tokens / (num_drafted * self.step + verify + OVERHEAD_S)

    def best(self, num_requests: int = 1) -> int:
        """The best length of a chain, by trying all."""
        return max(range(MOST[not self.step] + 1), key=lambda length: self.speed(length, num_requests))

    def chance(self, depth: int) -> float:
        assert not callable(self.acceptance)
        if isinstance(self.acceptance, Sequence):
            return self.acceptance[min(depth, len(self.acceptance)) - 1]
        return self.acceptance


def settled(simulated: Simulated) -> list[SimulatedRound]:
    """The second half, without the end, where there is no room for long chains."""
    rounds = simulated.rounds[:-16]
    return rounds[len(rounds) // 2 :]


def usual_length(simulated: Simulated) -> float:
    return median(num for one in settled(simulated) for num in one.num_drafted)


def usual_speed(rounds: Sequence[SimulatedRound]) -> float:
    return sum(one.num_tokens for one in rounds) / sum(one.times.total for one in rounds)
