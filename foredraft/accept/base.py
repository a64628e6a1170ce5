"""What acceptance rules are made of: what comes out, the target as a rule sees it, and chance."""

from dataclasses import dataclass
from typing import Literal, Protocol

from foredraft.sampling.noise import FloatArray
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.uniforms import Stream, draw_index, uniform
from foredraft.tree import DraftTree

Equality = Literal["path", "distribution", "none"]
"""In what an output equals plain decoding: token for token, over many seeds, or not at all."""


@dataclass(frozen=True)
class Choice:
    """A token that a lenient rule emitted, beside what the target itself would have said there.

    token, own: the token emitted, and the target's own. logprob, own_logprob: their natural log-probabilities under the
    target at temperature 1, before filters.
    """

    token: int
    own: int
    logprob: float
    own_logprob: float

    @property
    def differs(self) -> bool:
        """Whether the text departed from the target's own here."""
        return self.token != self.own


@dataclass(frozen=True)
class Accepted:
    """What one round emits for one sequence.

    path: nodes accepted, as indices into the draft tree, from the root's child down, without the root.
    bonus: the token the target adds after the path. It is the root of the next round.
    choices: from lenient rules, what each emitted token cost, the bonus included; empty from all others.
    """

    path: tuple[int, ...]
    bonus: int
    choices: tuple[Choice, ...] = ()

    @property
    def num_accepted(self) -> int:
        """Drafted tokens that were kept; the bonus does not count."""
        return len(self.path)

    def tokens(self, tree: DraftTree) -> tuple[int, ...]:
        """The tokens emitted: those of the path in `tree`, then the bonus."""
        return (*(tree.tokens[node] for node in self.path), self.bonus)


class NodeTarget(Protocol):
    """What the target says at the nodes of one sequence's tree, as rules see it in one round.

    params: with a seed. position: index in prompt + output of the first token that the round emits.
    """

    @property
    def params(self) -> SamplingParams:
        """The sequence's own."""

    @property
    def sample_index(self) -> int:
        """Which of several completions of the same prompt this is."""

    @property
    def position(self) -> int:
        """Of the token after the root."""

    def token(self, node: int) -> int:
        """The token the target chooses after a node, with the sequence's own noise."""

    def probs(self, node: int, params: SamplingParams) -> FloatArray:
        """The target's distribution after a node under `params`: float64 [V]."""


class Chance(Protocol):
    """Where a rule's randomness comes from. Each call is independent of all others, and of the drafter's draws."""

    def happens(self, probability: float) -> bool:
        """True with this probability: never at 0, always from 1 on."""

    def draw(self, weights_V: FloatArray) -> int:
        """A token, in proportion to weights that need not sum to 1."""


class SeededChance:
    """Chance as a function of the seed, the place of the round, and the number of the call in it."""

    def __init__(self, seed: int, sample_index: int, position: int) -> None:
        self._key = seed, sample_index, position
        self._num_events = 0

    def happens(self, probability: float) -> bool:
        """See `Chance`. The number may be exactly 0, which is why it must be less, not less or equal."""
        return self._uniform() < probability

    def draw(self, weights_V: FloatArray) -> int:
        """See `Chance`."""
        return draw_index(weights_V, self._uniform())

    def _uniform(self) -> float:
        event, self._num_events = self._num_events, self._num_events + 1
        return uniform(Stream.ACCEPT, *self._key, event)
