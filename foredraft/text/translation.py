"""From one vocabulary to another: shared tokens, texts encoded piece by piece, and bytes that are no whole text."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foredraft.text.tokenizer import Tokenizer
from foredraft.text.vocabulary import TokenKind, Vocabulary

Meanings = Sequence[tuple[bool, str | bytes]]

_TAIL_KEPT = 64  # bytes at the end of a text that are encoded anew whenever something follows
_TAIL_SETTLED = 256  # bytes from which on the beginning of such an end is settled
_TAIL_LONGEST = 1024  # bytes from which on it is settled at the border of a token, where no word begins


def shared_tokens(target: Tokenizer, other: Tokenizer) -> NDArray[np.int64]:
    """For each real token of `other` the target's token that stands for the same, or -1.

    Ordinary tokens are the same where their bytes are, control tokens where their texts are.
    """
    if target.vocabulary.style == other.vocabulary.style == "byte_level":
        meaning_of: Callable[[Vocabulary], Meanings] = _texts
    else:
        meaning_of = _bytes
    meanings, other_meanings = meaning_of(target.vocabulary), meaning_of(other.vocabulary)
    known = {meaning: token for token, meaning in reversed(list(enumerate(meanings)))}  # of equal ones, the first
    return np.array([known.get(meaning, -1) if meaning[1] else -1 for meaning in other_meanings], dtype=np.int64)


def _texts(vocabulary: Vocabulary) -> Meanings:
    """What tells tokens of one style apart: quicker than their bytes."""
    special = vocabulary.special_ids
    return [(token in special, vocabulary.tokens[token]) for token in range(vocabulary.num_real)]


def _bytes(vocabulary: Vocabulary) -> Meanings:
    special = vocabulary.special_ids
    return [(token in special, vocabulary.bytes_of(token)) for token in range(vocabulary.num_real)]


class ContinuingEncoder:
    """Encodes the bytes of an ordinary text's continuation: nothing is put before it, half characters are allowed."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, data: bytes, *, at_start: bool = False) -> list[int]:
        """Token ids that stand for `data`. at_start: it is the beginning of a text or follows a control token.

        Bytes that form no character become the tokens of single bytes, and are left out where there are none.
        """
        ids: list[int] = []
        while data:
            text, num_bytes = _leading_text(data)
            if text:
                ids += self._encode_text(text, at_start=at_start)
                at_start = False
            data = data[num_bytes:]
            if data and not text:
                byte_id = self._byte_ids.get(data[0])
                ids += [] if byte_id is None else [byte_id]
                data, at_start = data[1:], False
        return ids

    def _encode_text(self, text: str, *, at_start: bool) -> list[int]:
        if at_start or not self._writes_space:
            return self._tokenizer.encode(text, add_special=False)
        if text.startswith(" "):
            return self._tokenizer.encode(text[1:], add_special=False)
        # The encoder puts a space before a text. A line break keeps it apart from what is wanted.
        ids, num_before = self._tokenizer.encode("\n" + text, add_special=False), 2
        while ids and num_before > 0:
            num_before -= len(self._tokenizer.token_bytes(ids.pop(0)))
        return ids

    @cached_property
    def _writes_space(self) -> bool:
        """Whether the encoder puts a space before a text; not every decoder takes it away again."""
        ids = self._tokenizer.encode("\n", add_special=False)
        return bool(ids) and self._tokenizer.token_bytes(ids[0]).startswith(b" ")

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        vocabulary = self._tokenizer.vocabulary
        found: dict[int, int] = {}
        for token in range(vocabulary.num_real - 1, -1, -1):
            text, kind = vocabulary.tokens[token], vocabulary.kinds[token]
            if kind == TokenKind.BYTE or (len(text) == 1 and kind == TokenKind.NORMAL):
                data = vocabulary.bytes_of(token)
                if len(data) == 1 and (kind == TokenKind.BYTE or data[0] not in found):
                    found[data[0]] = token
        return found


class ExactEncoder:
    """Encodes bytes into tokens that spell exactly these, whatever the vocabulary puts before or makes of a text.

    num_tokens: how many tokens of the vocabulary there are to spell with; control tokens are none of them.
    """

    def __init__(self, tokenizer: Tokenizer, num_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._continuing = ContinuingEncoder(tokenizer)
        self._num_tokens = num_tokens

    def encode(self, data: bytes) -> list[int]:
        """Token ids: the tokenizer's own where they spell `data`, else the longest tokens, one after the other.

        They spell only the beginning where the vocabulary has nothing for the byte behind it.
        """
        ids = self._continuing.encode(data)
        if b"".join(map(self._tokenizer.token_bytes, ids)) == data and max(ids, default=0) < self._num_tokens:
            return ids
        ids, place = [], 0
        while place < len(data):
            ends = range(min(len(data), place + self._longest), place, -1)
            end = next((end for end in ends if data[place:end] in self._ids), None)
            if end is None:
                break
            ids.append(self._ids[data[place:end]])
            place = end
        return ids

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        tokens = (token for token in range(self._num_tokens) if token not in self._tokenizer.special_ids)
        pieces = ((self._tokenizer.token_bytes(token), token) for token in tokens)
        return {piece: token for piece, token in pieces if piece}  # of equal ones the last: words come behind the bytes

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._ids), default=0)


def _leading_text(data: bytes) -> tuple[str, int]:
    """The characters at the beginning of `data`, and how many bytes they are."""
    try:
        return data.decode(), len(data)
    except UnicodeDecodeError as error:
        return data[: error.start].decode(), error.start


class GrowingTranslation:
    """The text of one vocabulary's tokens in the tokens of another, kept up to date as tokens are added.

    tokens: the text so far in the other vocabulary, begun with its beginning-of-text token where it wants one. What is
    added changes only the last few of them: words that are followed by others stay as they are. Control tokens become
    those of the same text, or nothing.
    """

    def __init__(self, source: Tokenizer, other: Tokenizer) -> None:
        self._source, self._other = source, other
        self._encoder = ContinuingEncoder(other)
        begin = other.bos_id if other.add_bos else None
        self._settled = [] if begin is None else [begin]
        self._begin = list(self._settled)
        self._tail = b""
        self._at_start = True
        self._num_read = 0
        self.tokens: list[int] = list(self._settled)

    @cached_property
    def _controls(self) -> dict[int, int]:
        texts = {self._other.token_text(token): token for token in self._other.special_ids}
        own = ((token, texts.get(self._source.token_text(token))) for token in self._source.special_ids)
        return {token: other for token, other in own if other is not None}

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in what `tokens` hold behind those of the last call, which they begin with."""
        new = tokens[self._num_read :]
        if not new:
            return
        self._num_read = len(tokens)
        for token in new:
            if token in self._source.special_ids:
                self._control(token)
            else:
                self._tail += self._source.token_bytes(token)
        ids = self._encode_tail()
        self.tokens = self._settled + ids
        if len(self._tail) > _TAIL_SETTLED:
            self._settle(ids)

    def _control(self, token: int) -> None:
        self._settled += self._encode_tail()
        self._tail, self._at_start = b"", True
        other = self._controls.get(token)
        if other is not None and not (self._settled == self._begin == [other]):
            self._settled.append(other)

    def _encode_tail(self) -> list[int]:
        return self._encoder.encode(self._tail, at_start=self._at_start)

    def _settle(self, ids: Sequence[int]) -> None:
        """Leave the beginning of the tail as it is from now on, up to the start of a word near its end."""
        lengths = [len(self._other.token_bytes(token)) for token in ids]
        extra = sum(lengths) - len(self._tail)  # the space before a text, or bytes without a token
        if extra not in (0, 1):
            self._tail, self._at_start = b"", False
            self._settled += ids
            return
        borders = np.cumsum([-extra, *lengths])
        latest = len(self._tail) - _TAIL_KEPT
        for number in range(len(ids), 0, -1):
            place = int(borders[number])
            if place <= latest and (self._starts_word(place) or len(self._tail) > _TAIL_LONGEST):
                self._settled += ids[:number]
                self._tail, self._at_start = self._tail[place:], False
                return

    def _starts_word(self, place: int) -> bool:
        """Whether a word that begins with a space begins there: every tokenizer cuts a text there."""
        before, space, letter = self._tail[place - 1 : place], self._tail[place : place + 1], self._tail[place + 1 :]
        return space == b" " and not before.isspace() and letter[:1].isalpha()
