"""Tokenizers from Hugging Face model folders."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.text.chat import Templates
from foredraft.text.folder_encoder import FolderEncoder
from foredraft.text.folder_files import (
    add_declared,
    named_tokens,
    read_json,
    read_settings,
    read_templates,
    stated_ends,
    stated_size,
    text_of,
)
from foredraft.text.special import SpecialSplitter, find_ends, is_structural
from foredraft.text.template import literals_of
from foredraft.text.tokenizer import Tokenizer
from foredraft.text.vocabulary import Style, TokenKind, Vocabulary, byte_of_token


def tokenizer_from_folder(path: str | Path) -> Tokenizer:
    """Build the tokenizer of a model folder in the format of Hugging Face.

    `tokenizer.json` is needed. Read where present: `tokenizer_config.json` (special and added tokens, chat template),
    `special_tokens_map.json` and `added_tokens.json` (the same, in older folders), `generation_config.json` and
    `config.json` (eos ids), chat templates in files of their own. Texts known to end a generation count as ends where
    the folder declares them as added tokens.

    Raises `ModelFileError` for missing or damaged files, `UnsupportedModelError` for a kind of tokenizer
    whose tokens do not stand for bytes (WordPiece, for example).
    """
    folder = Path(path)
    state = read_json(folder / "tokenizer.json", needed=True)
    settings = read_settings(folder)
    rust = _rust(state, folder)
    style, space_prefix = _style(state, folder)
    if not rust.get_vocab_size():
        raise ModelFileError(f"{folder / 'tokenizer.json'} holds no tokens")
    add_declared(rust, settings, folder, most=stated_size(folder))
    ids: dict[str, int] = rust.get_vocab(with_added_tokens=True)
    tokens, kinds = _tokens(ids, rust, style, folder)
    named = {name: text for name, value in named_tokens(settings).items() if (text := text_of(value)) in ids}
    bos_id, eos_id = (ids.get(named.get(name) or "") for name in ("bos_token", "eos_token"))
    stated = stated_ends(folder)
    if eos_id is None and stated:
        eos_id = stated[0]
    eos_ids = find_ends(
        {text: i for text, i in ids.items() if kinds[i] != TokenKind.NORMAL},
        kinds,
        stated=stated if eos_id is None else [eos_id, *stated],
    )
    prefix = _added_begin(rust)
    templates = read_templates(folder, settings)
    default = templates.get("default", next(iter(templates.values()), None))
    variables = {name: text for name, text in named.items() if text is not None}
    for name, token_id in (("bos_token", prefix[0] if prefix else None), ("eos_token", eos_id)):
        if token_id is not None and token_id < len(tokens):
            variables.setdefault(name, tokens[token_id])
    return Tokenizer(
        vocabulary=Vocabulary(tokens, bytes(kinds), style),
        encoder=_encoder(rust, kinds, literals_of(default or "")),
        bos_id=prefix[0] if prefix else bos_id,
        eos_id=eos_id,
        eos_ids=eos_ids,
        add_bos=bool(prefix) or (settings.get("add_bos_token") is True and bos_id is not None),
        space_prefix=space_prefix,
        templates=Templates(default, templates, variables),
    )


def _rust(state: dict[str, Any], folder: Path) -> RustTokenizer:
    """The object that encodes, without what was stored for training: cuts, padding, random merges."""
    model = state.get("model")
    try:
        if isinstance(model, dict) and model.get("dropout"):
            rust: RustTokenizer = RustTokenizer.from_str(json.dumps({**state, "model": {**model, "dropout": None}}))
        else:
            rust = RustTokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8-sig"))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{folder / 'tokenizer.json'} cannot be read: {reason}") from error
    rust.no_truncation()
    rust.no_padding()
    return rust


def _parts(value: object) -> list[dict[str, Any]]:
    """Flatten a normalizer, pre-tokenizer or decoder into the list of its steps."""
    if not isinstance(value, dict):
        return []
    inner = value.get("pretokenizers") or value.get("decoders") or value.get("normalizers")
    if isinstance(inner, list):
        return [part for item in inner for part in _parts(item)]
    return [value]


def _style(state: Mapping[str, Any], folder: Path) -> tuple[Style, bool]:
    """Return how tokens stand for bytes, and whether a space is written before the first word."""
    decoders = _parts(state.get("decoder"))
    kinds = {part.get("type") for part in decoders}
    if "ByteLevel" in kinds:
        return "byte_level", False
    if kinds & {"Metaspace", "ByteFallback", "Replace"}:
        strips = any(part.get("type") == "Strip" and part.get("start") for part in decoders)
        metaspace = any(
            part.get("type") == "Metaspace"
            and part.get("prepend_scheme", "always" if part.get("add_prefix_space", True) else "never") != "never"
            for part in decoders
        )
        return "sentencepiece", strips or metaspace
    names = ", ".join(sorted(map(str, kinds))) or "none"
    raise UnsupportedModelError(
        f"the tokenizer in {folder} is of a kind that is not supported (decoder: {names}); "
        "use a model with a byte-level BPE or SentencePiece vocabulary"
    )


def _tokens(ids: Mapping[str, int], rust: RustTokenizer, style: Style, folder: Path) -> tuple[list[str], bytearray]:
    size = max(ids.values()) + 1
    if size > 16 * len(ids) + 4096:
        raise ModelFileError(f"{folder / 'tokenizer.json'} has an id of {size - 1} for {len(ids)} tokens")
    tokens = [""] * size
    kinds = bytearray([TokenKind.UNUSED] * size)
    for text, token_id in ids.items():
        tokens[token_id] = text
        kinds[token_id] = TokenKind.NORMAL
        if style == "sentencepiece" and len(text) == 6 and byte_of_token(text) is not None:
            kinds[token_id] = TokenKind.BYTE
    for token_id, added in rust.get_added_tokens_decoder().items():
        kinds[token_id] = TokenKind.CONTROL if added.special else TokenKind.USER_DEFINED
    return tokens, kinds


def _encoder(rust: RustTokenizer, kinds: bytearray, literals: str) -> FolderEncoder:
    added = rust.get_added_tokens_decoder()
    # Tokens that end an answer are control tokens even where the folder does not call them special.
    is_control = {i: token.special or kinds[i] == TokenKind.CONTROL for i, token in added.items()}
    control = {token.content: i for i, token in added.items() if is_control[i]}
    user_defined = {token.content: i for i, token in added.items() if not is_control[i]}
    structural = [text for text in user_defined if is_structural(text, literals)]
    splitter = SpecialSplitter(control, user_defined, structural)
    hidden = {token.content: token for token in added.values() if token.content in {*splitter.control, *structural}}
    return FolderEncoder(splitter, rust, hidden)


def _added_begin(rust: RustTokenizer) -> list[int]:
    """Return the ids that the post-processor puts before a text."""
    with_ends: list[int] = rust.encode("a", add_special_tokens=True).ids
    without: list[int] = rust.encode("a", add_special_tokens=False).ids
    for start in range(len(with_ends) - len(without) + 1):
        if with_ends[start : start + len(without)] == without:
            return with_ends[:start]
    return []
