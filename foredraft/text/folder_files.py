"""The files of a model folder that say something about its tokens: settings, chat templates, end tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as RustTokenizer

from foredraft.errors import ModelFileError

_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_json(path: Path, *, needed: bool = False) -> dict[str, Any]:
    """The object in a JSON file, with or without a byte order mark; empty where there is no file, unless it is needed.

    Raises `ModelFileError` where it cannot be read, or holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
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


def read_settings(folder: Path) -> dict[str, Any]:
    """What `tokenizer_config.json` says, and where that has no `added_tokens_decoder`, the older files beside it.

    `special_tokens_map.json` and `added_tokens.json` are from before that list: transformers reads them only then.
    The tokens of the latter come back under `added_tokens`, texts to ids.
    """
    settings = read_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings
    older = {key: value for key, value in read_json(folder / "special_tokens_map.json").items() if value is not None}
    return {**settings, **older, "added_tokens": read_json(folder / "added_tokens.json")}


def text_of(value: object) -> str | None:
    """The text of a token that is given as such or as an object with flags; None where there is none."""
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) and text else None


def named_tokens(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The special tokens that have a name, such as `eos_token`, those that only one model knows included."""
    named = {name: settings[name] for name in _NAMED if text_of(settings.get(name))}
    own = {name: value for name, value in settings.items() if name.endswith("_token") and name not in _NAMED}
    extra = settings.get("extra_special_tokens")
    own |= extra if isinstance(extra, dict) else {}
    return named | {name: value for name, value in own.items() if text_of(value)}


def add_declared(rust: RustTokenizer, settings: Mapping[str, Any], folder: Path, *, most: int | None) -> None:
    """Add the tokens that stand beside `tokenizer.json`, in the order of transformers.

    most: how many tokens the model has numbers for. A token that is merely named is left out beyond that: folders name
    tokens for padding, for example, that the model never had.

    Raises `ModelFileError` where a new token cannot have the id that the files give it.
    """
    special = {text: value for value in _all_special(settings) if (text := text_of(value))}
    for token_id, token in sorted(_listed(settings, special, folder).items()):
        known = rust.token_to_id(token.content)
        rust.add_tokens([token])
        found = rust.token_to_id(token.content)
        if known is None and found != token_id:
            raise ModelFileError(
                f"{folder} gives {token.content!r} the id {token_id}, but its tokenizer.json makes it {found}"
            )
    present = {token.content for token in rust.get_added_tokens_decoder().values() if token.special}
    for text, value in special.items():
        if text in present:
            continue
        if rust.token_to_id(text) is None and most is not None and rust.get_vocab_size() >= most:
            continue
        rust.add_special_tokens([_token(value, text, special=True)])


def _all_special(settings: Mapping[str, Any]) -> list[Any]:
    found = list(named_tokens(settings).values())
    for name in ("extra_special_tokens", "additional_special_tokens"):
        values = settings.get(name)
        if isinstance(values, list) and values:
            return found + values
    return found


def _listed(settings: Mapping[str, Any], special: Mapping[str, Any], folder: Path) -> dict[int, AddedToken]:
    """The tokens that the files beside `tokenizer.json` list with their ids."""
    found: dict[int, AddedToken] = {}
    decoder = settings.get("added_tokens_decoder")
    try:
        for key, value in (decoder or {}).items():
            text = text_of(value)
            if text is None or not isinstance(value, Mapping):
                raise ValueError(f"{key!r} has no content")
            found[int(key)] = _token(value, text, special=value.get("special") is True or text in special)
        for text, token_id in (settings.get("added_tokens") or {}).items():
            found[int(token_id)] = AddedToken(text, normalized=text not in special, special=text in special)
    except (AttributeError, TypeError, ValueError) as error:
        raise ModelFileError(f"the added tokens in {folder} cannot be read: {' '.join(str(error).split())}") from None
    return found


def _token(value: object, text: str, *, special: bool) -> AddedToken:
    flags = (
        {name: value[name] for name in _FLAGS if isinstance(value.get(name), bool)}
        if isinstance(value, Mapping)
        else {}
    )
    return AddedToken(text, **{"normalized": not special, **flags, "special": special})


def read_templates(folder: Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates of a folder by name, the usual one as `default`.

    Files of their own come first (`chat_template.jinja`, `additional_chat_templates/NAME.jinja`), then
    `tokenizer_config.json`, last `chat_template.json`, which folders for pictures have.
    """
    found = {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if (folder / "chat_template.jinja").exists():
        found["default"] = folder / "chat_template.jinja"
    if found:
        return {name: text for name, path in found.items() if (text := _read_text(path))}
    value = settings.get("chat_template")
    source = "tokenizer_config.json"
    if value is None:
        value, source = read_json(folder / "chat_template.json").get("chat_template"), "chat_template.json"
    if isinstance(value, list):
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict)}
        return {name: text for name, text in named.items() if isinstance(name, str) and isinstance(text, str) and text}
    if isinstance(value, dict):
        return {name: text for name, text in value.items() if isinstance(text, str) and text}
    if value is not None and not isinstance(value, str):
        raise ModelFileError(f"chat_template in {folder / source} must be a text")
    return {"default": value} if value else {}


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read: {' '.join(str(error).split())}") from error


def stated_ends(folder: Path) -> list[int]:
    """The end tokens that `generation_config.json` and `config.json` name, by id."""
    found: list[int] = []
    config = read_json(folder / "config.json")
    inner = config.get("text_config")
    for source in (read_json(folder / "generation_config.json"), config, inner if isinstance(inner, dict) else {}):
        value = source.get("eos_token_id")
        values = value if isinstance(value, list) else [] if value is None else [value]
        for one in values:
            if isinstance(one, bool) or not isinstance(one, int):
                raise ModelFileError(
                    f"{folder}: eos_token_id must be the number of a token or a list of these, got {one!r}"
                )
            found.append(one)
    return found


def stated_size(folder: Path) -> int | None:
    """How many tokens the model has rows for, as `config.json` says; None where it does not."""
    config = read_json(folder / "config.json")
    inner = config.get("text_config")
    for source in (config, inner if isinstance(inner, dict) else {}):
        size = source.get("vocab_size")
        if isinstance(size, int) and not isinstance(size, bool):
            return size
    return None
