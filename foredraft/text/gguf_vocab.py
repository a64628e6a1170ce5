"""Tokenizers from the metadata of GGUF files."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tokenizers import Tokenizer as RustTokenizer

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.text.chat import Templates
from foredraft.text.pretokenize import adds_bos_by_default, pre_tokenizer, takes_whole_words
from foredraft.text.rust import bpe, encoded
from foredraft.text.special import SpecialSplitter, find_ends, is_structural
from foredraft.text.spm import SpmEncoder
from foredraft.text.template import literals_of
from foredraft.text.tokenizer import Tokenizer
from foredraft.text.vocabulary import TokenKind, Vocabulary, ids_of_kinds

T = TypeVar("T")

_KEY = "tokenizer.ggml."


@dataclass(frozen=True)
class PieceEncoder:
    """Cuts special tokens out of a text and encodes the pieces between them one by one.

    `space_prefix` writes a space before the text and after every special token, as SentencePiece files may
    ask for.
    """

    splitter: SpecialSplitter
    encode_piece: Callable[[str], list[int]]
    space_prefix: bool

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a whole text."""
        return self._join(self.splitter.split(text, self.splitter.of_sort(control=parse_special)))

    def encode_traced(self, text: str, origins: bytes) -> list[int]:
        """Return the ids of a conversation, where each character has an origin."""
        return self._join(self.splitter.split(text, self.splitter.by_origin(origins)))

    def _join(self, pieces: Iterable[int | str]) -> list[int]:
        ids: list[int] = []
        after_special = True
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
                after_special = True
            else:
                ids += self.encode_piece(" " + piece if self.space_prefix and after_special else piece)
                after_special = False
        return ids


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """Build the tokenizer that the metadata of a GGUF file describes.

    `metadata` maps keys to Python values (lists for arrays). The rules, defaults included, are those of
    llama.cpp: special ids out of range are ignored, known end-of-generation texts count as ends.

    Raises `ModelFileError` for missing or damaged entries, `UnsupportedModelError` for an unknown kind of
    tokenizer or pre-tokenizer.
    """
    model = _get(metadata, "model", str)
    if model is None:
        raise ModelFileError(f"the model file has no tokenizer ({_KEY}model is missing); use a complete GGUF file")
    if model not in ("gpt2", "llama"):
        raise UnsupportedModelError(
            f"tokenizers of the kind {model!r} ({_KEY}model) are not supported; "
            "use a model with a byte-level BPE or SentencePiece vocabulary"
        )
    is_spm = model == "llama"
    pre = _get(metadata, "pre", str) or "default"
    tokens, kinds = _read_tokens(metadata)
    ids = _ids(tokens)

    def special(name: str, default: int | None = None) -> int | None:
        token_id = _get(metadata, f"{name}_token_id", int)
        token_id = default if token_id is None or not 0 <= token_id < len(tokens) else token_id
        return token_id if token_id is not None and token_id < len(tokens) else None

    # The defaults are those of llama.cpp, where they are control tokens; a byte-level vocabulary has none.
    eos_id = special("eos", _control(kinds, 2) if is_spm else None)
    bos_id = special("bos", _control(kinds, 1) if is_spm else None)
    stated = (eos_id, special("eot"), special("eom"))
    fill_in = (special("fim_pad"), special("fim_rep"), special("fim_sep"))
    declared = bytes(kinds)
    eos_ids = find_ends(ids, kinds, stated=[i for i in stated if i is not None], fill_in=fill_in)
    templates = _templates(
        metadata, {"bos_token": bos_id, "eos_token": eos_id, "pad_token": special("padding")}, tokens
    )
    splitter = _splitter(tokens, kinds, literals_of(templates.default or ""))
    # What is structural is only ever matched whole, never put together from pieces of ordinary text.
    apart = {*splitter.structural, *(tokens[i] for i in ids_of_kinds(declared, TokenKind.CONTROL, TokenKind.UNKNOWN))}
    if is_spm:
        encode_piece = _spm_encoder(metadata, ids, declared, apart, unknown_id=special("unknown", 0))
    else:
        encode_piece = _bpe_encoder(metadata, ids, apart, pre)
    prefix = _flag(metadata, "add_space_prefix", default=is_spm)
    return Tokenizer(
        vocabulary=Vocabulary(tokens, bytes(kinds), "sentencepiece" if is_spm else "byte_level"),
        encoder=PieceEncoder(splitter, encode_piece, prefix),
        bos_id=bos_id,
        eos_id=eos_id,
        eos_ids=eos_ids,
        add_bos=_flag(metadata, "add_bos_token", default=is_spm or adds_bos_by_default(pre)),
        space_prefix=prefix,
        templates=templates,
    )


def _ids(tokens: Sequence[str]) -> dict[str, int]:
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) != len(tokens):
        twice = next(i for i, text in enumerate(tokens) if ids[text] != i)
        raise ModelFileError(
            f"the vocabulary holds {tokens[twice]!r} twice (ids {twice} and {ids[tokens[twice]]}); the file is damaged"
        )
    return ids


def _control(kinds: bytes | bytearray, token_id: int) -> int | None:
    return token_id if token_id < len(kinds) and kinds[token_id] == TokenKind.CONTROL else None


def _get(metadata: Mapping[str, object], name: str, kind: type[T]) -> T | None:
    value = metadata.get(_KEY + name)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise ModelFileError(f"{_KEY}{name} must be of type {kind.__name__}, not {type(value).__name__}")
    return value


def _flag(metadata: Mapping[str, object], name: str, *, default: bool) -> bool:
    value = _get(metadata, name, bool)
    return default if value is None else value


def _list(metadata: Mapping[str, object], name: str, kinds: tuple[type[T], ...], size: int) -> list[T] | None:
    value = _get(metadata, name, list)
    if value is None:
        return None
    if not set(map(type, value)) <= set(kinds):
        raise ModelFileError(f"{_KEY}{name} holds an entry that is not of type {kinds[0].__name__}")
    if len(value) < size:
        raise ModelFileError(f"{_KEY}{name} has {len(value)} entries for {size} tokens; the file is damaged")
    return value


def _read_tokens(metadata: Mapping[str, object]) -> tuple[list[str], bytearray]:
    tokens = _list(metadata, "tokens", (str,), 1)
    if tokens is None:
        raise ModelFileError(f"the model file has no vocabulary ({_KEY}tokens is missing)")
    if "" in tokens:
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
    kinds = _list(metadata, "token_type", (int,), len(tokens))
    try:
        known = bytearray([TokenKind.NORMAL] * len(tokens) if kinds is None else kinds[: len(tokens)])
        "\0".join(tokens).encode()
    except ValueError:
        raise ModelFileError(
            f"{_KEY}tokens or {_KEY}token_type holds an entry that cannot be; the file is damaged"
        ) from None
    return tokens, known


def _splitter(tokens: Sequence[str], kinds: bytes | bytearray, literals: str) -> SpecialSplitter:
    user_defined = {tokens[i]: i for i in ids_of_kinds(kinds, TokenKind.USER_DEFINED)}
    return SpecialSplitter(
        {tokens[i]: i for i in ids_of_kinds(kinds, TokenKind.CONTROL, TokenKind.UNKNOWN)},
        user_defined,
        [text for text in user_defined if is_structural(text, literals)],
    )


def _bpe_encoder(
    metadata: Mapping[str, object], ids: dict[str, int], apart: set[str], pre: str
) -> Callable[[str], list[int]]:
    merges = _list(metadata, "merges", (str,), 0)
    if merges is None:
        raise ModelFileError(f"the model file has no merges ({_KEY}merges is missing)")
    pairs = _pairs(merges)
    split = pre_tokenizer(pre)
    mergeable = _without(ids, apart)
    try:
        model = bpe(mergeable, pairs, ignore_merges=takes_whole_words(pre))
    except ValueError:
        pairs = [(a, b) for a, b in pairs if a in mergeable and b in mergeable and a + b in mergeable]
        try:
            model = bpe(mergeable, pairs, ignore_merges=takes_whole_words(pre))
        except ValueError as error:
            raise ModelFileError(f"the vocabulary and the merges do not fit together: {error}") from error
    rust = RustTokenizer(model)
    rust.pre_tokenizer = split

    return partial(encoded, rust)


def _pairs(merges: list[str]) -> list[tuple[str, str]]:
    pairs: list[Any] = [tuple(merge.split(" ")) for merge in merges]
    if not set(map(len, pairs)) <= {2}:
        bad = next(merge for merge, pair in zip(merges, pairs, strict=True) if len(pair) != 2)
        raise ModelFileError(f"{_KEY}merges holds {bad!r}, which is not a pair; the file is damaged")
    return pairs


def _without(ids: dict[str, int], excluded: Iterable[str]) -> dict[str, int]:
    kept = ids.copy()
    for text in excluded:
        kept.pop(text, None)
    return kept


def _spm_encoder(
    metadata: Mapping[str, object], ids: dict[str, int], kinds: bytes, apart: set[str], *, unknown_id: int | None
) -> Callable[[str], list[int]]:
    scores = _list(metadata, "scores", (float, int), len(kinds))
    if scores is None:
        raise ModelFileError(f"the model file has no scores ({_KEY}scores is missing)")
    if any(map(math.isnan, scores)):
        raise ModelFileError(f"{_KEY}scores holds an entry that is not a number; the file is damaged")
    byte_ids = [ids.get(f"<0x{byte:02X}>", ids.get(chr(byte)) if byte < 128 else None) for byte in range(256)]
    # Text that spells a byte token stays text as well.
    texts = list(ids)
    mergeable = _without(ids, [*apart, *(texts[i] for i in ids_of_kinds(kinds, TokenKind.BYTE))])
    return SpmEncoder(mergeable, scores, byte_ids, unknown_id).encode


def _templates(metadata: Mapping[str, object], named_ids: Mapping[str, int | None], tokens: Sequence[str]) -> Templates:
    """The chat templates, also those for special uses (`tokenizer.chat_template.NAME`)."""
    key = "tokenizer.chat_template"
    found: dict[str, str] = {}
    for name, value in metadata.items():
        if (name == key or name.startswith(key + ".")) and value is not None:
            if not isinstance(value, str):
                raise ModelFileError(f"{name} must be of type str, not {type(value).__name__}")
            if value:
                found[name.removeprefix(key).removeprefix(".")] = value
    variables = {name: tokens[i] for name, i in named_ids.items() if i is not None}
    default = found.pop("", None) or found.get("default")
    return Templates(default, found, variables)
