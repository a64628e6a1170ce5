"""Prompts from files: what check, tune and the benchmarks complete."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.errors import OptionError
from foredraft.files import read_text, user_path


@dataclass(frozen=True)
class Prompt:
    """A text to complete. key: its name. family: the kind of text, whose figures stand together."""

    key: str
    family: str
    text: str


def read_prompts(*paths: Path) -> list[Prompt]:
    """The prompts of some files, in order.

    A file that ends in .jsonl holds objects with "prompt" or, as Spec-Bench has them, "turns", of which the first
    counts. An object's "family" or "category" says which prompts stand together, and its "question_id" names it. Any
    other file holds a prompt a line. Empty lines do not count. Raises OptionError where a file cannot be read or holds
    none, a line is none, or two have the same name.
    """
    prompts: dict[str, Prompt] = {}
    for path in paths:
        for prompt in _of_file(path):
            if prompt.key in prompts:
                raise OptionError(f"{path}: {prompt.key} occurs twice; give each prompt a question_id of its own")
            prompts[prompt.key] = prompt
    return list(prompts.values())


def spread(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """At most so many prompts, of all families in turn, and evenly spaced within each."""
    families: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        families.setdefault(prompt.family, []).append(prompt)
    rounds = [(index, family) for family, own in families.items() for index in range(len(own))]
    wanted = [family for _, family in sorted(rounds, key=lambda pair: pair[0])[:number]]
    chosen = {family: spaced(families[family], wanted.count(family)) for family in set(wanted)}
    return [chosen[family].pop(0) for family in wanted]


def spaced(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """At most so many prompts, evenly spaced."""
    number = min(number, len(prompts))
    return [prompts[index * len(prompts) // number] for index in range(number)]


def _of_file(path: Path) -> list[Prompt]:
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
