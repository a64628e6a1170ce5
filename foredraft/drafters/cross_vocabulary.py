"""Drafts from a model with another tokenizer: the text is translated at the border, there and back.

Sources: Timor et al., "Accelerating LLM Inference with Lossless Speculative Decoding Algorithms for Heterogeneous
Vocabularies" (2025), exact match of strings; the tokens that both vocabularies have share the target's noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from foredraft.drafters.base import Drafter, Outcome, PromptFeatures, SequenceView, no_draft
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.kernels.batch import Ints
from foredraft.sampling import Processors, SamplingParams
from foredraft.text import Tokenizer
from foredraft.text.translation import ContinuingEncoder, GrowingTranslation, shared_tokens
from foredraft.tree import Budget, DraftTree

Drafted = Sequence[tuple[int, float]]
"""Tokens one below the other, with their confidences."""


@dataclass(frozen=True)
class _Translated:
    """A sequence in the drafter's own tokens: a `SequenceView`. original: as the target has it."""

    original: SequenceView
    tokens: Sequence[int]
    id: int
    num_prompt_tokens: int
    max_length: int
    params: SamplingParams
    sample_index: int
    processors: Processors | None


def original(sequence: SequenceView) -> SequenceView:
    """The target's sequence behind a translated one."""
    assert isinstance(sequence, _Translated)
    return sequence.original


def names_of_tokens(target: Tokenizer, own: Tokenizer) -> Ints:
    """What each real token of the drafter is called where drafter and target share noise.

    The target's name for one that the target has too, and a name of its own beyond the target's vocabulary for others.
    """
    shared = shared_tokens(target, own)
    others = target.vocab_size + np.arange(len(shared))
    return np.where(shared >= 0, shared, others).astype(np.int32)


class CrossVocabularyDrafter(DelegatingDrafter):
    """Asks a drafter that speaks other tokens than the target. Uncached tokens are counted in the drafter's own.

    drafter: sees each sequence in its own tokens, see `original`; it is not told what the target computed of it.
    target, own: the tokenizers of the target and of the drafter.

    What is drafted is decoded, and encoded as the target would. The last token of it is not proposed where it is only
    a part of the drafter's last one or holds several: with the letters that follow, the target may have one token for
    both. It is where both vocabularies have it, or where the text ends there.
    """

    def __init__(self, drafter: Drafter, *, target: Tokenizer, own: Tokenizer) -> None:
        super().__init__(drafter)
        self.spec = replace(drafter.spec, name=f"{drafter.name} (another tokenizer)")
        self._drafter = drafter
        self._target, self._own = target, own
        self._encoder = ContinuingEncoder(target)
        self._translations: dict[int, GrowingTranslation] = {}
        controls = {target.token_text(token): token for token in target.special_ids}
        self._controls = {token: controls.get(own.token_text(token)) for token in own.special_ids}
        self._controls |= {token: target.eos_id for token in own.eos_ids if self._controls.get(token) is None}

    @property
    def names(self) -> tuple[str, ...]:
        """See `Drafter`."""
        return (self.spec.name,)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        asked = {
            sequence.id: (translated, budget)
            for sequence, budget in zip(sequences, budgets, strict=True)
            if budget.num_tokens > 0 and (translated := self._translated(sequence)).tokens
        }
        own = self._drafter.propose(
            [translated for translated, _ in asked.values()], [budget for _, budget in asked.values()]
        )
        trees = dict(zip(asked, own, strict=True))
        return [
            self._translate_back(sequence, trees[sequence.id]).cut(budget.num_tokens)
            if sequence.id in trees
            else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _translated(self, sequence: SequenceView) -> _Translated:
        translation = self._translations.get(sequence.id)
        if translation is None:
            translation = self._translations[sequence.id] = GrowingTranslation(self._target, self._own)
        translation.follow(sequence.tokens)
        return _Translated(
            sequence,
            translation.tokens,
            sequence.id,
            sequence.num_prompt_tokens,
            sequence.max_length,
            sequence.params,
            sequence.sample_index,
            sequence.processors,
        )

    def _translate_back(self, sequence: SequenceView, own: DraftTree) -> DraftTree:
        """The tree in the target's tokens: each branch by itself, joined where they begin alike."""
        tokens, parents, confidence = [sequence.tokens[-1]], [-1], [1.0]
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

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """Not passed on: the text is translated when the sequence is next looked at."""

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """Not passed on: the text is translated when the sequence is next looked at."""

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`."""
        return self._drafter.num_uncached_tokens(self._translated(sequence))

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        self._drafter.prefill(self._translated(sequence), num_tokens)

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        self._drafter.begin_late(self._translated(sequence), num_tokens)

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._translations.pop(sequence_id, None)
        self._drafter.end(sequence_id)
