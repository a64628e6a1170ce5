"""Locally typical sampling."""

import numpy as np

from foredraft.sampling.processors.base import Row

_FIRST_LOOK = 1024


class Typical:
    """Excludes all but the tokens whose surprise is closest to the entropy, as many as hold probability `mass`.

    Of tokens equally close the lower id comes first. At least one token stays.

    Source: Meister et al., "Locally Typical Sampling" (2023), equation 8. It applies at the temperature, before top-k,
    top-p and min-p. As the temperature goes to 0 only the most likely token stays, so at 0 it is not needed.
    """

    def __init__(self, mass: float, temperature: float) -> None:
        self._mass, self._temperature = mass, temperature

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`. Does nothing to a row that `pick` refuses."""
        largest = float(logits_V.max())
        if not np.isfinite(largest):
            return
        with np.errstate(over="ignore"):
            z = (logits_V.astype(np.float64) - largest) / self._temperature
        weights = np.exp(z)
        total = weights.sum()
        probs = weights / total
        possible = probs > 0
        surprise = np.log(total) - z
        entropy = (probs[possible] * surprise[possible]).sum()
        distance = np.where(possible, np.abs(surprise - entropy), np.inf)
        kept = _closest(distance, probs, self._mass)
        row = logits_V[kept]
        logits_V.fill(-np.inf)
        logits_V[kept] = row


def _closest(distance: np.ndarray, probs: np.ndarray, mass: float) -> np.ndarray:
    """Ids by rising distance, the fewest that hold the mass. Only as many are sorted as need be."""
    num_sorted = _FIRST_LOOK
    while True:
        if num_sorted >= distance.size:
            ids = np.arange(distance.size)
        else:
            ids = np.flatnonzero(distance <= np.partition(distance, num_sorted)[num_sorted])
        order = ids[np.argsort(distance[ids], kind="stable")]
        sums = np.cumsum(probs[order])
        if sums[-1] >= mass or ids.size == distance.size:
            return order[: int(np.searchsorted(sums, mass)) + 1]
        num_sorted *= 8
