"""Drafts copied from the text so far: what followed the last time the same few tokens stood there.

Source: Saxena, "Prompt Lookup Decoding" (2023); the index is ours, and grows with the text instead of searching it.
"""

from collections.abc import Sequence

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView, no_draft
from foredraft.tree import Budget, DraftTree

LONGEST_MATCH = 5
SHORTEST_MATCH = 2


class LookupDrafter(Drafter):
    """Finds the longest match of the last 5 to 2 tokens, most recent first, in prompt and output.

    Time per round does not depend on the length of the text: every n-gram's last place is in a table.
    """

    spec = DrafterSpec(name="lookup")

    def __init__(self) -> None:
        self._indexes: dict[int, _NgramIndex] = {}

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. The index follows the text when it is asked for."""
        return [
            self._propose_one(sequence, budget.num_tokens) if budget.num_tokens > 0 else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _propose_one(self, sequence: SequenceView, budget: int) -> DraftTree:
        index = self._indexes.setdefault(sequence.id, _NgramIndex())
        index.extend(sequence.tokens)
        length, start = index.find(sequence.tokens)
        if not length:
            return no_draft(sequence)
        drafted = _copied(sequence.tokens, start, budget)
        # Longer matches are right more often; the true chance is for a planner to learn.
        confidence = 1.0 - 1.0 / (length + 1)
        return DraftTree.chain(sequence.tokens[-1], drafted, (confidence,) * len(drafted))

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._indexes.pop(sequence_id, None)


def _copied(tokens: Sequence[int], start: int, budget: int) -> tuple[int, ...]:
    """`budget` tokens from `start` on; where the text ends in the middle, the copy goes on with itself."""
    period = len(tokens) - start
    return tuple(tokens[start + i % period] for i in range(budget))


class _NgramIndex:
    """Where each n-gram of a growing text last ended, the end of the text itself left out."""

    def __init__(self) -> None:
        self._ends: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in n-grams that end before the last token; those that end with it are what is searched for."""
        for end in range(max(self._num_indexed, 1), len(tokens)):
            for length in range(SHORTEST_MATCH, min(LONGEST_MATCH, end) + 1):
                self._ends[tuple(tokens[end - length : end])] = end
        self._num_indexed = len(tokens)

    def find(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Length of the longest known n-gram that the text ends with, and where it went on; (0, 0): none."""
        for length in range(min(LONGEST_MATCH, len(tokens)), SHORTEST_MATCH - 1, -1):
            end = self._ends.get(tuple(tokens[-length:]))
            if end is not None:
                return length, end
        return 0, 0
