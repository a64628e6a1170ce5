"""In which rounds the free drafters are asked: asking takes time, too.

A fraction of a millisecond is nothing beside a pass of a large model, and a tenth of one of a small model. So what
asking brings is compared with what it takes, for each answer. Where it brings less, the drafters are asked in some
rounds only, so many that asking stays within a share of the time; as soon as that brings something, in every round
again.
"""

import math
from dataclasses import dataclass

ASKING_SHARE = 0.005
"""Share of the time that asking may take where it brings nothing."""
MOST_SKIPPED = 31
"""Most rounds in a row in which nobody is asked."""
FADES = 0.95
"""Weight that what an asked round brought, or took, keeps when the next one is counted."""
UNUSUAL = 4.0
"""Times its usual cost that asking is taken to have cost at most: the machine was busy with something else."""
FIRST_TRIES = 8
"""Rounds of a new answer in which the drafters are asked, even if they bring nothing."""


@dataclass
class _Answer:
    """gained_s: by rounds in which was asked, `num_asked` of them, recent ones counting most. num_to_skip: rounds until
    the next one."""

    gained_s: float = 0.0
    num_asked: float = 0.0
    num_tries: int = 0
    num_to_skip: int = 0


class Interest:
    """Whether asking pays, for each request by itself. What it takes is counted for all together."""

    def __init__(self) -> None:
        self._answers: dict[int, _Answer] = {}
        self._cost_s: float | None = None

    def due(self, request_id: int) -> bool:
        """Whether to ask for a request in this round."""
        answer = self._answers.get(request_id)
        if answer is None or not answer.num_to_skip:
            return True
        answer.num_to_skip -= 1
        return False

    def count_cost(self, seconds: float) -> None:
        """Note what asking took for one request."""
        if self._cost_s is None:
            self._cost_s = seconds
        else:
            self._cost_s = FADES * self._cost_s + (1.0 - FADES) * min(seconds, UNUSUAL * self._cost_s)

    def count_gain(self, request_id: int, gained_s: float, plain_s: float) -> None:
        """Note what an asked round was expected to gain for a request, and how long to wait with the next one.

        plain_s: seconds of a token without drafts.
        """
        cost_s, answer = self._cost_s or 0.0, self._answers.setdefault(request_id, _Answer())
        answer.gained_s = FADES * answer.gained_s + gained_s
        answer.num_asked = FADES * answer.num_asked + 1.0
        answer.num_tries += 1
        if answer.num_tries >= FIRST_TRIES and answer.gained_s < cost_s * answer.num_asked:
            answer.num_to_skip = min(MOST_SKIPPED, max(0, math.ceil(cost_s / (ASKING_SHARE * plain_s)) - 1))

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        self._answers.pop(request_id, None)
