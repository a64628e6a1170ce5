"""A planner in a world whose best plan is known: drafts right as often as we say, in time that is simulated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from foredraft.bench.simulate import Simulated, SimulatedRound, known_sequence, simulate
from foredraft.drafters.base import Drafter, Outcome
from foredraft.planner import AutoPlanner, Plan, RoundResult, RoundTimes
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.sequence import Batch
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.testing.synthetic import Acceptance

TILES = Calibration((1, 8, 16), (1.0, 1.6, 2.8))
"""As measured with our kernels: tokens are cheap up to 8."""
STEEP = Calibration((1, 2), (1.0, 2.0))
OVERHEAD_S = 0.05
CHUNK_TOKENS = 64
MOST = {True: 15, False: 12}  # tokens drafted at most, by drafters that are model-free and not


def auto_planner(
    drafters: Sequence[Drafter],
    clock: SimulatedClock,
    steps: dict[str, Calibration] | None = None,
    *,
    cost: Calibration = TILES,
    **options: object,
) -> AutoPlanner:
    """A planner that knows what everything costs. steps: of model-based drafters."""
    step_costs = {name: StepCosts(calibration) for name, calibration in (steps or {}).items()}
    return AutoPlanner(drafters, CostModel(cost), step_costs, clock=clock, **options)  # type: ignore[arg-type]


def told(plan: Plan, paths: Sequence[Sequence[int]], times: RoundTimes, *, num_prefill_tokens: int = 0) -> RoundResult:
    """What a round came to in which these paths were accepted. The tokens are up to the test."""
    outcomes = [
        Outcome(tree, tuple(path), np.zeros((tree.num_nodes, 1), np.float32))
        for tree, path in zip(plan.trees, paths, strict=True)
    ]
    return RoundResult(tuple(outcomes), times, num_prefill_tokens)


@dataclass
class World:
    """A target and one drafter. step: seconds of a draft step in those of a target's pass; 0: the drafter is
    model-free. prefill: of one token. thought: what the planner is told of passes, where that is not true."""

    acceptance: Acceptance
    step: float = 0.0
    calibration: Calibration = TILES
    confidence: Callable[[float], float] | None = None
    prefill: float = 0.0
    thought: Calibration | None = None
    drafter: SyntheticDrafter = field(init=False)

    def run(self, *, num_tokens: int = 1000, num_sequences: int = 1, max_running: int | None = None) -> Simulated:
        clock = SimulatedClock()
        text = [place % 997 for place in range(num_tokens)]
        self.drafter = SyntheticDrafter(
            text,
            self.acceptance,
            clock=clock,
            confidence=self.confidence,
            step_s=(lambda num: self.step) if self.step else None,
            prefill_s=self.prefill,
        )
        chunk_s = max(self.step, CHUNK_TOKENS * self.prefill)
        steps = {self.drafter.name: Calibration((1, CHUNK_TOKENS), (self.step, chunk_s))} if self.step else {}
        planner = auto_planner([self.drafter], clock, steps, cost=self.thought or self.calibration)
        sequences = [known_sequence(index, [1, *text], 1) for index in range(num_sequences)]
        seconds = CostModel(self.calibration).seconds
        return simulate(
            sequences, planner, seconds, clock, overhead_s=OVERHEAD_S, max_running=max_running or num_sequences
        )

    def speed(self, num_drafted: int, num_sequences: int = 1) -> float:
        """Tokens per second with chains of a length, by formula."""
        path = tokens = 1.0
        for depth in range(1, num_drafted + 1):
            path *= self.chance(depth)
            tokens += path
        verify = CostModel(self.calibration).seconds(num_sequences * (num_drafted + 1))
        return num_sequences * tokens / (num_drafted * self.step + verify + OVERHEAD_S)

    def best(self, num_sequences: int = 1) -> int:
        """The best length of a chain, by trying all."""
        return max(range(MOST[not self.step] + 1), key=lambda length: self.speed(length, num_sequences))

    def chance(self, depth: int) -> float:
        assert not callable(self.acceptance)
        if isinstance(self.acceptance, Sequence):
            return self.acceptance[min(depth, len(self.acceptance)) - 1]
        return self.acceptance


def planned(planner: AutoPlanner, *sequences: object) -> Plan:
    """A plan for running sequences alone."""
    return planner.plan(Batch(tuple(sequences)))  # type: ignore[arg-type]


def settled(simulated: Simulated) -> list[SimulatedRound]:
    """The second half, without the end, where few tokens remain."""
    rounds = simulated.rounds[:-16]
    return rounds[len(rounds) // 2 :]


def usual_length(simulated: Simulated) -> float:
    return median(num for one in settled(simulated) for num in one.num_drafted)


def usual_speed(rounds: Sequence[SimulatedRound]) -> float:
    return sum(one.num_tokens for one in rounds) / sum(one.times.total for one in rounds)
