"""Log-probabilities of tokens under the model's own distribution, before any option changed it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from foredraft.sampling.pick import by_falling, ids_of_largest
from foredraft.sampling.processors.base import Row

LEAST_LOGPROB = -9999.0
"""What JSON has in place of minus infinity, as OpenAI's API does."""


class TokenLogprob(NamedTuple):
    """A token, and its log-probability. top: the most likely tokens there with theirs, by falling probability."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


def token_logprob(logits_V: Row, token_id: int, num_top: int = 0) -> TokenLogprob:
    """log softmax(logits) of a token and of the `num_top` most likely ones; of equal ones the lower id comes first."""
    logits = logits_V.astype(np.float64)
    most = logits.max()
    norm = most + np.log(np.exp(logits - most).sum())
    ids = np.empty(0, dtype=np.int64)
    if num_top:
        ids = ids_of_largest(logits_V, num_top)
        ids = ids[by_falling(logits_V[ids])]
    top = tuple((int(top_id), float(logits[top_id] - norm)) for top_id in ids)
    return TokenLogprob(token_id, float(logits[token_id] - norm), top)


def to_json(found: TokenLogprob, texts: Mapping[int, bytes]) -> dict[str, Any]:
    """As an entry of OpenAI's `logprobs.content`, with the id besides. texts: the bytes that each token stands for."""
    entry = _entry(found.token_id, found.logprob, texts)
    return entry | {"top_logprobs": [_entry(token_id, logprob, texts) for token_id, logprob in found.top]}


def _entry(token_id: int, logprob: float, texts: Mapping[int, bytes]) -> dict[str, Any]:
    text = texts[token_id]
    return {
        "token": text.decode("utf-8", "replace"),
        "bytes": list(text),
        "id": token_id,
        "logprob": max(logprob, LEAST_LOGPROB),
    }
