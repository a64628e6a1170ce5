"""A text that arrives in pieces, for programs that read it as if it were whole.

Such a program is a generator that yields wherever it needs text that is not there yet. What it decides depends on the
text alone, never on how it was cut into pieces; what it keeps unread is no longer than what it looks for, so that the
time it takes is proportional to the length of the text.
"""

import re
from collections.abc import Callable, Generator
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
Sink = Callable[[str], object]

SPACE = re.compile(r"\s*")
NEWLINES = re.compile(r"\n*")


class Reader:
    """The text from where it was read to, and, while that is asked for, what was read since."""

    def __init__(self) -> None:
        self._text = ""
        self._place = 0
        self._ended = False
        self._kept: list[str] | None = None

    def feed(self, text: str) -> None:
        """More text has arrived."""
        self._text = self._text[self._place :] + text
        self._place = 0

    def end(self) -> None:
        """No more will."""
        self._ended = True

    @property
    def ended(self) -> bool:
        """Whether text was waited for that will not come."""
        return self._ended

    def keep(self, text: str = "") -> None:
        """Keep what is read from here on, and this before it."""
        self._kept = [text]

    def forget(self) -> None:
        """Keep nothing any more."""
        self._kept = None

    def give_back(self) -> str:
        """What was kept; it is kept no longer."""
        kept, self._kept = self._kept or [], None
        return "".join(kept)

    def take(self, num_characters: int) -> str:
        """Read so many characters, which have arrived."""
        text = self._text[self._place : self._place + num_characters]
        self._place += num_characters
        if self._kept is not None:
            self._kept.append(text)
        return text

    def more(self) -> Reading[bool]:
        """Wait for more text; False where none will come."""
        if self._ended:
            return False
        yield
        return True

    def peek(self) -> Reading[str]:
        """The next character, which stays unread; the empty text at the end."""
        while self._place == len(self._text):
            if not (yield from self.more()):
                return ""
        return self._text[self._place]

    def skip(self, pattern: re.Pattern[str] = SPACE) -> Reading[None]:
        """Read on over characters of a kind."""
        while True:
            match = pattern.match(self._text, self._place)
            assert match is not None
            self.take(match.end() - self._place)
            if self._place < len(self._text) or not (yield from self.more()):
                return

    def starts(self, *markers: str) -> Reading[str]:
        """Which of the markers comes next, which stays unread; the empty text where none does."""
        longest = max(map(len, markers), default=0)
        while True:
            if found := next((one for one in markers if self._text.startswith(one, self._place)), ""):
                return found
            left = self._text[self._place : self._place + longest]
            if not any(one.startswith(left) for one in markers) or not (yield from self.more()):
                return ""

    def reads(self, *markers: str) -> Reading[str]:
        """As `starts`, but past white space, and the marker is read."""
        yield from self.skip()
        found = yield from self.starts(*markers)
        self.take(len(found))
        return found

    def closes(self, *markers: str) -> Reading[str]:
        """As `reads`, and a marker may be cut off by the end of the text."""
        found = yield from self.reads(*markers)
        if not found and self._ended and any(one.startswith(self._text[self._place :]) for one in markers):
            return self.take(len(self._text) - self._place)
        return found

    def run(self, pattern: re.Pattern[str], most: int) -> Reading[str]:
        """The longest run of characters of a kind, at most so many, which stays unread."""
        while True:
            match = pattern.match(self._text, self._place, self._place + most)
            assert match is not None
            if match.end() < len(self._text) or len(match.group()) == most or not (yield from self.more()):
                return match.group()

    def until(self, markers: tuple[str, ...], sink: Sink) -> Reading[str]:
        """Read on to the first of the markers, past it, and return it; the empty text where none comes."""
        pattern, longest = _search(markers)
        while True:
            if match := pattern.search(self._text, self._place):
                sink(self.take(match.start() - self._place))
                return self.take(len(match.group()))
            sink(self.take(len(self._text) - self._place - self._begun(markers, longest)))
            if not (yield from self.more()):
                sink(self.take(len(self._text) - self._place))
                return ""

    def scan(self, pattern: re.Pattern[str], sink: Sink) -> Reading[str]:
        """As `until`, to a single character that matches the pattern, which stays unread."""
        while True:
            match = pattern.search(self._text, self._place)
            sink(self.take((match.start() if match else len(self._text)) - self._place))
            if match:
                return match.group()
            if not (yield from self.more()):
                return ""

    def _begun(self, markers: tuple[str, ...], longest: int) -> int:
        """How many characters at the end of the text may be the beginning of a marker."""
        sizes = range(min(longest - 1, len(self._text) - self._place), 0, -1)
        return next((size for size in sizes if any(one.startswith(self._text[-size:]) for one in markers)), 0)


@lru_cache(maxsize=64)
def _search(markers: tuple[str, ...]) -> tuple[re.Pattern[str], int]:
    """A pattern that finds the first marker, and none where there are none; and the length of the longest."""
    return re.compile("|".join(map(re.escape, markers)) or "(?!)"), max(map(len, markers), default=0)
