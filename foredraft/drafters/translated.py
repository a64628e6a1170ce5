"""Drafts from a model with another tokenizer: the text is translated at the border, there and back.

Sources: Timor et al., "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for Heterogeneous
Vocabularies" (2025), exact match of strings; the tokens that both vocabularies have share the target's noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np

from foredraft.drafters.base import CostlyDrafter, LateReader, Outcome, RequestView, no_draft
from foredraft.kernels.batch import Ints
from foredraft.sampling import Choosing, Processors, SamplingParams
from foredraft.text import Tokenizer
from foredraft.text.translation import ContinuingEncoder, GrowingTranslation, shared_tokens
from foredraft.tree import Budget, DraftTree

Drafted = Sequence[tuple[int, float]]
"""Tokens one below the other, with their confidences."""


class ReadingDrafter(CostlyDrafter, LateReader, Protocol):
    """What can be translated."""

    problem: str

    def read(self, request: RequestView, num_tokens: int) -> None:
        """Read some of the tokens that `num_unread` counts."""

    def forget_texts(self) -> None:
        """Drop what is kept of requests that have ended."""


@dataclass
class TranslatedRequest:
    """A request in the drafter's own tokens.

    original: the request as the target has it.
    """

    original: RequestView
    translation: GrowingTranslation

    @property
    def id(self) -> int:
        """See `RequestView`."""
        return self.original.id

    @property
    def tokens(self) -> Sequence[int]:
        """The text so far."""
        return self.translation.tokens

    @property
    def num_prompt_tokens(self) -> int:
        """Those of the original."""
        return self.original.num_prompt_tokens

    @property
    def params(self) -> SamplingParams:
        """See `RequestView`."""
        return self.original.params

    @property
    def choice(self) -> int:
        """See `RequestView`."""
        return self.original.choice

    @property
    def processors(self) -> Processors | None:
        """See `RequestView`."""
        return self.original.processors


def original(request: RequestView) -> Choosing:
    """The target's request behind a translated one."""
    assert isinstance(request, TranslatedRequest)
    return request.original


def names_of_tokens(target: Tokenizer, own: Tokenizer) -> Ints:
    """What each real token of the drafter is called where drafter and target share noise.

    The target's name for one that the target has too, and a name of its own beyond the target's vocabulary for others.
    """
    shared = shared_tokens(target, own)
    others = target.vocab_size + np.arange(len(shared))
    return np.where(shared >= 0, shared, others).astype(np.int32)


class TranslatedDrafter:
    """Asks a drafter that speaks other tokens than the target. A `CostlyDrafter`.

    drafter: sees each request as a `TranslatedRequest`. target, own: the tokenizers of the target and of the drafter.

    What is drafted is decoded, and encoded as the target would. The last token of it is not proposed where it is only
    a part of the drafter's last one or holds several: with the letters that follow, the target may have one token for
    both. It is where both vocabularies have it, or where the text ends there.
    """

    identity = ""

    def __init__(self, drafter: ReadingDrafter, *, target: Tokenizer, own: Tokenizer) -> None:
        self.name = f"{drafter.name} (another tokenizer)"
        self.free = False
        self._drafter = drafter
        self._target, self._own = target, own
        self._encoder = ContinuingEncoder(target)
        self._requests: dict[int, TranslatedRequest] = {}
        controls = {target.token_text(token): token for token in target.special_ids}
        self._controls = {token: controls.get(own.token_text(token)) for token in own.special_ids}
        self._controls |= {token: target.eos_id for token in own.eos_ids if self._controls.get(token) is None}

    @property
    def problem(self) -> str:
        """That of the drafter."""
        return self._drafter.problem

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        asked = {
            request.id: (self._translated(request), budget)
            for request, budget in zip(requests, budgets, strict=True)
            if budget.num_tokens > 0 and self._translated(request).tokens
        }
        own = self._drafter.propose(
            [request for request, _ in asked.values()],
            [budget for _, budget in asked.values()],
        )
        trees = dict(zip(asked, own, strict=True))
        return [
            self._translate_back(request, trees[request.id]).cut(budget.num_tokens)
            if request.id in trees
            else no_draft(request)
            for request, budget in zip(requests, budgets, strict=True)
        ]

    def _translated(self, request: RequestView) -> TranslatedRequest:
        known = self._requests.get(request.id)
        if known is None:
            known = TranslatedRequest(request, GrowingTranslation(self._target, self._own))
            self._requests[request.id] = known
        known.original = request
        known.translation.follow(request.tokens)
        return known

    def _translate_back(self, request: RequestView, own: DraftTree) -> DraftTree:
        """The tree in the target's tokens: each branch by itself, joined where they begin alike."""
        tokens, parents, confidence = [request.tokens[-1]], [-1], [1.0]
        nodes: dict[tuple[int, int], int] = {}
        inner = set(own.parents)
        for leaf in (node for node in range(1, own.num_nodes) if node not in inner):
            parent = 0
            for token, chance in self._chain([(own.tokens[node], own.confidence[node]) for node in own.path(leaf)]):
                node = nodes.setdefault((parent, token), len(tokens))
                if node == len(tokens):
                    tokens.append(token)
                    parents.append(parent)
                    confidence.append(chance)
                parent = node
        return DraftTree(tuple(tokens), tuple(parents), tuple(confidence))

    def _chain(self, drafted: Drafted) -> list[tuple[int, float]]:
        """The target's tokens for some of the drafter's."""
        chain: list[tuple[int, float]] = []
        text: list[tuple[int, float]] = []
        for token, chance in drafted:
            if token not in self._controls:
                text.append((token, chance))
                continue
            chain += self._encoded(text)
            text = []
            control = self._controls[token]
            if control is None:
                return chain
            chain.append((control, chance))
        end = self._encoded(text)
        whole = end and self._target.token_bytes(end[-1][0]) == self._own.token_bytes(text[-1][0])
        return chain + (end if whole else end[:-1])

    def _encoded(self, text: Drafted) -> list[tuple[int, float]]:
        """The target's tokens for ordinary text, nothing where they would stand for something else.

        A token is as sure as all the drafter's tokens together that begin in it.
        """
        data = b"".join(self._own.token_bytes(token) for token, _ in text)
        ids = self._encoder.encode(data)
        pieces = [self._target.token_bytes(token) for token in ids]
        if b"".join(pieces) != data:
            return []
        ends = list(accumulate(len(piece) for piece in pieces))
        starts = accumulate((len(self._own.token_bytes(token)) for token, _ in text), initial=0)
        chances = [1.0] * len(ids)
        for start, (_, chance) in zip(starts, text, strict=False):
            place = int(np.searchsorted(ends, start, side="right"))
            if place < len(ids):
                chances[place] *= chance
        return list(zip(ids, chances, strict=True))

    def read(self, request: RequestView, num_tokens: int) -> None:
        """Read some of the tokens that `num_unread` counts."""
        self._drafter.read(self._translated(request), num_tokens)

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        """See `LateReader`. Counted in the drafter's own tokens."""
        self._drafter.read_only_end(self._translated(request), num_tokens)

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`. Counted in the drafter's own tokens."""
        return max(0, self._drafter.num_unread(self._translated(request)))

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._drafter.time_step(num_tokens=num_tokens, context=context)

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Nothing to do: the text is translated when the request is next looked at."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._requests.pop(request_id, None)
        self._drafter.forget(request_id)

    def forget_texts(self) -> None:
        """Drop what is kept of requests that have ended."""
        self._drafter.forget_texts()
