"""Tokenizers from Hugging Face model folders."""

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import pre_tokenizers

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.text.special import SpecialSplitter, find_ends
from foredraft.text.tokenizer import Tokenizer
from foredraft.text.vocabulary import Style, TokenKind, Vocabulary, byte_of_token


@dataclass(frozen=True)
class FolderEncoder:
    """Encodes with the `tokenizers` object of a folder, which finds added tokens itself.

    `later` replaces the pre-tokenizer for pieces that do not begin a text, where that makes a difference. The
    object is switched between modes, so calls take turns.
    """

    splitter: SpecialSplitter
    rust: RustTokenizer
    later: pre_tokenizers.PreTokenizer | None
    strips: Mapping[int, tuple[bool, bool]]
    lock: threading.Lock = field(default_factory=threading.Lock)

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a whole text."""
        with self.lock:
            return self._encode(text, parse_special=parse_special)

    def encode_pieces(self, pieces: Iterable[int | str]) -> list[int]:
        """Return the ids of a text whose control tokens are already cut out."""
        ids: list[int] = []
        whole = list(pieces)
        with self.lock:
            first = self.rust.pre_tokenizer
            try:
                for place, piece in enumerate(whole):
                    if place and self.later is not None:
                        self.rust.pre_tokenizer = self.later
                    if isinstance(piece, int):
                        ids.append(piece)
                    else:
                        ids += self._encode(self._stripped(whole, place, piece), parse_special=False)
            finally:
                if self.later is not None:
                    self.rust.pre_tokenizer = first
        return ids

    def _encode(self, text: str, *, parse_special: bool) -> list[int]:
        self.rust.encode_special_tokens = not parse_special
        ids: list[int] = self.rust.encode(text, add_special_tokens=False).ids
        return ids

    def _stripped(self, pieces: list[int | str], place: int, text: str) -> str:
        """Drop spaces that a neighbouring special token swallows (`lstrip`, `rstrip`)."""
        before = pieces[place - 1] if place else None
        after = pieces[place + 1] if place + 1 < len(pieces) else None
        if isinstance(before, int) and self.strips.get(before, (False, False))[1]:
            text = text.lstrip()
        if isinstance(after, int) and self.strips.get(after, (False, False))[0]:
            text = text.rstrip()
        return text


def tokenizer_from_folder(path: str | Path) -> Tokenizer:
    """Build the tokenizer of a model folder in the format of Hugging Face.

    `tokenizer.json` is needed. Read where present: `tokenizer_config.json` (bos, eos, chat template),
    `generation_config.json` and `config.json` (eos ids), `chat_template.jinja`. Texts known to end a
    generation count as ends where the folder declares them as added tokens.

    Raises `ModelFileError` for missing or damaged files, `UnsupportedModelError` for a kind of tokenizer
    whose tokens do not stand for bytes (WordPiece, for example).
    """
    folder = Path(path)
    state = _read_json(folder / "tokenizer.json", needed=True)
    config = _read_json(folder / "tokenizer_config.json")
    try:
        rust = RustTokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ModelFileError(f"{folder / 'tokenizer.json'} cannot be read: {reason}") from error
    style, space_prefix = _style(state, folder)
    ids: dict[str, int] = rust.get_vocab(with_added_tokens=True)
    if not ids:
        raise ModelFileError(f"{folder / 'tokenizer.json'} holds no tokens")
    tokens, kinds = _tokens(ids, rust, style, folder)
    bos_id = _special_id(config, "bos_token", ids)
    eos_id = _special_id(config, "eos_token", ids)
    stated = _eos_ids(folder)
    if eos_id is None and stated:
        eos_id = stated[0]
    eos_ids = find_ends(
        {text: i for text, i in ids.items() if kinds[i] != TokenKind.NORMAL},
        kinds,
        stated=stated if eos_id is None else [eos_id, *stated],
    )
    prefix, suffix = _added_ends(rust)
    add_bos = bool(prefix) or (config.get("add_bos_token") is True and bos_id is not None)
    add_eos = bool(suffix) or (config.get("add_eos_token") is True and eos_id is not None)
    return Tokenizer(
        vocabulary=Vocabulary(tokens, bytes(kinds), style),
        encoder=_encoder(rust, state, ids),
        bos_id=prefix[0] if prefix else bos_id,
        eos_id=suffix[-1] if suffix else eos_id,
        eos_ids=eos_ids,
        add_bos=add_bos,
        add_eos=add_eos,
        space_prefix=space_prefix,
        chat_template=_chat_template(folder, config),
    )


def _read_json(path: Path, *, needed: bool = False) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if needed:
            raise ModelFileError(
                f"{path} is missing; a model folder needs it (only 'fast' tokenizers are supported)"
            ) from None
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise ModelFileError(f"{path} must hold a JSON object")
    return value


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


def _encoder(rust: RustTokenizer, state: Mapping[str, Any], ids: Mapping[str, int]) -> FolderEncoder:
    added = rust.get_added_tokens_decoder().items()
    splitter = SpecialSplitter(
        {token.content: i for i, token in added if token.special},
        {token.content: i for i, token in added if not token.special},
    )
    later = None
    parts = _parts(state.get("pre_tokenizer"))
    if any(part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first" for part in parts):
        steps: list[pre_tokenizers.PreTokenizer] = []
        for part in parts:
            if part.get("type") != "Metaspace":
                steps = []
                break
            steps.append(
                pre_tokenizers.Metaspace(part.get("replacement", "\u2581"), "never", split=part.get("split", True))
            )
        later = pre_tokenizers.Sequence(steps) if steps else None
    strips = {i: (token.lstrip, token.rstrip) for i, token in added if token.lstrip or token.rstrip}
    return FolderEncoder(splitter, rust, later, strips)


def _special_id(config: Mapping[str, Any], name: str, ids: Mapping[str, int]) -> int | None:
    value = config.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    return ids.get(text) if isinstance(text, str) else None


def _eos_ids(folder: Path) -> list[int]:
    found: list[int] = []
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        found += [i for i in values if isinstance(i, int) and not isinstance(i, bool)]
    return found


def _added_ends(rust: RustTokenizer) -> tuple[list[int], list[int]]:
    """Return the ids that the post-processor puts before and behind a text."""
    with_ends: list[int] = rust.encode("a", add_special_tokens=True).ids
    without: list[int] = rust.encode("a", add_special_tokens=False).ids
    num_extra = len(with_ends) - len(without)
    for start in range(num_extra + 1):
        if with_ends[start : start + len(without)] == without:
            return with_ends[:start], with_ends[start + len(without) :]
    return [], []


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    value = config.get("chat_template")
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        value = named.get("default", next(iter(named.values()), None))
    if value is not None and not isinstance(value, str):
        raise ModelFileError(f"chat_template in {folder / 'tokenizer_config.json'} must be a text")
    return value or None
