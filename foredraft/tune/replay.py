"""Playing recorded completions again: what would other drafters, lengths and trees have brought?

The texts are known, so a round is simulated by asking what the drafter proposed at that place, and how far it is right;
its time follows from what passes cost. Drafters that follow from the text alone are asked anew. Of all others the
proposals are those of the recording: at the place itself, or what an earlier proposal said of it where the text went
that way. Where there is neither the round goes without a draft, and `coverage` tells how often there was one.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foredraft.bench.simulate import Simulated, known_sequence, simulate
from foredraft.config import DraftConfig
from foredraft.drafters import (
    DelegatingDrafter,
    Drafter,
    DrafterSpec,
    Outcome,
    SequenceView,
    drafter_of_text,
    likeliest_part,
    no_draft,
)
from foredraft.planner import AutoPlanner, FixedPlanner, Planner
from foredraft.planner.cost import CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.testing import OracleDrafter, SimulatedClock
from foredraft.tree import Budget, DraftTree
from foredraft.tune.recorded import Recorded
from foredraft.tune.settings import PLAIN

MAX_SUBSETS = 4
"""Drafters up to whose number `auto` is tried with all subsets of them."""


class RecordedDrafter(Drafter):
    """Proposes what was proposed when the recording was made.

    num_asked, num_known: places it was asked for, and of these those for which there is a recording.
    """

    def __init__(self, name: str, recorded: Recorded, clock: SimulatedClock, steps: StepCosts | None) -> None:
        self.spec = DrafterSpec(name=name, model_free=name not in recorded.model_based)
        self.num_asked = self.num_known = 0
        self._recorded, self._clock, self._steps = recorded, clock, steps
        self._anew = drafter_of_text(name)
        self._cached: dict[int, tuple[int, ...]] = {}

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        if self._anew is not None:
            self.num_asked += len(sequences)
            self.num_known += len(sequences)
            return self._anew.propose(sequences, budgets)
        trees = [
            self._propose_one(sequence, budget) if budget.num_tokens > 0 else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]
        self._take_time(sequences, trees)
        return trees

    def _propose_one(self, sequence: SequenceView, budget: Budget) -> DraftTree:
        self.num_asked += 1
        known = self.tree_at(sequence)
        if known is None:
            return no_draft(sequence)
        self.num_known += 1
        return likeliest_part(known, budget) if self.model_free else _as_far_as_it_pays(known, budget)

    def tree_at(self, sequence: SequenceView) -> DraftTree | None:
        """What is known of the proposal at the place a sequence has come to; None: nothing."""
        own = self._recorded.proposals[self.name]
        tokens = sequence.tokens
        for back in range(min(self._recorded.width, len(tokens) - sequence.num_prompt_tokens) + 1):
            tree = own.get((sequence.id, len(tokens) - back))
            if tree is not None:
                return _below(tree, tokens[len(tokens) - back :])
        return None

    def _take_time(self, sequences: Sequence[SequenceView], trees: Sequence[DraftTree]) -> None:
        if self._steps is None:
            return
        uncached = sum(max(0, self.num_uncached_tokens(sequence) - 1) for sequence in sequences)
        self._clock.advance(self._steps.prefill_s(uncached))
        depths = [max(tree.depths) for tree in trees]
        for level in range(max(depths)):
            self._clock.advance(self._steps.step_s(sum(level < depth for depth in depths)))
        for sequence, tree in zip(sequences, trees, strict=True):
            self._cached[sequence.id] = (*sequence.tokens, *tree.first_chain().tokens[1:-1])

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        if self._anew is not None:
            self._anew.observe(sequences, outcomes)

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._cached.pop(sequence_id, None)
        if self._anew is not None:
            self._anew.end(sequence_id)

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`."""
        if self._steps is None:
            return 0
        cached, tokens = self._cached.get(sequence.id, ()), sequence.tokens
        shorter = min(len(cached), len(tokens) - 1)
        common = next((i for i in range(shorter) if cached[i] != tokens[i]), shorter)
        return len(tokens) - 1 - common

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `Drafter`."""
        return self._steps.prefill_s(num_tokens) if self._steps else 0.0


def _below(tree: DraftTree, path: Sequence[int]) -> DraftTree | None:
    """The part of a tree below a path of tokens; None where it does not hold the path, or ends with it."""
    at = 0
    for token in path:
        child = tree.child(at, token)
        if child is None:
            return None
        at = child
    if not path:
        return tree
    nodes = [at]
    for node in range(at + 1, tree.num_nodes):
        if tree.parents[node] in nodes:
            nodes.append(node)
    if len(nodes) == 1:
        return None
    index = {node: i for i, node in enumerate(nodes)}
    return DraftTree(
        tuple(tree.tokens[node] for node in nodes),
        (-1, *(index[tree.parents[node]] for node in nodes[1:])),
        (1.0, *(tree.confidence[node] for node in nodes[1:])),
    )


def _as_far_as_it_pays(tree: DraftTree, budget: Budget) -> DraftTree:
    """What a drafter with this budget would have drafted of a chain."""
    chain, survival = tree.first_chain(), 1.0
    for depth in range(1, min(chain.num_draft_tokens, budget.num_tokens) + 1):
        survival *= budget.chance(chain.confidence[depth], depth)
        if not budget.goes_on(survival, depth):
            return chain.cut(depth)
    return chain.cut(budget.num_tokens)


class _Chains(DelegatingDrafter):
    """A drafter whose trees are cut down to the chain of first children."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        wide = [replace(budget, num_tokens=4 * budget.num_tokens) for budget in budgets]
        trees = super().propose(sequences, wide)
        return [tree.first_chain().cut(b.num_tokens) for tree, b in zip(trees, budgets, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a setting would have brought. coverage: part of the proposals asked for that the recording knows."""

    setting: str
    mean_acceptance_length: float
    num_rounds: int
    num_draft_tokens: int
    acceptance_rate: float | None
    tokens_per_s: float
    speed_up: float
    coverage: float


class Replay:
    """Plays a recording with settings of one's own."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        clock = SimulatedClock()
        self._plain = self._simulated(FixedPlanner(OracleDrafter(()), 0, clock=clock), clock)

    def play(self, config: DraftConfig, *, chains: bool = False) -> Replayed:
        """What a way of drafting would have brought: one drafter with a number of draft tokens, or several that the
        planner chooses from. Drafters have the names of the recording.

        chains: of trees only the first child of each node.
        """
        recorded, clock = self.recorded, SimulatedClock()
        steps = {
            name: StepCosts(recorded.calibrations[name]) for name in config.drafters if name in recorded.model_based
        }
        drafters = [RecordedDrafter(name, recorded, clock, steps.get(name)) for name in config.drafters]
        if config.num_draft_tokens is None:
            cost = CostModel(recorded.calibrations[""])
            planner: Planner = AutoPlanner(drafters, cost, steps, clock=clock)
        else:
            [drafter] = drafters
            planner = FixedPlanner(_Chains(drafter) if chains else drafter, config.num_draft_tokens, clock=clock)
        simulated = self._simulated(planner, clock)
        return self._replayed(f"{config.name}{' chain' if chains else ''}", simulated, drafters)

    def _replayed(self, name: str, simulated: Simulated, drafters: Sequence[RecordedDrafter]) -> Replayed:
        num_drafted = sum(sum(one.num_drafted) for one in simulated.rounds)
        num_accepted = sum(sum(one.num_accepted) for one in simulated.rounds)
        num_asked = sum(drafter.num_asked for drafter in drafters)
        return Replayed(
            setting=name,
            mean_acceptance_length=simulated.mean_acceptance_length,
            num_rounds=simulated.num_sequence_rounds,
            num_draft_tokens=num_drafted,
            acceptance_rate=num_accepted / num_drafted if num_drafted else None,
            tokens_per_s=simulated.tokens_per_s,
            speed_up=simulated.tokens_per_s / self._plain.tokens_per_s,
            coverage=sum(drafter.num_known for drafter in drafters) / num_asked if num_asked else 1.0,
        )

    def _simulated(self, planner: Planner, clock: SimulatedClock) -> Simulated:
        recorded = self.recorded
        sequences = [
            known_sequence(id, text, recorded.num_prompt_tokens[id], recorded.params[id])
            for id, text in recorded.texts.items()
        ]
        seconds = CostModel(recorded.calibrations[""]).seconds
        return simulate(sequences, planner, seconds, clock, overhead_s=recorded.overhead_s)


def replay_all(recorded: Recorded, lengths: Sequence[int]) -> list[Replayed]:
    """Every drafter with numbers of draft tokens, as trees and as chains, and what the planner makes of several."""
    replay, names = Replay(recorded), recorded.drafters
    found: list[Replayed] = []
    for name in names:
        fixed = [replace(PLAIN, drafters=(name,), num_draft_tokens=length) for length in lengths]
        found.extend(map(replay.play, fixed))
        if any(not tree.is_chain for tree in recorded.proposals[name].values()):
            found.extend(replay.play(config, chains=True) for config in fixed)
    sizes = range(1, len(names) + 1) if len(names) <= MAX_SUBSETS else (1, len(names))
    subsets = [some for size in sizes for some in itertools.combinations(names, size)]
    return [*found, *(replay.play(replace(PLAIN, drafters=some)) for some in subsets)]
