"""The tokens of a model: their texts, their kinds and the bytes they stand for."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import compress
from typing import Literal

Style = Literal["byte_level", "sentencepiece"]

SPACE_MARK = "\u2581"
"""What SentencePiece vocabularies write for a space."""


class TokenKind(IntEnum):
    """What a vocabulary entry is for (the numbers are those of GGUF's `tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_PADDING = re.compile(r"\[PAD-?\d+\]|<\|?(?:dummy|padding|pad_token)_?\d+\|?>|\[EMPTY_\d+\]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_alphabet() -> dict[str, int]:
    """Map each character of the byte-level alphabet to its byte (Radford et al. 2019, GPT-2).

    Printable Latin-1 characters stand for themselves, the other 68 bytes for U+0100 and up.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    alphabet.update({chr(0x100 + place): byte for place, byte in enumerate(others)})
    return alphabet


_ALPHABET = byte_alphabet()


def byte_of_token(text: str) -> int | None:
    """Return the byte that a byte-fallback token such as `<0x0A>` stands for, None for other tokens."""
    match = _BYTE_TOKEN.fullmatch(text)
    return int(match[1], 16) if match else None


def ids_of_kinds(kinds: bytes | bytearray, *wanted: TokenKind) -> list[int]:
    """Return the ids whose kind is one of the wanted ones (fast: vocabularies have up to 262144 entries)."""
    is_wanted = bytes(kind in wanted for kind in range(256))
    return list(compress(range(len(kinds)), kinds.translate(is_wanted)))


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Token texts and kinds by id; `style` says how a text stands for bytes.

    `kinds` holds one `TokenKind` number per token.
    """

    tokens: Sequence[str]
    kinds: bytes
    style: Style
    _bytes: dict[int, bytes] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def is_placeholder(self, token_id: int) -> bool:
        """Whether an id only fills the table up: past the end, unused, or a name such as `[PAD151665]`."""
        if token_id >= len(self.tokens):
            return True
        text = self.tokens[token_id]
        return self.kinds[token_id] == TokenKind.UNUSED or not text or _PADDING.fullmatch(text) is not None

    @cached_property
    def num_real(self) -> int:
        """One more than the highest id that is not a placeholder."""
        size = len(self.tokens)
        while size > 0 and self.is_placeholder(size - 1):
            size -= 1
        return size

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of control and unknown tokens: structure, never part of an ordinary text."""
        return frozenset(ids_of_kinds(self.kinds, TokenKind.CONTROL, TokenKind.UNKNOWN))

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for, special or not; unused and padding ids stand for nothing.

        Raises `ValueError` for a negative id.
        """
        piece = self._bytes.get(token_id)
        if piece is None:
            if token_id < 0:
                raise ValueError(f"token id {token_id} is negative")
            piece = self._bytes[token_id] = self._make_bytes(token_id)
        return piece

    def _make_bytes(self, token_id: int) -> bytes:
        if token_id >= len(self.tokens):
            return b""
        text, kind = self.tokens[token_id], self.kinds[token_id]
        if kind == TokenKind.UNUSED:
            return b""
        if kind == TokenKind.BYTE:
            byte = byte_of_token(text)
            return text.encode() if byte is None else bytes([byte])
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED):
            return text.encode()
        if self.style == "sentencepiece":
            return text.replace(SPACE_MARK, " ").encode()
        piece = bytearray()
        for char in text:
            byte = _ALPHABET.get(char)
            # A character outside the alphabet (a token added by hand) stands for itself.
            piece += char.encode() if byte is None else bytes([byte])
        return bytes(piece)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the real tokens in order: equal vocabularies have equal ones, however padded."""
        real = ("" if self.is_placeholder(i) else self.tokens[i] for i in range(self.num_real))
        return hashlib.sha256("\0".join((self.style, *real)).encode()).hexdigest()


def first_difference(target: Vocabulary, drafter: Vocabulary) -> tuple[int, str, str] | None:
    """Return the first id at which two vocabularies differ, with both texts; None if they are the same.

    Only real tokens count. A placeholder (see `Vocabulary.is_placeholder`) equals any other placeholder and
    a missing entry, so tables padded to different sizes are the same. A real token on one side that is a
    placeholder or missing on the other is a difference: such an id means something to one model only. Its
    text on the other side is then the empty string.
    """
    num_shared = min(len(target), len(drafter))
    for i in range(max(target.num_real, drafter.num_real)):
        if i < num_shared and target.tokens[i] == drafter.tokens[i] and target.style == drafter.style:
            continue
        in_target, in_drafter = not target.is_placeholder(i), not drafter.is_placeholder(i)
        if not in_target and not in_drafter:
            continue
        text_t = target.tokens[i] if in_target else ""
        text_d = drafter.tokens[i] if in_drafter else ""
        if text_t != text_d or target.bytes_of(i) != drafter.bytes_of(i):
            return i, text_t, text_d
    return None
