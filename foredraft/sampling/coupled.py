"""How likely a drafter's choice is the target's, where both choose with the same noise."""

from typing import Any

import numpy as np

from foredraft.sampling.noise import gumbel
from foredraft.sampling.pick import Logits


def coupled_chances(
    first: float,
    logits_V: Logits,
    indices: Any,
    ids: Any,
    temperature: float,
    noise: tuple[int, int, int],
) -> list[float]:
    """For the drafter's first choices, the chance that each is the target's choice too.

    Drafter and target add the same noise, so the drafter's probability says little: its choice may be an unlikely
    token that the noise has raised, and the target's noise raises it as well. What makes them differ is the target's
    logits. If these are the drafter's own plus independent Gumbel variables of scale 1 - which at temperature 0 makes
    softmax(logits) the right answer - then the target chooses token i with probability softmax(logits + T * noise)[i].

    first: the probability of the first of them, softmax(logits)[indices[0]].
    indices, ids: the first choices as places in `logits_V` and as tokens. Those beyond them weigh what they do without
    noise, since it was too small to make them first choices.
    """
    if temperature == 0.0 and len(indices) == 1:
        return [first]
    logits = logits_V[indices].astype(np.float64)
    probs = first * np.exp(logits - logits[0])
    if temperature == 0.0:
        return [float(prob) for prob in probs]
    raised = np.log(probs) + temperature * gumbel(*noise, ids)
    rest = max(0.0, 1.0 - float(probs.sum()))
    top = float(raised.max())
    weights = np.exp(raised - top)
    total = float(weights.sum()) + rest * float(np.exp(-top))
    return [float(weight) / total for weight in weights]
