"""Draws of a drafter that have nothing to do with the target's noise, and the distributions they were made from.

Rules that accept by distribution need both (see `foredraft.accept`). All other rules are better served by drafts that
share the target's noise: `choose`.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from foredraft.sampling.choose import SequenceView, processed
from foredraft.sampling.noise import FloatArray
from foredraft.sampling.pick import filtered_probs
from foredraft.sampling.processors.base import Row
from foredraft.sampling.uniforms import Stream, draw_index, uniform

Drawing = Literal["coupled", "independent"]
"""How a drafter that knows a distribution chooses: with the target's noise, or with numbers of its own."""


class Drawn(NamedTuple):
    """A drafted token, and the distribution it was drawn from given those drawn beside it before: float64 [V]."""

    token: int
    draft_probs_V: FloatArray


def draw(
    logits_V: Row,
    sequence: SequenceView,
    path: Sequence[int] = (),
    *,
    count: int,
    first_event: int,
    vocab_size: int,
    token_ids: Any = None,
) -> list[Drawn]:
    """Draw at most `count` different tokens, one after the other, from what a drafter's logits say under all options.

    path, token_ids: as for `foredraft.sampling.processed`. first_event: number of this draw among those of the sequence
    in this round; `count` numbers are used from there. vocab_size: the target's, over which the distributions are.

    Empty where the options leave no token. Raises ValueError at temperature 0, where nothing is drawn, and
    ForedraftError when a logit is NaN or +inf.
    """
    params = sequence.params
    if params.greedy:
        raise ValueError("at temperature 0 tokens are chosen, not drawn")
    row_V = processed(logits_V, sequence, path, token_ids=token_ids)
    if row_V.max() == -np.inf:
        return []
    probs_V = np.zeros(vocab_size)
    probs_V[slice(None) if token_ids is None else token_ids] = filtered_probs(row_V, params)
    drawn: list[Drawn] = []
    for event in range(first_event, first_event + min(count, int(np.count_nonzero(probs_V)))):
        u = uniform(Stream.DRAFT, params.seed or 0, sequence.sample_index, len(sequence.tokens), event)
        token = draw_index(probs_V, u)
        drawn.append(Drawn(token, probs_V / probs_V.sum()))
        probs_V[token] = 0.0
    return drawn
