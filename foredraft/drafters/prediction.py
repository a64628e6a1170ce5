"""Drafts from a text that the completion will mostly look like, given with the prompt, such as a file to be edited.

As in OpenAI's "Predicted Outputs". Following the prediction is easy; the work is in finding the place again where the
completion leaves it, because something was put in, left out or replaced.
"""

from bisect import bisect_left
from collections.abc import Sequence

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView, no_draft
from foredraft.text import Tokenizer
from foredraft.tree import Budget, DraftTree

TRUSTED_MATCH = 3
"""Tokens in a row that must agree before a place that was found again counts as the place."""
MAX_GUESSES = 4
"""Most places that the completion may be at, at a time."""
NUM_AHEAD, NUM_BEHIND = 12, 4
"""How many of the places of a token are looked at, after and before where the prediction was left."""
MOST_CONFIDENT = 0.98

_Guess = tuple[int, int]
"""Where the completion may go on in the prediction, and how many tokens before that agree."""


class PredictionDrafter(Drafter):
    """Proposes how the `prediction` of a sequence goes on; nothing for sequences that have none.

    tokenizer: the target's.
    """

    spec = DrafterSpec(name="prediction")

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._followers: dict[int, _Follower] = {}

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. The completion is followed when it is asked for."""
        return [
            self._propose_one(sequence, sequence.params.prediction, budget.num_tokens)
            if sequence.params.prediction and budget.num_tokens > 0
            else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _propose_one(self, sequence: SequenceView, prediction: str, budget: int) -> DraftTree:
        follower = self._followers.get(sequence.id)
        if follower is None:
            end = [] if self._tokenizer.eos_id is None else [self._tokenizer.eos_id]
            predicted = self._tokenizer.encode(prediction, add_special=False) + end
            follower = self._followers[sequence.id] = _Follower(predicted)
        follower.follow(sequence.tokens, sequence.num_prompt_tokens)
        return follower.draft(sequence.tokens[-1], budget)

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._followers.pop(sequence_id, None)


class _Follower:
    """Follows a completion beside its prediction.

    guesses: where the completion may go on, the likeliest first. anchor: where it surely was last. num_lost: tokens
    since.
    """

    def __init__(self, predicted: Sequence[int]) -> None:
        self._predicted = predicted
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(predicted):
            self._places.setdefault(token, []).append(place)
        self._guesses: list[_Guess] = [(0, 0)]
        self._anchor = self._num_lost = self._num_followed = 0

    def follow(self, tokens: Sequence[int], num_prompt_tokens: int) -> None:
        """Follow the completion, which begins behind the prompt, up to its end."""
        for index in range(num_prompt_tokens + self._num_followed, len(tokens)):
            self._follow_one(tokens, index, num_prompt_tokens)
        self._num_followed = max(len(tokens) - num_prompt_tokens, 0)

    def _follow_one(self, tokens: Sequence[int], index: int, start: int) -> None:
        token, predicted = tokens[index], self._predicted
        self._num_lost += 1
        agreeing = [(p + 1, n + 1) for p, n in self._guesses if p < len(predicted) and predicted[p] == token]
        self._guesses = agreeing or self._search(tokens, index, start)
        place, length = self._guesses[0]
        if length >= TRUSTED_MATCH or (agreeing and self._num_lost == 1):
            self._anchor, self._num_lost = place, 0

    def _search(self, tokens: Sequence[int], index: int, start: int) -> list[_Guess]:
        """Where the completion may be after a token that no guess expected."""
        places = self._places.get(tokens[index], ())
        next_ = bisect_left(places, self._anchor)
        near = (*places[next_ : next_ + NUM_AHEAD], *reversed(places[max(next_ - NUM_BEHIND, 0) : next_]))
        # The longest agreement wins, then what is reached first reading on.
        found = sorted(((p + 1, self._agreement(tokens, index, start, p)) for p in near), key=lambda guess: -guess[1])
        replaced, put_in = (self._anchor + self._num_lost, 0), (self._anchor, 0)
        guesses: dict[int, int] = {}
        for place, length in (*found[: MAX_GUESSES - 2], replaced, put_in):
            guesses.setdefault(place, length)
        return list(guesses.items())

    def _agreement(self, tokens: Sequence[int], index: int, start: int, place: int) -> int:
        """Tokens up to `index` that are those up to `place` of the prediction."""
        most = min(index - start, place, TRUSTED_MATCH - 1) + 1
        for length in range(most):
            if tokens[index - length] != self._predicted[place - length]:
                return length
        return most

    def draft(self, root: int, budget: int) -> DraftTree:
        """How the prediction goes on at each of the guesses, the likeliest tokens of all."""
        ranked: list[tuple[float, int, int, float]] = []
        left = 1.0
        for rank, (place, length) in enumerate(self._guesses):
            survival = left
            for depth in range(min(budget, len(self._predicted) - place)):
                confidence = _confidence(length + depth) * (left if depth == 0 else 1.0)
                survival = survival * confidence if depth else confidence
                ranked.append((-survival, rank, depth, confidence))
            left *= 1.0 - _confidence(length)
        ranked.sort()
        tokens, parents, confidences = [root], [-1], [1.0]
        nodes: dict[tuple[int, int], int] = {}
        ends = [0] * len(self._guesses)  # the last node of each guess
        for _, rank, depth, confidence in ranked:
            if len(tokens) > budget:
                break
            key = ends[rank], self._predicted[self._guesses[rank][0] + depth]
            if key not in nodes:
                nodes[key] = len(tokens)
                parents.append(key[0])
                tokens.append(key[1])
                confidences.append(confidence)
            ends[rank] = nodes[key]
        return DraftTree(tuple(tokens), tuple(parents), tuple(confidences))


def _confidence(length: int) -> float:
    """How sure it is that the completion goes on like the prediction where the last `length` tokens agree.

    The rule of succession: right as often as in the tokens before, of which one is taken to have been wrong.
    """
    return min((length + 1) / (length + 2), MOST_CONFIDENT)
