"""Lenient rules: a drafted token is kept where the target finds it good enough. More is accepted, and the text departs
from what the target itself would say; every output of such a rule is named lossy.

    typical     target_probs[x] > min(eps, delta * exp(-entropy of target_probs))
    threshold   target_probs[x] >= eps, or x is among the top_k likeliest and its log-probability is at most `gap`
                below the largest

Source of `typical`: Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.3.1. At temperature 0 it is exact, as there.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foredraft.accept.base import Accepted, Choice
from foredraft.accept.rejection import TargetProbs
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree


class GoodEnough(Protocol):
    """Which tokens a lenient rule keeps."""

    def __call__(self, target_probs_V: FloatArray, token: int) -> bool:
        """Whether a token may stand where the target has this distribution."""


@dataclass(frozen=True)
class Typical:
    """Good enough is what is not surprising, where the target itself is sure or not."""

    eps: float = 0.09
    delta: float = 0.3

    def __call__(self, target_probs_V: FloatArray, token: int) -> bool:
        """See `GoodEnough`."""
        likely_V = target_probs_V[target_probs_V > 0]
        entropy = -float((likely_V * np.log(likely_V)).sum())
        return bool(target_probs_V[token] > min(self.eps, self.delta * np.exp(-entropy)))


@dataclass(frozen=True)
class Threshold:
    """Good enough is a probability, or a place among the first and near the best. None: this part is left out.

    Of tokens that are equally likely, those with lower ids come first.
    """

    eps: float | None = None
    top_k: int | None = None
    gap: float | None = None

    def __call__(self, target_probs_V: FloatArray, token: int) -> bool:
        """See `GoodEnough`."""
        probability = target_probs_V[token]
        if self.eps is not None and probability >= self.eps:
            return True
        if self.top_k is None or self.gap is None or probability == 0:
            return False
        num_before = int((target_probs_V > probability).sum() + (target_probs_V[:token] == probability).sum())
        return num_before < self.top_k and bool(np.log(target_probs_V.max() / probability) <= self.gap)


def lenient(
    tree: DraftTree,
    target_token: Callable[[int], int],
    target_probs: TargetProbs,
    plain_probs: TargetProbs,
    good_enough: GoodEnough,
) -> Accepted:
    """Follow the target's own tokens where the tree has them, and else the likeliest child that is good enough.

    target_token: as for `walk`. target_probs: what children are judged by. plain_probs: the target's distribution at
    temperature 1 without filters, for the account in `Accepted.choices`.
    """
    path: list[int] = []
    choices: list[Choice] = []
    node = 0
    while True:
        own = target_token(node)
        child = tree.child(node, own)
        if child is None and (candidates := tree.children(node)):
            probs_V = target_probs(node)
            good = [one for one in candidates if good_enough(probs_V, tree.tokens[one])]
            child = max(good, key=lambda one: float(probs_V[tree.tokens[one]]), default=None)
        token = own if child is None else tree.tokens[child]
        plain_V = plain_probs(node)
        logprob, own_logprob = (math.log(max(plain_V[one], sys.float_info.min)) for one in (token, own))
        choices.append(Choice(token, own, logprob, own_logprob))
        if child is None:
            return Accepted(tuple(path), own, tuple(choices))
        path.append(child)
        node = child
