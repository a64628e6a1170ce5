"""What drafting has won or lost for a sequence so far, and how careful that makes the planner: its loss budget.

Expectations are right on average. A short completion has few rounds for the average to come about in: a handful of
tokens that were each worth trying may all be in vain, and the completion is slower for it. So losses are kept small
beside it: what was lost raises what a further token must promise, and a tree may become large only after smaller ones
of this sequence were accepted.
"""

from dataclasses import dataclass

MODEL_FREE_LOSS, MODEL_BASED_LOSS = 0.01, 0.02
"""Part of a completion's time without drafts that may be lost before the planner becomes careful: with drafts of
model-free drafters, and with those of a model, of which one in vain costs as much as many others."""
FIRST_TOKENS = 16
"""A completion is taken to have at least so many tokens."""
UNHEEDED = 0.5
"""Part of what may be lost that changes nothing yet."""
CAREFULNESS = 2.0
FIRST_NODES = 4
MOST_NODES = 64


@dataclass
class LossBudget:
    """Seconds that drafting has saved a sequence (negative: cost), its tokens, and how large its tree may be."""

    saved_s: float = 0.0
    num_tokens: int = 0
    max_nodes: int = FIRST_NODES

    def count(self, *, num_emitted: int, num_drafted: int, token_s: float, extra_s: float) -> None:
        """Note a round. token_s: seconds of a token without drafts. extra_s: what drafting and verifying added."""
        self.num_tokens += num_emitted
        self.saved_s += (num_emitted - 1) * token_s - extra_s
        num_accepted = num_emitted - 1
        if 2 * num_accepted >= num_drafted > 0:
            self.max_nodes = min(MOST_NODES, max(self.max_nodes, 2 * num_drafted, FIRST_NODES))
        elif num_drafted and not num_accepted:
            self.max_nodes = max(FIRST_NODES, self.max_nodes // 2)

    def demand(self, token_s: float, part: float) -> float:
        """How many times its cost a token must promise: 1 where nothing was lost, and more the more was.

        token_s: seconds of a token without drafts. part: of the time, which may be lost.
        """
        allowed_s = part * max(FIRST_TOKENS, self.num_tokens) * token_s
        return 1.0 + CAREFULNESS * max(0.0, -self.saved_s / allowed_s - UNHEEDED)
