"""In which rounds drafting is considered at all: to ask the model-free drafters, and to plan, takes time, too.

A fraction of a millisecond is nothing beside a pass of a large model, and a tenth of one of a small model. So what
asking brings is compared with what it takes, for each sequence. Where it brings less, the drafters are skipped in most
rounds: they are asked in so many that asking stays within a part of the time, and as soon as that brings something, in
every round again.
"""

import math
from dataclasses import dataclass

ASKING_PART = 0.005
"""Part of the time that asking may take where it brings nothing."""
MOST_SKIPPED = 31
"""Most rounds in a row in which nobody is asked."""
FADES = 0.95
"""Weight that what an asked round brought, or took, keeps when the next one is counted."""
UNUSUAL = 4.0
"""Times its usual cost that asking is taken to have cost at most: the machine was busy with something else."""
FIRST_TRIES = 8
"""Rounds of a new sequence in which the drafters are asked, even if they bring nothing."""


@dataclass
class _Sequence:
    """gained_s: by rounds in which was asked, `num_asked` of them, recent ones counting most. num_to_skip: rounds until
    the next one."""

    gained_s: float = 0.0
    num_asked: float = 0.0
    num_tries: int = 0
    num_to_skip: int = 0


class Skipping:
    """Whether asking pays, for each sequence by itself. What it takes is counted for all together."""

    def __init__(self) -> None:
        self._sequences: dict[int, _Sequence] = {}
        self._cost_s: float | None = None

    def is_due(self, sequence_id: int) -> bool:
        """Whether to ask for a sequence in the coming round."""
        known = self._sequences.get(sequence_id)
        return known is None or not known.num_to_skip

    def count_skipped(self, sequence_id: int) -> None:
        """Note a round in which nobody was asked for a sequence."""
        known = self._sequences.get(sequence_id)
        if known is not None and known.num_to_skip:
            known.num_to_skip -= 1

    def count_cost(self, seconds: float) -> None:
        """Note what asking took for one sequence."""
        if self._cost_s is None:
            self._cost_s = seconds
        else:
            self._cost_s = FADES * self._cost_s + (1.0 - FADES) * min(seconds, UNUSUAL * self._cost_s)

    def count_gain(self, sequence_id: int, gained_s: float, token_s: float) -> None:
        """Note what an asked round was expected to gain for a sequence, and how long to wait with the next one.

        token_s: seconds of a token without drafts.
        """
        cost_s, known = self._cost_s or 0.0, self._sequences.setdefault(sequence_id, _Sequence())
        known.gained_s = FADES * known.gained_s + gained_s
        known.num_asked = FADES * known.num_asked + 1.0
        known.num_tries += 1
        if known.num_tries >= FIRST_TRIES and known.gained_s < cost_s * known.num_asked:
            known.num_to_skip = min(MOST_SKIPPED, max(0, math.ceil(cost_s / (ASKING_PART * token_s)) - 1))

    def end(self, sequence_id: int) -> None:
        """The sequence is over."""
        self._sequences.pop(sequence_id, None)
