"""SentencePiece-style encoding: merge the pair whose token has the highest score, until none is left."""

import heapq
import re
from collections.abc import Mapping, Sequence
from functools import cached_property

from foredraft.text.vocabulary import SPACE_MARK

_WORDS = re.compile(f"{SPACE_MARK}*[^{SPACE_MARK}]+|{SPACE_MARK}+")
_MAX_REMEMBERED = 1 << 16


class SpmEncoder:
    """Encodes ordinary text (no special tokens) with a SentencePiece BPE vocabulary.

    Of the adjacent pairs whose concatenation is a token, the one with the highest score is merged first, the
    leftmost among equals, as in SentencePiece (Kudo and Richardson 2018) and llama.cpp. Characters that are
    no token become byte tokens. `ids` maps mergeable texts to ids, `scores` is by id, `byte_ids` has an id
    for each of the 256 bytes or None where the vocabulary has none; `unknown_id` then stands in.
    """

    def __init__(
        self,
        ids: Mapping[str, int],
        scores: Sequence[float],
        byte_ids: Sequence[int | None],
        unknown_id: int | None,
    ) -> None:
        self._ids = ids
        self._scores = scores
        self._byte_ids = byte_ids
        self._unknown_id = unknown_id
        self._remembered: dict[str, list[int]] = {}

    @cached_property
    def _crossing(self) -> list[str]:
        """Tokens with a space inside: only they can join two words."""
        return [text for text in self._ids if SPACE_MARK in text.lstrip(SPACE_MARK)]

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        text = text.replace(" ", SPACE_MARK)
        if any(token in text for token in self._crossing):
            return self._encode_word(text)
        # No token can reach over the start of a word, so words are independent and worth remembering.
        ids: list[int] = []
        for word in _WORDS.findall(text):
            known = self._remembered.get(word)
            if known is None:
                known = self._encode_word(word)
                if len(self._remembered) >= _MAX_REMEMBERED:
                    self._remembered = {}
                self._remembered[word] = known
            ids += known
        return ids

    def _encode_word(self, text: str) -> list[int]:
        whole = self._ids.get(text) if len(text) == 1 else None
        if whole is not None:
            return [whole]
        ids: list[int] = []
        for symbol in self._merge(text):
            token_id = self._ids.get(symbol)
            if token_id is not None:
                ids.append(token_id)
            else:
                ids += self._bytes_of(symbol)
        return ids

    def _bytes_of(self, symbol: str) -> list[int]:
        ids = [self._byte_ids[byte] for byte in symbol.encode()]
        known = [i for i in ids if i is not None]
        if len(known) == len(ids):
            return known
        return [] if self._unknown_id is None else [self._unknown_id]

    def _merge(self, text: str) -> list[str]:
        symbols: list[str] = list(text)
        num_symbols = len(symbols)
        previous = list(range(-1, num_symbols - 1))
        following = [*range(1, num_symbols), -1]
        ids, scores = self._ids, self._scores
        # An entry is (-score, left, right, merged length); it is out of date if the lengths differ.
        heap: list[tuple[float, int, int, int]] = []
        for left in range(num_symbols - 1):
            token_id = ids.get(symbols[left] + symbols[left + 1])
            if token_id is not None:
                heap.append((-scores[token_id], left, left + 1, 2))
        heapq.heapify(heap)
        while heap:
            _, left, right, length = heapq.heappop(heap)
            if not symbols[left] or not symbols[right]:
                continue
            if len(symbols[left]) + len(symbols[right]) != length:
                continue
            symbols[left] += symbols[right]
            symbols[right] = ""
            after = following[left] = following[right]
            if after >= 0:
                previous[after] = left
            for first, second in ((previous[left], left), (left, after)):
                if first < 0 or second < 0:
                    continue
                merged = symbols[first] + symbols[second]
                token_id = ids.get(merged)
                if token_id is not None:
                    heapq.heappush(heap, (-scores[token_id], first, second, len(merged)))
        return [symbol for symbol in symbols if symbol]
