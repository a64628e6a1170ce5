"""From token ids back to text, at once or as they come."""

import codecs
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from foredraft.text.vocabulary import TokenKind

if TYPE_CHECKING:
    from foredraft.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns a stream of token ids into a stream of text, whole characters only.

    `push` returns what a token completes: possibly nothing, where it ends inside a character, possibly more
    than one character. Bytes that can no longer become a character come out as U+FFFD as soon as that is
    certain. All pushes and `finish` together give exactly `tokenizer.decode` of the same ids.

    `at_start` says that the ids begin a text: SentencePiece vocabularies write a space before the first word
    (GGUF's `add_space_prefix`) that is not part of it and is dropped. For ids that continue a prompt, use
    `at_start=False`.
    """

    def __init__(self, tokenizer: "Tokenizer", *, skip_special: bool = True, at_start: bool = True) -> None:
        self._vocabulary = tokenizer.vocabulary
        self._skipped = tokenizer.special_ids if skip_special else frozenset[int]()
        self._special_ids = tokenizer.special_ids
        self._drop_space = at_start and tokenizer.space_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def _bytes(self, token_id: int) -> bytes:
        piece = self._vocabulary.bytes_of(token_id)
        if self._drop_space and token_id not in self._special_ids and piece:
            self._drop_space = False
            is_word = self._vocabulary.kinds[token_id] == TokenKind.NORMAL
            if is_word and piece.startswith(b" "):
                piece = piece[1:]
        return b"" if token_id in self._skipped else piece

    def push(self, token_id: int) -> str:
        """Return the text that is certain after this token and has not been returned yet."""
        return self._decoder.decode(self._bytes(token_id))

    def finish(self) -> str:
        """Return what is left: U+FFFD if the ids ended inside a character, else nothing."""
        return self._decoder.decode(b"", final=True)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of all ids at once, ended by `finish`."""
        return self._decoder.decode(b"".join([self._bytes(i) for i in ids]), final=True)


def decode(tokenizer: "Tokenizer", ids: Sequence[int], *, skip_special: bool, at_start: bool) -> str:
    """Return the text of a whole sequence of ids."""
    return Detokenizer(tokenizer, skip_special=skip_special, at_start=at_start).decode(ids)
