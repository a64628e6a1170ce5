"""What a round is planned by: known before anybody is asked, and the same for all drafters."""

from collections.abc import Sequence
from dataclasses import dataclass

from foredraft.planner.cost import PassSeconds
from foredraft.sampling import SequenceView


@dataclass(frozen=True)
class Terms:
    """The terms of a round.

    sequences: of the round. remaining: of each, the drafted tokens that it can still use. rate: tokens per second that
    drafts must beat. token_s: seconds of a token of a sequence without drafts. overhead_s: of the round, outside
    drafting and the pass. pass_s: of the pass, by the number of tokens of the round's sequences; prompt chunks in the
    same pass are in it.
    """

    sequences: Sequence[SequenceView]
    remaining: Sequence[int]
    rate: float
    token_s: float
    overhead_s: float
    pass_s: PassSeconds

    @property
    def num_sequences(self) -> int:
        """Of the round."""
        return len(self.sequences)
