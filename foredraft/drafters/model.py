"""Drafts from a second, smaller model with the same vocabulary.

Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023); Chen et al. (2023). The
drafter draws with the noise of the target (coupled sampling, see `foredraft.sampling`), so what both find likely,
both choose.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from foredraft.cache import CacheSequence
from foredraft.drafters.base import Outcome, RequestView, no_draft
from foredraft.kernels.batch import Ints
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.tree import Budget, DraftTree


@dataclass
class _Growing:
    """A chain in the making, for one request."""

    request: RequestView
    sequence: CacheSequence
    budget: Budget
    drafted: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    survival: float = 1.0
    stopped: bool = False

    @property
    def pending(self) -> Sequence[int]:
        """Tokens that the drafter's model has not seen yet."""
        known = len(self.sequence) - len(self.request.tokens)
        return self.drafted[known:] if known >= 0 else [*self.request.tokens[known:], *self.drafted]


@dataclass
class _Known:
    """What the drafter's model has read of a request, and how much of it is sure to be the request's text."""

    sequence: CacheSequence
    num_agreed: int = 0


class ModelDrafter:
    """Proposes chains that a model finds likely. A `CostlyDrafter`.

    decoder: the drafter's model. vocab_size: the real tokens it shares with the target; others are never proposed.
    token_ids: the tokens that its logits belong to, in rising order and all real, where some were left out to make
    the drafter cheaper; None: the i-th logit is token i's.
    """

    def __init__(
        self,
        decoder: CachedDecoder,
        *,
        vocab_size: int,
        token_ids: Ints | None = None,
        name: str = "model",
    ) -> None:
        self.name = name
        self.free = False
        self._decoder = decoder
        self._token_ids = np.arange(vocab_size, dtype=np.int32) if token_ids is None else token_ids
        self._known: dict[int, _Known] = {}

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. Requests beyond the context of the model get no draft."""
        chains: dict[int, _Growing] = {}
        for request, budget in zip(requests, budgets, strict=True):
            usable = min(budget.num_tokens, self._decoder.config.context_length - len(request.tokens))
            if usable > 0 and self._can_read(request):
                chains[request.id] = _Growing(request, self._catch_up(request), replace(budget, num_tokens=usable))
        while growing := [c for c in chains.values() if not c.stopped and len(c.drafted) < c.budget.num_tokens]:
            self._grow(growing)
        return [
            DraftTree.chain(
                request.tokens[-1],
                tuple(chains[request.id].drafted),
                tuple(chains[request.id].confidence),
            )
            if request.id in chains
            else no_draft(request)
            for request in requests
        ]

    def _can_read(self, request: RequestView) -> bool:
        """Whether the model has an embedding for each token (placeholders may lie beyond)."""
        known = self._known.get(request.id)
        unseen = request.tokens[known.num_agreed if known else 0 :]
        return all(0 <= token < self._decoder.config.vocab_size for token in unseen)

    def _catch_up(self, request: RequestView) -> CacheSequence:
        """The drafter's cache of a request, brought to the tokens before the root or to one less."""
        known = self._known.get(request.id)
        if known is None:
            known = self._known[request.id] = _Known(self._decoder.cache.open(request.tokens))
        committed = request.tokens[:-1]
        known.sequence.truncate(_common_prefix(known.sequence.tokens, committed, known.num_agreed))
        missing = committed[len(known.sequence) :]
        if len(missing) > 1:  # a single one rides along with the root
            self._decoder.prefill(known.sequence, missing)
        known.num_agreed = len(known.sequence)
        return known.sequence

    def _grow(self, chains: Sequence[_Growing]) -> None:
        """One forward pass: one more token for each chain."""
        trees = [DraftTree.chain(chain.pending[0], tuple(chain.pending[1:])) for chain in chains]
        entries = [Entry(chain.sequence, tree, "last") for chain, tree in zip(chains, trees, strict=True)]
        for chain, tree, logits in zip(chains, trees, self._decoder.forward(entries), strict=True):
            chain.sequence.commit(tree.tokens)
            params = chain.request.params
            row = logits[0, : len(self._token_ids)]
            [token] = self._decoder.kernels.pick(
                row,
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                noise=(params.seed or 0, 0, len(chain.sequence)),
                token_ids=self._token_ids,
            )
            index = int(np.searchsorted(self._token_ids, token))
            confidence = self._decoder.kernels.token_probability(row, index, params.temperature)
            chain.survival *= chain.budget.chance(confidence, len(chain.drafted) + 1)
            if chain.survival < chain.budget.min_survival:
                chain.stopped = True
                continue
            chain.drafted.append(token)
            chain.confidence.append(confidence)

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`."""
        known = self._known.get(request.id)
        return len(request.tokens) - 1 - (known.num_agreed if known else 0)

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._decoder.time_forward(num_tokens=num_tokens, context=context)

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Nothing to do: the cache is brought in line at the next proposal."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`. What the model has read stays findable for requests that begin alike."""
        known = self._known.pop(request_id, None)
        if known is not None:
            known.sequence.close()


def _common_prefix(cached: Sequence[int], tokens: Sequence[int], num_agreed: int) -> int:
    """How many tokens at the start are the same; the first `num_agreed` are known to be."""
    length = min(len(cached), len(tokens))
    for index in range(min(num_agreed, length), length):
        if cached[index] != tokens[index]:
            return index
    return length
