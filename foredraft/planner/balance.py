"""What drafting has won or lost for a request so far, and how careful that makes the planner.

Expectations are right on average. A short answer has few rounds for the average to come about in: a handful of rows
that were each worth trying may all be in vain, and the answer is slower for it. So losses are kept small beside the
answer: what was lost raises what a further row must promise, and a tree may become large only after smaller ones of
this answer were accepted.
"""

from dataclasses import dataclass

FREE_SHARE, COSTLY_SHARE = 0.01, 0.02
"""Share of an answer's time without drafts that may be lost before the planner becomes careful: with free drafts, and
with those of a model, of which one in vain costs as much as many free ones."""
FIRST_TOKENS = 16
"""An answer is taken to have at least so many tokens."""
UNHEEDED = 0.5
"""Part of what may be lost that changes nothing yet."""
CAREFULNESS = 2.0
FIRST_NODES = 4
MOST_NODES = 64


@dataclass
class Balance:
    """Seconds that drafting has saved a request (negative: cost), its tokens, and how large its tree may be."""

    saved_s: float = 0.0
    num_tokens: int = 0
    max_nodes: int = FIRST_NODES

    def count(self, *, num_emitted: int, num_drafted: int, plain_s: float, extra_s: float) -> None:
        """Note a round. plain_s: seconds of a token without drafts. extra_s: what drafting and verifying added."""
        self.num_tokens += num_emitted
        self.saved_s += (num_emitted - 1) * plain_s - extra_s
        num_accepted = num_emitted - 1
        if 2 * num_accepted >= num_drafted > 0:
            self.max_nodes = min(MOST_NODES, max(self.max_nodes, 2 * num_drafted, FIRST_NODES))
        elif num_drafted and not num_accepted:
            self.max_nodes = max(FIRST_NODES, self.max_nodes // 2)

    def demand(self, plain_s: float, share: float) -> float:
        """How many times its cost a row must promise: 1 where nothing was lost, and more the more was.

        plain_s: seconds of a token without drafts. share: which may be lost.
        """
        allowed_s = share * max(FIRST_TOKENS, self.num_tokens) * plain_s
        return 1.0 + CAREFULNESS * max(0.0, -self.saved_s / allowed_s - UNHEEDED)
