"""Where a text ends because of a stop string, found while the text is still being produced."""

from collections import deque
from collections.abc import Sequence


class StopStrings:
    """Passes a growing text through, and ends it before the first stop string.

    The stop string that is complete first ends the text; of those complete at the same character, the
    longest. This does not depend on how the text is cut into pieces. Text that may be the beginning of a
    stop string is held back until it is clear that it is not. The time taken is proportional to the length
    of the text.

    keep_stop: whether the stop string itself stays in the text; by default the text ends before it.

    Raises ValueError for an empty stop string.
    """

    def __init__(self, stops: Sequence[str], *, keep_stop: bool = False) -> None:
        if not all(stops):
            raise ValueError("a stop string must not be empty")
        self._automaton = _Automaton(stops)
        self._keep_stop = keep_stop
        self._state = 0
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; the text is then complete."""
        return self._stopped

    def push(self, text: str) -> tuple[str, bool]:
        """Append `text`. Returns what may be shown now, and whether a stop string ended the text.

        After the end nothing more comes out.
        """
        if self._stopped:
            return "", True
        held = self._held + text
        for num_read, character in enumerate(text, start=len(self._held) + 1):
            self._state = self._automaton.step(self._state, character)
            num_matched = self._automaton.num_matched[self._state]
            if num_matched:
                self._stopped, self._held = True, ""
                return held[: num_read if self._keep_stop else num_read - num_matched], True
        num_shown = len(held) - self._automaton.depth[self._state]
        self._held = held[num_shown:]
        return held[:num_shown], False

    def finish(self) -> str:
        """The text held back, now that no more follows; empty after a stop string."""
        held, self._held, self._state = self._held, "", 0
        return held


class _Automaton:
    """The trie of all stop strings, each state linked to its longest proper suffix there (Aho, Corasick
    1975).

    After any text, the state is the longest suffix of the text that begins some stop string. depth: its
    length, which is how much of the text is still undecided. num_matched: length of the longest stop string
    that ends there, or 0.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._suffix = [0]
        self.depth = [0]
        self.num_matched = [0]
        for stop in stops:
            self._add(stop)
        self._link()

    def step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._suffix[state]
        return self._next[state].get(character, 0)

    def _add(self, stop: str) -> None:
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._suffix.append(0)
                self.depth.append(self.depth[state] + 1)
                self.num_matched.append(0)
            state = self._next[state][character]
        self.num_matched[state] = len(stop)

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self._next[state].items():
                self._suffix[child] = self.step(self._suffix[state], character)
                self.num_matched[child] = self.num_matched[child] or self.num_matched[self._suffix[child]]
                queue.append(child)
