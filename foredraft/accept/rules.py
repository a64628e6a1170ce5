"""The acceptance rules by name, ready for rounds: which part of a tree they use, and what the text is equal in."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from foredraft.accept.base import Accepted, Chance, Equality, NodeTarget, SeededChance
from foredraft.accept.block import block, traversal
from foredraft.accept.lenient import GoodEnough, Threshold, Typical, lenient
from foredraft.accept.rejection import TargetProbs, rejection
from foredraft.accept.walk import walk
from foredraft.errors import OptionError
from foredraft.sampling.params import SamplingParams
from foredraft.tree import DraftTree

_PLAIN = SamplingParams(temperature=1.0)


class AcceptanceRule(Protocol):
    """Decides what a round emits for one sequence.

    name: as it is asked for and reported. needs_draws: whether drafters are to draw with numbers of their own and say
    from which distribution; else they draw with the target's noise. Such a rule also needs drafts whose length and
    shape do not depend on what was drawn.
    """

    @property
    def name(self) -> str:
        """As it is asked for and reported."""

    @property
    def needs_draws(self) -> bool:
        """Whether it goes by the distributions that tokens were drawn from."""

    def equality(self, params: SamplingParams) -> Equality:
        """In what the output equals plain decoding with these parameters."""

    def usable(self, tree: DraftTree) -> DraftTree:
        """The part of a tree that the rule can accept something of."""

    def accept(self, tree: DraftTree, target: NodeTarget) -> Accepted:
        """What is emitted. The tree is one that `usable` returned."""


@dataclass(frozen=True)
class Coupled:
    """The default: the target's own tokens, which are fixed before anything is drafted. See `walk`."""

    name: str = "coupled"
    needs_draws: bool = False

    def equality(self, params: SamplingParams) -> Equality:
        """See `AcceptanceRule`."""
        return "path"

    def usable(self, tree: DraftTree) -> DraftTree:
        """See `AcceptanceRule`."""
        return tree

    def accept(self, tree: DraftTree, target: NodeTarget) -> Accepted:
        """See `AcceptanceRule`."""
        return walk(tree, target.token)


@dataclass(frozen=True)
class ByDistribution:
    """Rules that are equal to plain decoding over many seeds; at temperature 0, token for token.

    function: `rejection`, `block` or `traversal`. whole_trees: whether it can use more than a chain.
    """

    name: str
    function: Callable[[DraftTree, TargetProbs, Chance], Accepted]
    whole_trees: bool
    needs_draws: bool = True

    def equality(self, params: SamplingParams) -> Equality:
        """See `AcceptanceRule`."""
        return "path" if params.greedy else "distribution"

    def usable(self, tree: DraftTree) -> DraftTree:
        """See `AcceptanceRule`."""
        return tree if self.whole_trees else tree.first_chain()

    def accept(self, tree: DraftTree, target: NodeTarget) -> Accepted:
        """See `AcceptanceRule`."""
        params = target.params
        if params.greedy:
            return walk(tree, target.token)
        chance = SeededChance(params.seed or 0, target.sample_index, target.position)
        return self.function(tree, lambda node: target.probs(node, params), chance)


@dataclass(frozen=True)
class Lenient:
    """Rules that keep more than the target itself would say.

    exact_when_greedy: whether they keep to the target's own tokens at temperature 0. Where not, tokens are judged
    there by the distribution at temperature 1.
    """

    name: str
    good_enough: GoodEnough
    exact_when_greedy: bool
    needs_draws: bool = False

    def equality(self, params: SamplingParams) -> Equality:
        """See `AcceptanceRule`."""
        return "path" if params.greedy and self.exact_when_greedy else "none"

    def usable(self, tree: DraftTree) -> DraftTree:
        """See `AcceptanceRule`."""
        return tree

    def accept(self, tree: DraftTree, target: NodeTarget) -> Accepted:
        """See `AcceptanceRule`."""
        params = target.params
        if params.greedy and self.exact_when_greedy:
            return walk(tree, target.token)
        judging = replace(params, temperature=1.0) if params.greedy else params
        return lenient(
            tree,
            target.token,
            lambda node: target.probs(node, judging),
            lambda node: target.probs(node, _PLAIN),
            self.good_enough,
        )


COUPLED = Coupled()
_BY_DISTRIBUTION = {
    rule.name: rule
    for rule in (
        ByDistribution("rejection", rejection, whole_trees=False),
        ByDistribution("block", block, whole_trees=False),
        ByDistribution("tree", rejection, whole_trees=True),
        ByDistribution("traversal", traversal, whole_trees=True),
    )
}
_NAMES = ("coupled", *_BY_DISTRIBUTION, "typical", "threshold")


def in_words(name: str, equality: Equality) -> str:
    """How an output names its rule, such as "lossy acceptance threshold:eps=0.1"; empty where it changes nothing."""
    if equality == "path":
        return ""
    return f"lossy acceptance {name}" if equality == "none" else f"acceptance {name} (equal in distribution)"


def make_rule(text: str) -> AcceptanceRule:
    """The rule that a text asks for: NAME, or NAME:VALUE,... or NAME:KEY=VALUE,... for typical and threshold.

    "typical:eps=0.09,delta=0.3", "threshold:eps=0.1", "threshold:top_k=3,gap=1". Raises OptionError.
    """
    if not isinstance(text, str):
        raise OptionError(f"--acceptance must be a text such as typical:eps=0.09,delta=0.3, got {text!r}")
    name, colon, settings = text.partition(":")
    if name not in _NAMES:
        raise OptionError(f"unknown --acceptance {name!r}: give {', '.join(_NAMES)}")
    if name in ("typical", "threshold"):
        return _lenient(name, _settings(text, settings, _KEYS[name]) if colon else {})
    if colon:
        raise OptionError(f"--acceptance {name} takes no settings, got {text!r}")
    if name == "coupled":
        return COUPLED
    return _BY_DISTRIBUTION[name]


_KEYS = {"typical": ("eps", "delta"), "threshold": ("eps", "top_k", "gap")}


def _lenient(name: str, given: dict[str, float]) -> Lenient:
    shown = {key: f"{value:g}" for key, value in given.items()}
    if name == "typical":
        rule = Typical(**given)
        return Lenient(f"typical:eps={rule.eps:g},delta={rule.delta:g}", rule, exact_when_greedy=True)
    if not given or ("top_k" in given) != ("gap" in given):
        raise OptionError("--acceptance threshold needs eps, or top_k and gap together: threshold:top_k=3,gap=1")
    top_k = int(given["top_k"]) if "top_k" in given else None
    settings = ",".join(f"{key}={shown[key]}" for key in _KEYS["threshold"] if key in given)
    rule_ = Threshold(given.get("eps"), top_k, given.get("gap"))
    return Lenient(f"threshold:{settings}", rule_, exact_when_greedy=False)


def _settings(text: str, settings: str, keys: tuple[str, ...]) -> dict[str, float]:
    found: dict[str, float] = {}
    for index, part in enumerate(settings.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = keys[index] if index < len(keys) else "", part
        if key not in keys or key in found:
            raise OptionError(f"--acceptance {text!r}: settings are {', '.join(keys)}, each once, as in {keys[0]}=0.1")
        found[key] = _number(text, key, value)
    return found


def _number(text: str, key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if key == "top_k":
        good, rule = number >= 1 and number.is_integer(), "a whole number of at least 1"
    elif key == "gap":
        good, rule = 0 <= number < float("inf"), "a finite number of at least 0"
    else:
        good, rule = 0 < number <= 1, "above 0 and at most 1"
    if not good:
        raise OptionError(f"--acceptance {text!r}: {key} must be {rule}, got {value!r}")
    return number
