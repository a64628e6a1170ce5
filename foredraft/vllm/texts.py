"""Which sequence a row of vLLM's batch is: a proposer of others is told the tokens of rows, and not whose they are."""

from collections.abc import Sequence
from itertools import count

import numpy as np
from numpy.typing import NDArray

from foredraft.sampling import Processors, SamplingParams

Row = NDArray[np.int32]
"""Token ids of a sequence, its prompt first."""


class Text:
    """A sequence as drafters see it, see `foredraft.sampling.SequenceView`: of vLLM's nothing but the tokens is known.

    num_prompt_tokens: what was there before the first token of its own.
    """

    params = SamplingParams()
    sample_index = 0
    processors: Processors | None = None

    def __init__(self, id: int, *, num_prompt_tokens: int, max_length: int) -> None:
        self.id = id
        self.tokens: list[int] = []
        self.num_prompt_tokens = num_prompt_tokens
        self.max_length = max_length
        self.last_step = 0
        self._known: Row = np.empty(0, dtype=np.int32)

    def begins(self, row: Row) -> bool:
        """Whether a row goes on with this text."""
        size = len(self.tokens)
        # The last token first: it tells most rows apart.
        return size <= len(row) and self.tokens[-1] == row[size - 1] and np.array_equal(self._known[:size], row[:size])

    def follow(self, row: Row) -> None:
        """Take in what the row has behind this text."""
        size, new_size = len(self.tokens), len(row)
        if new_size > len(self._known):
            grown = np.empty(max(min(2 * new_size, self.max_length), new_size), dtype=np.int32)
            grown[:size] = self._known[:size]
            self._known = grown
        self._known[size:new_size] = row[size:]
        self.tokens.extend(row[size:].tolist())


class Texts:
    """The sequences of a batch, recognised by what they say.

    Two with the same text are the same to a drafter that looks at nothing else, so it does not matter which is which.

    max_length: most tokens of a sequence.
    """

    def __init__(self, *, max_length: int) -> None:
        self._max_length = max_length
        self._ids = count()
        self._step = 0
        self._by_row: dict[int, Text] = {}
        self._all: list[Text] = []

    def of_rows(self, rows: Sequence[tuple[int, Row, int]]) -> list[Text]:
        """The sequences of a step's rows: the number of each, its tokens, and how many of these it has just chosen."""
        self._step += 1
        found = {}
        for number, row, _ in rows:  # most are where they were
            text = self._by_row.get(number)
            if text is not None and text.last_step < self._step and text.begins(row):
                self._take(text, row)
                found[number] = text
        for number, row, num_chosen in rows:
            if number not in found:
                found[number] = self._moved(row) or self._new(row, num_chosen)
        self._by_row = found
        return [found[number] for number, _, _ in rows]

    def ended(self) -> list[Text]:
        """The sequences that were in no row of the step; they are forgotten."""
        over = [text for text in self._all if text.last_step < self._step]
        if over:
            self._all = [text for text in self._all if text.last_step == self._step]
        return over

    def _moved(self, row: Row) -> Text | None:
        """The longest text that was in no row yet and goes on like this."""
        free = (text for text in self._all if text.last_step < self._step and text.begins(row))
        text = max(free, key=lambda text: len(text.tokens), default=None)
        if text is not None:
            self._take(text, row)
        return text

    def _new(self, row: Row, num_chosen: int) -> Text:
        text = Text(next(self._ids), num_prompt_tokens=len(row) - num_chosen, max_length=self._max_length)
        self._take(text, row)
        self._all.append(text)
        return text

    def _take(self, text: Text, row: Row) -> None:
        text.follow(row)
        text.last_step = self._step
