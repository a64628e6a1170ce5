"""What a planner did for a sequence, in words."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from foredraft.drafters.base import Outcome


@dataclass
class Explanation:
    """Counts of a sequence's rounds. proposed, drafted, accepted: by drafter; a drafter drafted what was verified."""

    num_rounds: int = 0
    num_drafted_rounds: int = 0
    proposed: Counter[str] = field(default_factory=Counter)
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome, proposers: Sequence[str]) -> None:
        """Count a round. proposers: the drafters that had a proposal."""
        self.num_rounds += 1
        self.num_drafted_rounds += outcome.num_draft_tokens > 0
        for name in proposers:
            self.proposed[name] += 1
        sources = outcome.tree.sources
        if sources:
            self.drafted.update(sources[1:])
            self.accepted.update([sources[node] for node in outcome.path])

    def words(self, names: Sequence[str], remarks: Iterable[str]) -> str:
        """One line: rounds with a draft, and of each drafter what of its tokens was verified and accepted."""
        parts = [f"auto: drafted in {self.num_drafted_rounds} of {self.num_rounds} rounds"]
        for name in names:
            if self.drafted[name]:
                rate = self.accepted[name] / self.drafted[name]
                parts.append(f"{name}: {rate:.0%} of {self.drafted[name]} tokens accepted")
            elif self.proposed[name]:
                parts.append(f"{name}: had proposals in {self.proposed[name]} rounds, none worth verifying")
        return "; ".join([*parts, *remarks])
