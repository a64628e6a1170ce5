"""Prompts from a file: what check, tune and the benchmarks answer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.errors import OptionError
from foredraft.files import read_text, user_path


@dataclass(frozen=True)
class Prompt:
    """A text to answer. key: its name. family: the kind of text, whose figures stand together."""

    key: str
    family: str
    text: str


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of a file: .jsonl, objects with "prompt" or, as Spec-Bench has them, "turns"; else one a line.

    Of several turns the first counts. An object's "family" or "category" says which prompts stand together, and its
    "question_id" names it. Empty lines do not count. Raises OptionError where the file cannot be read, holds none, or
    a line is none.
    """
    try:
        lines = read_text(user_path(path)).split("\n")
    except OSError as error:
        raise OptionError(f"cannot read the prompts {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the prompts {path} are not UTF-8: byte {error.start}") from error
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(lines, start=1) if line.strip()]
    if path.suffix == ".jsonl":
        prompts = [_prompt(path, number, line) for number, line in numbered]
    else:
        prompts = [Prompt(f"prompts/{number}", "prompts", line) for number, line in numbered]
    if not prompts:
        raise OptionError(f"{path} holds no prompts")
    return prompts


def _prompt(path: Path, number: int, line: str) -> Prompt:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    text = _text(entry) if isinstance(entry, Mapping) else None
    if not isinstance(text, str) or not text:
        raise OptionError(f'{path}, line {number}: expected an object with "prompt" or "turns", with some text')
    assert isinstance(entry, Mapping)
    family = str(entry.get("family") or entry.get("category") or "prompts")
    return Prompt(f"{family}/{entry.get('question_id', number)}", family, text)


def _text(entry: Mapping[str, Any]) -> object:
    turns = entry.get("turns")
    return turns[0] if isinstance(turns, list) and turns else entry.get("prompt")
