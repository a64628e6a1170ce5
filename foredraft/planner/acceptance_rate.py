"""How often the tokens of a model-based drafter are accepted, whatever it says of them itself."""

from dataclasses import dataclass

GUESS_WEIGHT = 6.0
"""Tokens that what is known beforehand weighs as much as."""
FADES = 0.97
"""Weight that a token keeps when the next one is counted."""


@dataclass
class AcceptanceRate:
    """Tokens drafted behind accepted ones, and those of them that were accepted, recent ones counting most.

    num_in_vain: times that the drafter was asked and had no token to propose.
    """

    accepted: float = 0.0
    drafted: float = 0.0
    num_in_vain: int = 0

    def count(self, *, accepted: bool) -> None:
        """A token whose parent was accepted."""
        self.accepted = FADES * self.accepted + accepted
        self.drafted = FADES * self.drafted + 1.0

    def asked_in_vain(self) -> None:
        """It had no token to propose, which is worth as much as a wrong one."""
        self.count(accepted=False)
        self.num_in_vain += 1

    def estimate(self, prior: float) -> float:
        """The rate, where `prior` is what it is taken for beforehand."""
        return (self.accepted + GUESS_WEIGHT * prior) / (self.drafted + GUESS_WEIGHT)
