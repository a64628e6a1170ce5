"""Text that remembers who wrote each of its characters, through whatever a chat template does to it."""

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

SAID, WRITTEN, ANSWERED = 0, 1, 2
"""Who wrote a character: somebody in a message, the template itself, the model in a message that was its answer."""

_PERCENT = re.compile(r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[#0\- +]*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlL]?[a-zA-Z%])")


class Traced(str):
    """A text with one byte for each character: who wrote it.

    To Python code it is an ordinary text, so that templates compare, search and count as they do with one. What its
    methods return is traced as well. Where the origin of characters is lost, as in text made from it by compiled code,
    they count as said in a message: then they are never a control token.
    """

    __slots__ = ("_origins",)
    _origins: bytes

    def __new__(cls, text: str, origins: bytes | int = SAID) -> "Traced":
        """A text of the given origins: a byte for each character, or one for all."""
        made = super().__new__(cls, text)
        made._origins = bytes([origins]) * len(text) if isinstance(origins, int) else origins
        return made

    def __str__(self) -> str:
        """The text, which stays traced."""
        return self

    def _part(self, start: int, end: int) -> "Traced":
        return Traced(str.__getitem__(self, slice(start, end)), self._origins[start:end])

    def _parts(self, parts: Iterable[str]) -> "list[Traced]":
        """Pieces of this text, which stand in it one behind the other."""
        found, place = [], 0
        for part in parts:
            place = self.index(part, place)
            found.append(self._part(place, place + len(part)))
            place += len(part)
        return found

    def __getitem__(self, key: SupportsIndex | slice) -> "Traced":
        """See `str`."""
        if isinstance(key, slice):
            return Traced(str.__getitem__(self, key), self._origins[key])
        return Traced(str.__getitem__(self, key), self._origins[key.__index__()])

    def __iter__(self) -> Iterator[str]:
        """See `str`."""
        return (self[place] for place in range(len(self)))

    def __add__(self, other: str) -> "Traced":
        """See `str`."""
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(self, other), self._origins + origins_of(other))

    def __radd__(self, other: str) -> "Traced":
        """See `str`."""
        if not isinstance(other, str):
            return NotImplemented
        return Traced(str.__add__(other, self), origins_of(other) + self._origins)

    def __mul__(self, times: SupportsIndex) -> "Traced":
        """See `str`."""
        return Traced(str.__mul__(self, times), self._origins * times.__index__())

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> "Traced":
        """See `str`."""
        return percent(self, values)

    def strip(self, chars: str | None = None, /) -> "Traced":
        """See `str`."""
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> "Traced":
        """See `str`."""
        return self._part(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> "Traced":
        """See `str`."""
        return self._part(0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> "Traced":
        """See `str`."""
        return self._part(len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> "Traced":
        """See `str`."""
        return self._part(0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> "list[Traced]":  # type: ignore[override]
        """See `str`."""
        return self._between(str.split(self, sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> "list[Traced]":  # type: ignore[override]
        """See `str`."""
        return self._between(str.rsplit(self, sep, maxsplit), sep)

    def _between(self, parts: list[str], sep: str | None) -> "list[Traced]":
        if sep is None:
            return self._parts(parts)
        found, place = [], 0
        for part in parts:
            found.append(self._part(place, place + len(part)))
            place += len(part) + len(sep)
        return found

    def splitlines(self, keepends: bool = False) -> "list[Traced]":  # type: ignore[override]
        """See `str`."""
        lines, place = [], 0
        for whole, line in zip(str.splitlines(self, True), str.splitlines(self, keepends), strict=True):
            lines.append(self._part(place, place + len(line)))
            place += len(whole)
        return lines

    def partition(self, sep: str, /) -> "tuple[Traced, Traced, Traced]":
        """See `str`."""
        first, middle, last = self._parts(str.partition(self, sep))
        return first, middle, last

    def rpartition(self, sep: str, /) -> "tuple[Traced, Traced, Traced]":
        """See `str`."""
        first, middle, _ = str.rpartition(self, sep)
        places = (0, len(first), len(first) + len(middle), len(self))
        return self._part(*places[:2]), self._part(*places[1:3]), self._part(*places[2:])

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> "Traced":
        """See `str`."""
        left = count.__index__()
        if not old:
            return _changed(self, str.replace(self, old, new, left))
        parts: list[str] = [*self.split(old, left if left >= 0 else -1)]
        return joined(new, parts)

    def join(self, parts: Iterable[str], /) -> "Traced":
        """See `str`."""
        return joined(self, parts)

    def format(self, *args: Any, **kwargs: Any) -> "Traced":
        """See `str`."""
        return formatted(string.Formatter(), self, args, kwargs)


def _changing(name: str) -> Callable[..., Traced]:
    method = getattr(str, name)

    def change(self: Traced, *args: Any) -> Traced:
        return _changed(self, method(self, *args))

    change.__name__, change.__doc__ = name, "See `str`."
    return change


for _name in ("upper", "lower", "title", "capitalize", "swapcase", "casefold", "expandtabs", "center", "ljust", "rjust",
              "zfill", "translate"):  # fmt: skip
    setattr(Traced, _name, _changing(_name))


def _changed(before: Traced, after: str) -> Traced:
    """What a whole text became, where characters cannot be followed: of one origin where all of it had that one."""
    origins = origins_of(before)
    return Traced(after, origins[0] if origins and len(set(origins)) == 1 else SAID)


def origins_of(text: str) -> bytes:
    """Who wrote each character of a text; what is not traced was said in a message."""
    return text._origins if isinstance(text, Traced) else bytes(len(text))


def joined(between: str, parts: Iterable[str]) -> Traced:
    """`between.join(parts)`, traced."""
    texts = list(parts)
    return Traced(str.join(between, texts), origins_of(between).join(origins_of(text) for text in texts))


def trace(value: Any, origin: int) -> Any:
    """A copy of a message, or of any value inside one, with every text traced; keys of mappings stay as they are."""
    if isinstance(value, Traced):
        return value
    if isinstance(value, str):
        return Traced(value, origin)
    if isinstance(value, Mapping):
        return {key: trace(inner, origin) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [trace(inner, origin) for inner in value]
    return value


def percent(pattern: Traced, values: Any) -> Traced:
    """`pattern % values`, traced but for values that are written at a width of their own."""
    whole = str.__mod__(pattern, values)
    pieces: list[str] = []
    place = number = 0
    for match in _PERCENT.finditer(pattern):
        pieces.append(pattern[place : match.start()])
        place = match.end()
        if match["flags"][-1] == "%":
            pieces.append(pattern[match.start() : match.start() + 1])
            continue
        value = values[match["key"]] if match["key"] is not None else values
        if match["key"] is None and isinstance(values, tuple):
            value, number = values[number], number + 1
        plain = match["flags"] == "s"
        pieces.append(
            str(value) if plain else str.__mod__(str.__str__(match[0]), (value,)) if match["key"] is None else ""
        )
    made = joined("", [*pieces, pattern[place:]])
    return made if made == whole else Traced(whole)


def formatted(formatter: string.Formatter, pattern: str, args: Any, kwargs: Mapping[str, Any]) -> Traced:
    """`formatter.vformat`, traced but for values with a format of their own."""
    whole = formatter.vformat(pattern, args, kwargs)
    pieces: list[str] = []
    origins = set(origins_of(pattern))
    origin = origins.pop() if len(origins) == 1 else SAID
    number = 0
    for literal, field, form, conversion in formatter.parse(pattern):
        pieces.append(Traced(literal, origin))
        if field is None:
            continue
        if not field or field[0] in ".[":
            field, number = f"{number}{field}", number + 1
        value, _ = formatter.get_field(field, args, kwargs)
        plain = not form and conversion in (None, "s")
        pieces.append(
            str(value) if plain else formatter.format_field(formatter.convert_field(value, conversion), form or "")
        )
    made = joined("", pieces)
    return made if made == whole else Traced(whole)
