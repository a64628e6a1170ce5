"""What the text of an answer is split into."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Text:
    """The next piece of the answer proper."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """The next piece of what the model thinks before it answers."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call begins. index: counts the calls of an answer from 0. name: of the function."""

    index: int
    name: str


@dataclass(frozen=True)
class Arguments:
    """The next piece of the JSON text of the arguments of call `index`."""

    index: int
    text: str


Part = Text | Reasoning | ToolCall | Arguments


def merged(parts: Iterable[Part]) -> list[Part]:
    """The parts with neighbours of one kind joined, and without empty pieces."""
    found: list[Part] = []
    for _, group in groupby(parts, key=_kind):
        first, *others = group
        if isinstance(first, ToolCall):
            found += [first, *others]
        elif text := "".join([first.text, *(part.text for part in others if not isinstance(part, ToolCall))]):
            found.append(Arguments(first.index, text) if isinstance(first, Arguments) else type(first)(text))
    return found


def _kind(part: Part) -> tuple[type[Part], int]:
    return type(part), part.index if isinstance(part, Arguments) else 0


class Trimmed:
    """Passes text on without the white space at its end, and at the other side of what interrupts it.

    White space is held back until more text follows; of an answer that was not interrupted none is lost.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._held: list[str] = []
        self._begun = False
        self._interrupted = False

    def write(self, text: str) -> None:
        """Append some text."""
        if not text or text.isspace():
            self._held.append(text)
            return
        whole = "".join((*self._held, text))
        if self._interrupted and not self._begun:
            whole = whole.lstrip()
        kept = whole.rstrip()
        self._emit(kept)
        self._held = [whole[len(kept) :]]
        self._begun, self._interrupted = True, False

    def interrupt(self) -> None:
        """Something else stands here: the white space before it goes."""
        self._held.clear()
        self._interrupted = True

    def finish(self) -> None:
        """Nothing more follows."""
        if not self._interrupted:
            self._emit("".join(self._held))
        self._held.clear()
