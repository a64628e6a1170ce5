"""What a drafter is: it proposes trees, and is told of every token that is committed."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from foredraft.accept import Choice
from foredraft.kernels.operations import Floats
from foredraft.sampling import SequenceView
from foredraft.tree import Budget, DraftTree

__all__ = ["Drafter", "DrafterSpec", "Outcome", "PromptFeatures", "SequenceView", "no_draft"]


@dataclass(frozen=True, kw_only=True)
class DrafterSpec:
    """What a drafter is and wants, declared before anything runs.

    name: as it is asked for and reported.
    model_free: proposing costs next to nothing beside a forward pass of the target, so that it may be asked in every
    round. A model-based drafter has a model of its own: prefill costs it time, and so does every step.
    layers: of the target, whose hidden states it wants with every token (0 is the first layer).
    needs_prompt_features: it wants them of every token of a prompt, so no prompt is taken from the prefix cache.
    Otherwise a hit means that there are no features of the tokens found: they begin behind them.
    can_begin_late: a model-based drafter that can leave out the beginning of a long text: see `Drafter.begin_late`.
    observes_skipped_rounds: whether it is told of rounds in which no model-free drafter was asked, because that has
    brought less than it takes. One for which observing is the larger part of the work does without.
    identity: another text for everything that makes its proposals or its speed others. What is found out when it is
    first loaded is kept under this; empty: it is found out at every start.
    """

    name: str
    model_free: bool = True
    layers: tuple[int, ...] = ()
    needs_prompt_features: bool = False
    can_begin_late: bool = False
    observes_skipped_rounds: bool = True
    identity: str = ""


@dataclass(frozen=True, eq=False)
class PromptFeatures:
    """What was computed of a sequence's text outside of rounds: a chunk of its prompt.

    start: index of the first of the tokens. num_tokens: how many. hidden_ND: by layer, the hidden states after each of
    them, [N, D]; views that are valid until `begin` returns.
    """

    start: int
    num_tokens: int
    hidden_ND: Mapping[int, Floats] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one sequence's tree in a round.

    tree: as it was verified, which may be less than was proposed, or not this drafter's proposal at all.
    path: the nodes accepted and kept, from the root's child down, without the root. What was committed to the cache is
    the root and the path; but where the sequence has ended in the path, without its last node.
    logits_NV: the target's logits after each node of the tree, whether it was accepted or not. A view that is valid
    until the drafter's `observe` returns, as all arrays here.
    choices: what lenient rules report of each token kept, see `foredraft.accept.Choice`; empty for all others.
    likeliest: the tokens with the largest logits after a node, falling, of nodes where the target's choice found them.
    hidden_ND: by layer, the hidden states of every node of the tree, [N, D].
    """

    tree: DraftTree
    path: tuple[int, ...]
    logits_NV: Floats
    choices: tuple[Choice, ...] = ()
    likeliest: Mapping[int, Sequence[int]] = field(default_factory=dict)
    hidden_ND: Mapping[int, Floats] = field(default_factory=dict)

    @property
    def num_draft_tokens(self) -> int:
        """Tokens verified."""
        return self.tree.num_draft_tokens

    @property
    def num_accepted_tokens(self) -> int:
        """Of those, accepted and kept; the bonus does not count."""
        return len(self.path)


class Drafter(ABC):
    """Proposes what the target may say next. A wrong proposal costs time, never correctness.

    A model-free drafter needs `spec` and `propose`; the other methods do nothing unless they are overridden. One that
    wraps others is a `foredraft.drafters.delegating.DelegatingDrafter`, which passes on all that is here.

    A drafter that raises an exception is left out of the round, and switched off after some.
    """

    spec: DrafterSpec

    @property
    def name(self) -> str:
        """As it is asked for and reported."""
        return self.spec.name

    @property
    def names(self) -> tuple[str, ...]:
        """The drafters that it is made of: itself, or those it wraps."""
        return (self.spec.name,)

    @property
    def model_free(self) -> bool:
        """Whether proposing costs next to nothing."""
        return self.spec.model_free

    @property
    def problem(self) -> str:
        """What it has to say against itself, for the reason that a completion gives; empty: nothing."""
        return ""

    @abstractmethod
    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """For each sequence a tree whose root is its last token, with at most its budget of drafted tokens.

        Not every sequence that runs is among them in every round.
        """

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:  # noqa: B027 - most have nothing to do
        """A chunk of the sequence's text was computed outside of rounds.

        Chunks come in order. Tokens that were found in the prefix cache are left out, at the beginning and, where
        another sequence has computed them meanwhile, between two chunks: see `PromptFeatures.start`. All of the text
        up to the root is computed when the sequence is first proposed for. No token is told twice, here or in
        `observe`.
        """

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:  # noqa: B027
        """Called after every round: the tokens now hold what was accepted, and the bonus, up to the sequence's end.

        The sequences are all that took part, whether this drafter was asked for them or not.
        """

    def end(self, sequence_id: int) -> None:  # noqa: B027
        """The sequence is over; drop what was kept for it. It may never have been proposed for."""

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """Tokens of the sequence that its model must prefill before it can draft; 0 or 1 where it keeps up; 0 where it
        cannot draft for the sequence, and for a model-free drafter."""
        return 0

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """Seconds of one pass of its model over `num_tokens` tokens behind `context` cached ones."""
        return 0.0

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:  # noqa: B027
        """Prefill at most so many of the uncached tokens, ahead of a proposal."""

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:  # noqa: B027
        """Count all tokens before the last `num_tokens` as cached, and never prefill them. The root does not count.

        Proposals are worse for it, and come sooner. Of a sequence that it was asked for before, all is prefilled as
        ever. Only where the spec says `can_begin_late`.
        """

    def reset_prefix_cache(self) -> None:  # noqa: B027
        """Drop what is kept of sequences that are over: another one that begins alike is prefilled anew."""


def no_draft(sequence: SequenceView) -> DraftTree:
    """The tree that holds only the root."""
    return _root_alone(sequence.tokens[-1])


@lru_cache(maxsize=1024)  # made several times a round, by every drafter that has nothing to say
def _root_alone(token: int) -> DraftTree:
    return DraftTree.chain(token)
