"""Learning from rounds how good drafters are, without a planner: `auto` then need not find it out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foredraft.planner import Learned
from foredraft.planner.survival import Survival
from foredraft.trace import Record, RoundRecord
from foredraft.tree import DraftTree

MOST_COUNTED = 30.0
"""Tokens that an acceptance rate counts at most: as many as a planner remembers itself."""


@dataclass
class _Drafter:
    survival: Survival = field(default_factory=Survival)
    num_accepted: int = 0
    num_drafted: int = 0

    def learn(self, tree: DraftTree, emitted: tuple[int, ...]) -> None:
        """Compare a proposal with what was said, as deep as both go."""
        for depth, nodes, right in tree.compared(emitted):
            for node in nodes:
                self.survival.learn(0, tree.confidence[node], depth, right=node == right)
            self.num_drafted += 1
            self.num_accepted += right is not None


class Learning:
    """A sink of trace records. Greedy texts only."""

    def __init__(self) -> None:
        self._drafters: dict[str, _Drafter] = {}

    def __call__(self, record: Record) -> None:
        """Learn from a round: of trees from one drafter alone, and of what drafters proposed in recordings."""
        if not isinstance(record, RoundRecord):
            return
        for proposal in record.proposals:
            tree = DraftTree(proposal.tokens, proposal.parents, proposal.confidence)
            self._drafters.setdefault(proposal.drafter, _Drafter()).learn(tree, record.emitted)
        sources = {source for source in record.sources if source}
        if len(sources) == 1:
            tree = DraftTree(record.tokens, record.parents, record.confidence)
            self._drafters.setdefault(sources.pop(), _Drafter()).learn(tree, record.emitted)

    @property
    def learned(self) -> Mapping[str, Learned]:
        """What was found out, by the drafters' names."""
        return {name: _learned(drafter) for name, drafter in self._drafters.items()}


def _learned(drafter: _Drafter) -> Learned:
    drafted = min(MOST_COUNTED, float(drafter.num_drafted))
    accepted = drafted * drafter.num_accepted / drafter.num_drafted if drafter.num_drafted else 0.0
    return Learned(greedy=drafter.survival.to_json(), greedy_acceptance=(accepted, drafted))
