"""How often the tokens of a drafter with a model of its own are right, whatever it says of them itself."""

from dataclasses import dataclass

GUESS_WEIGHT = 6.0
"""Tokens that what is known beforehand weighs as much as."""
FADES = 0.97
"""Weight that a token keeps when the next one is counted."""


@dataclass
class Share:
    """The share of a drafter's tokens that were right, recent ones counting most."""

    right: float = 0.0
    total: float = 0.0
    num_in_vain: int = 0

    def count(self, *, right: bool) -> None:
        """A token whose parent was right."""
        self.right = FADES * self.right + right
        self.total = FADES * self.total + 1.0

    def asked_in_vain(self) -> None:
        """It had no token to propose, which is worth as much as a wrong one."""
        self.count(right=False)
        self.num_in_vain += 1

    def estimate(self, prior: float) -> float:
        """The share, where `prior` is what it is taken for beforehand."""
        return (self.right + GUESS_WEIGHT * prior) / (self.total + GUESS_WEIGHT)
