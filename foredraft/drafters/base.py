"""What a drafter is: it proposes trees, and is told what became of the requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, runtime_checkable

from foredraft.accept import Choice
from foredraft.kernels.operations import Floats
from foredraft.sampling import Choosing
from foredraft.tree import Budget, DraftTree


class RequestView(Choosing, Protocol):
    """What a drafter sees of a request, the last of its tokens being the root.

    It has a seed and all that the target's choice depends on, so that a drafter can choose as the target does
    (`foredraft.sampling.choose`).
    """

    @property
    def id(self) -> int:
        """Stays the same from round to round, and is never used twice."""

    @property
    def num_prompt_tokens(self) -> int:
        """How many of the tokens are the prompt."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one request's tree in a round.

    tree: as it was verified, which may be less than was proposed, or not this drafter's proposal at all.
    path: the nodes accepted and kept, from the root's child down, without the root.
    logits_NV: the target's logits after each node of the tree, whether it was accepted or not. A view that is valid
    until the drafter's `observe` returns.
    choices: what lenient rules report of each token kept, see `foredraft.accept.Choice`; empty for all others.
    likeliest: the tokens with the largest logits after a node, falling, of nodes where the target's choice found them.
    """

    tree: DraftTree
    path: tuple[int, ...]
    logits_NV: Floats
    choices: tuple[Choice, ...] = ()
    likeliest: Mapping[int, Sequence[int]] = field(default_factory=dict)

    @property
    def num_draft_tokens(self) -> int:
        """Tokens verified."""
        return self.tree.num_draft_tokens

    @property
    def num_accepted_tokens(self) -> int:
        """Of those, accepted and kept; the bonus does not count."""
        return len(self.path)


class Drafter(Protocol):
    """Proposes what the target may say next. A wrong proposal costs time, never correctness.

    name: as it is asked for and reported.
    free: whether proposing costs next to nothing beside a forward pass, so that it may be asked in every round.

    A drafter may have an attribute `dozes`, True: in rounds for which the planner asks no free drafter, because that
    has brought less than it takes, `observe` is left out as well.
    """

    name: str
    free: bool

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """For each request a tree whose root is its last token, with at most its budget of drafted tokens.

        Not every request that runs is among them in every round.
        """

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Called after every round: the tokens now hold what was accepted, and the bonus, up to the request's end.

        The requests are all that took part, whether this drafter was asked for them or not.
        """

    def forget(self, request_id: int) -> None:
        """The request has ended; drop what was kept for it. It may never have been proposed for."""


class CostlyDrafter(Drafter, Protocol):
    """A drafter with a model of its own: reading costs it time, and so does every step.

    It may have an attribute `identity`, a string that is another one for everything that makes its proposals or its
    speed others. What is found out when it is first loaded is kept under this; without it, it is found out at every
    start. It is asked for proposals then, for requests with negative ids.

    It may have a method `read_only_end(request, num_tokens)`, see `LateReader`.
    """

    def num_unread(self, request: RequestView) -> int:
        """Tokens of the request it has to read before it can draft; 0 or 1 where it keeps up; 0 where it cannot."""

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """Seconds of one pass of its model over `num_tokens` tokens behind `context` cached ones."""


@runtime_checkable
class LateReader(Protocol):
    """A costly drafter that need not read all of a text: proposals are worse for it, and come sooner."""

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        """Count tokens before the last `num_tokens` as read, and never read them. The root does not count.

        Of a request for which it was asked before, all is read as ever.
        """


def no_draft(request: RequestView) -> DraftTree:
    """The tree that holds only the root."""
    return _root_alone(request.tokens[-1])


@lru_cache(maxsize=1024)  # made several times a round, by every drafter that has nothing to say
def _root_alone(token: int) -> DraftTree:
    return DraftTree.chain(token)
