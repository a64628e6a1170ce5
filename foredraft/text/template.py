"""Chat templates: from a list of messages to the text a model was trained on."""

import json
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from foredraft.errors import UserError


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks answers for training; for us only its body counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and &, which models never saw in training.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


@lru_cache(maxsize=32)
def _compile(source: str) -> jinja2.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment.from_string(source)


def render(source: str | None, context: Mapping[str, object]) -> str:
    """Render a chat template with the conventions of transformers.

    Blocks are trimmed (`trim_blocks`, `lstrip_blocks`), `break` and `continue` work, `raise_exception`,
    `strftime_now` and `tojson` exist, and the template runs in Jinja's immutable sandbox.

    Raises `UserError` if there is no template, or if it is broken or refuses the messages.
    """
    if source is None:
        raise UserError("the model has no chat template; continue the text as it stands instead (--raw)")
    try:
        return _compile(source).render(context)
    except Exception as error:  # A template is a program of its own: it can fail in any way.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"the model's chat template failed: {reason}") from error


_NAMES = frozenset({"role", "type"})  # keys whose values templates compare and never print cut up


class SpecialMarker:
    """Breaks special-token text inside messages by an invisible mark, so that it stays ordinary text.

    The mark is one private-use character that occurs nowhere in the messages. It goes behind the first
    character of every special-token text, where no strip, trim or split of a template can remove it, and into
    every beginning or end of a string that could complete such a text together with what stands next to it.
    After rendering, special tokens are looked for in the marked text, which finds those of the template only;
    the marks are removed from the ordinary text in between just before it is encoded.
    """

    def __init__(self, specials: Sequence[str], find: Callable[[str], list[str]]) -> None:
        self._find = find
        self._specials = specials

    @cached_property
    def _by_start(self) -> list[str]:
        return sorted(self._specials)

    @cached_property
    def _by_end(self) -> list[str]:
        return sorted(special[::-1] for special in self._specials)

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._specials), default=0)

    def mark(self, value: Any, marks: "Marks", *, edges: bool = True) -> Any:
        """Return a copy of a message, or of any value inside one, with every string marked."""
        if isinstance(value, str):
            marked = self._break_whole(value, marks)
            return self._break_edges(marked, marks.mark) if edges else marked
        if isinstance(value, Mapping):
            return {key: self.mark(inner, marks, edges=edges and key not in _NAMES) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.mark(inner, marks, edges=edges) for inner in value]
        return value

    def _break_whole(self, text: str, marks: "Marks") -> str:
        for special in self._find(text):
            if len(special) == 1:
                text = text.replace(special, marks.stand_in(special))
            while special in text:
                text = text.replace(special, special[0] + marks.mark + special[1:])
        return text

    def _break_edges(self, text: str, mark: str) -> str:
        body = text.strip()
        start = text.index(body)
        end = start + len(body)
        places: set[int] = set()
        for length in range(1, min(self._longest, len(body)) + 1):
            if _is_proper_prefix(body[-length:], self._by_start):
                places.add(end - length + 1)
            if _is_proper_prefix(body[:length][::-1], self._by_end):
                places.add(start + length - 1)
        for place in sorted(places, reverse=True):
            text = text[:place] + mark + text[place:]
        return text


def _is_proper_prefix(text: str, in_order: list[str]) -> bool:
    place = bisect_left(in_order, text)
    if place < len(in_order) and in_order[place] == text:
        place += 1
    return place < len(in_order) and in_order[place].startswith(text)


@dataclass(frozen=True)
class Marks:
    """The mark of one rendering, and stand-ins for special tokens of a single character."""

    mark: str
    spare: Iterator[str]
    stand_ins: dict[str, str]

    @staticmethod
    def unused_in(*values: object) -> "Marks":
        """Choose characters at random that occur nowhere in the given values."""
        used = set[str]()
        for value in values:
            used.update(_characters(value))
        first, size = 0xF0000, 0xFFFD
        offset = secrets.randbelow(size)
        spare = (chr(first + (offset + step) % size) for step in range(size))
        free = (char for char in spare if char not in used)
        return Marks(next(free), free, {})

    def stand_in(self, special: str) -> str:
        """Return a character that stands for a one-character special token in a message."""
        if special not in self.stand_ins:
            self.stand_ins[special] = next(self.spare)
        return self.stand_ins[special]

    def are_in(self, text: str) -> bool:
        """Whether a text holds a mark."""
        return self.mark in text or any(char in text for char in self.stand_ins.values())

    def remove_from(self, text: str) -> str:
        """Return the text as it was meant, without marks."""
        text = text.replace(self.mark, "")
        for special, char in self.stand_ins.items():
            text = text.replace(char, special)
        return text


def _characters(value: object) -> set[str]:
    if isinstance(value, str):
        return set(value)
    if isinstance(value, Mapping):
        return set().union(*(_characters(key) | _characters(inner) for key, inner in value.items()))
    if isinstance(value, (list, tuple)):
        return set().union(*map(_characters, value))
    return set()
