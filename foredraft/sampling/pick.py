"""The choice of a token from its logits, in plain NumPy: the reference for every faster version.

    temperature 0:  the token with the largest logit.
    temperature T:  z = (logit - largest logit) / T, in float64
                    top_k   keeps the k tokens with the largest logits, exactly k
                    top_p   keeps the shortest prefix of what is left, sorted by falling logit, whose share of
                            the probability left reaches top_p; at least one token
                    min_p   keeps the tokens at least min_p times as likely as the most likely one
                    the token with the largest z + noise among those kept

Each filter sees the softmax of z over what the filters before it kept. Wherever two values are equal the
lower token id comes first. A logit of -inf is a token that must not be chosen; it never is.

With Gumbel noise the last step is a draw from the softmax over the kept tokens ("Gumbel-max trick"), but
one that is fixed by the noise: see `foredraft.accept` for what that buys.

To agree to the bit, another implementation computes weights w = exp(z) in float64 and keeps the first n
tokens with w_1 + ... + w_n >= top_p * (sum of all), and those with w >= min_p (the largest w is 1, so no
division is needed). Both sums run one after another: the prefix in sorted order, the whole by rising token
id, so that only as much must be sorted as is kept.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from foredraft.errors import ForedraftError
from foredraft.sampling.noise import FloatArray, IntArray, Noise
from foredraft.sampling.params import SamplingParams

Logits = npt.NDArray[np.floating[Any]]
Ids = npt.NDArray[np.int64]
NoiseSource = tuple[int, int, int] | Callable[[IntArray], FloatArray]


def pick(
    logits_V: Logits,
    *,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    noise: NoiseSource | None = None,
) -> int:
    """The token id chosen from one row of logits.

    The options are those of SamplingParams and taken as valid. noise: (seed, choice, position), or a
    function from token ids to noise; needed at a temperature above 0.

    Raises ForedraftError when a logit is NaN or +inf, or when every logit is -inf.
    """
    _check(logits_V)
    if temperature == 0.0:
        return int(logits_V.argmax())
    ids, z = _kept(logits_V, temperature, top_k, top_p, min_p)
    return int(ids[_perturbed(ids, z, noise).argmax()])


def top_perturbed(
    logits_V: Logits, params: SamplingParams, noise: NoiseSource | None, num_tokens: int
) -> tuple[int, ...]:
    """What `pick` would choose first, second, ...: at most `num_tokens` ids, by falling logit plus noise.

    A drafter that knows a distribution gets its children here, with the noise of the target: the more alike
    the two distributions are, the more often the target's own choice is among them. Fewer ids come back
    when the filters keep fewer. Raises as `pick` does.
    """
    _check(logits_V)
    if params.greedy:
        allowed = np.flatnonzero(logits_V != -np.inf)
        ids = allowed[ids_of_largest(logits_V[allowed], num_tokens)]
        return tuple(ids[by_falling(logits_V[ids])].tolist())
    ids, z = _kept(logits_V, params.temperature, params.top_k, params.top_p, params.min_p)
    best = by_falling(_perturbed(ids, z, noise))[:num_tokens]
    return tuple(ids[best].tolist())


def filtered_probs(logits_V: Logits, params: SamplingParams) -> FloatArray:
    """The distribution `pick` draws from, over all seeds: float64 [V], zero for what the filters remove.

    At temperature 0 all the probability is on one token. Raises as `pick` does.
    """
    _check(logits_V)
    probs_V = np.zeros(logits_V.shape, dtype=np.float64)
    if params.greedy:
        probs_V[logits_V.argmax()] = 1.0
        return probs_V
    ids, z = _kept(logits_V, params.temperature, params.top_k, params.top_p, params.min_p)
    weights = np.exp(z)
    probs_V[ids] = weights / weights.sum()
    return probs_V


def _check(logits_V: Logits) -> None:
    if logits_V.ndim != 1 or not logits_V.size:
        raise ValueError(f"logits must be one row with a value for each token, got shape {logits_V.shape}")
    largest = logits_V.max()  # NaN if any logit is
    if np.isnan(largest):
        raise ForedraftError("the model computed a logit that is not a number (NaN)")
    if largest == np.inf:
        raise ForedraftError("a logit is infinite, so no distribution over tokens is defined")
    if largest == -np.inf:
        raise ForedraftError("every token is excluded: all logits are -inf")


def _kept(logits_V: Logits, temperature: float, top_k: int, top_p: float, min_p: float) -> tuple[Ids, FloatArray]:
    """The token ids the filters keep, in rising order, and z of each."""
    ids = np.flatnonzero(logits_V != -np.inf)
    if 0 < top_k < ids.size:
        ids = ids[ids_of_largest(logits_V[ids], top_k)]
    logits = logits_V[ids].astype(np.float64)
    with np.errstate(over="ignore"):  # at a tiny temperature z of all but the best is -inf, as it should be
        z: FloatArray = (logits - logits.max()) / temperature
    keep = np.ones(ids.size, dtype=np.bool_)
    if top_p < 1.0:
        order = by_falling(logits)
        weights = np.exp(z)
        total = np.cumsum(weights)[-1]  # one after another, which `sum` is not
        keep[order[np.searchsorted(np.cumsum(weights[order]), top_p * total) + 1 :]] = False
    if min_p > 0.0:
        keep &= np.exp(z) >= min_p
    return ids[keep], z[keep]


def _perturbed(ids: Ids, z: FloatArray, noise: NoiseSource | None) -> FloatArray:
    if noise is None:
        raise ValueError("sampling at a temperature above 0 needs noise")
    return z + (noise(ids) if callable(noise) else Noise(*noise)(ids))


def ids_of_largest(values: Logits, num_values: int) -> Ids:
    """Indices, in rising order, of the `num_values` largest values; of equal ones, the first."""
    if num_values >= values.size:
        return np.arange(values.size)
    if num_values <= 0:
        return np.arange(0)
    least = np.partition(values, values.size - num_values)[values.size - num_values]
    keep = values > least
    ties = np.flatnonzero(values == least)
    keep[ties[: num_values - np.count_nonzero(keep)]] = True
    return np.flatnonzero(keep)


def by_falling(values: Logits) -> Ids:
    """Indices that sort the values from the largest down; equal ones stay in their order."""
    return np.argsort(-values, kind="stable")
