"""Drafts from what followed the longest earlier match, in this sequence's text and in those of earlier ones.

Source: Oliaro et al., "SuffixDecoding" (2024): the longest match first, a tree grown by frequency. The index is ours:
instead of a suffix tree with counts it keeps, for the last 8, 4 and 2 tokens, a chain of the places where the same
tokens stood before (as LZ77 compressors do), and lets the latest of the longest matches vote. So neither taking in a
token nor finding a draft takes longer the longer the text is.
"""

import hashlib
import heapq
import json
import logging
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, SequenceView, no_draft
from foredraft.errors import OptionError
from foredraft.tree import Budget, DraftTree

KEY_LENGTHS = (8, 4, 2)
"""Lengths of the n-grams by which earlier places are found, the longest first."""
LONGEST_MATCH = 32
"""Tokens that a match is measured over."""
MAX_PLACES = 8
"""Most places that vote, of the sequence's own text and of earlier texts each."""
MAX_STEPS = 16
"""Most places of one n-gram that are looked at."""
DOUBT = 4.0
"""Votes for none of the tokens seen, where a match of n tokens has n * n: one of two tokens alone is as often wrong."""
NUM_SHARED_TOKENS = 1 << 16
"""Most tokens kept of earlier sequences; some 25 MB with their index."""
NUM_COMPARED = 8
"""Texts that a new one is compared with, lest a beginning be kept twice."""
_SEPARATOR = -1
_FILE_KIND, _FILE_VERSION = "foredraft draft memory", 1

_Place = tuple[Sequence[int], int, int, int]
"""A vote: a text, where it goes on, how many tokens later it begins to repeat itself (0: it ends), length of match."""


class TextIndex:
    """A growing text, and for every place in it the place before that follows the same n-gram."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._latest: tuple[dict[int, int], ...] = tuple({} for _ in KEY_LENGTHS)
        self._earlier: tuple[list[int], ...] = tuple([] for _ in KEY_LENGTHS)
        self._num_indexed = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens. An n-gram is known once something has followed it."""
        self.tokens.extend(tokens)
        text, end = self.tokens, len(self.tokens)
        for length, latest, earlier in zip(KEY_LENGTHS, self._latest, self._earlier, strict=True):
            for place in range(self._num_indexed + 1, end):
                key = hash(tuple(text[max(place - length, 0) : place]))
                earlier.append(latest.get(key, 0))
                latest[key] = place
        self._num_indexed = max(end - 1, self._num_indexed)

    def find(self, tail: list[int], num_places: int) -> dict[int, int]:
        """Where the text went on after matches of `tail`, to the lengths of these: long before short, later first.

        Short ones are not looked for where there are enough of a longer n-gram.
        """
        found: dict[int, int] = {}
        text = self.tokens
        for length, latest, earlier in zip(KEY_LENGTHS, self._latest, self._earlier, strict=True):
            if len(tail) < length:
                continue
            end = tail[-length:]
            place = latest.get(hash(tuple(end)), 0)
            for _ in range(MAX_STEPS):
                if not place or len(found) >= num_places:
                    break
                # Another n-gram may have the same hash.
                if place not in found and place >= length and text[place - length : place] == end:
                    found[place] = _agreement(text, place, tail, length)
                place = earlier[place - 1]
        return found


def _agreement(text: list[int], place: int, tail: list[int], known: int) -> int:
    """How many tokens before `place` are the last ones of `tail`, where `known` are."""
    length, most = known, min(place, len(tail))
    while length < most and text[place - 1 - length] == tail[-1 - length]:
        length += 1
    return length


def _common_start(one: list[int], other: list[int]) -> int:
    """How many tokens at the start are the same."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class SharedTexts:
    """The texts of sequences that are over, the oldest dropped.

    Kept in two halves: when the newer one is full it becomes the older one, and the older one is let go. A beginning
    that a text has in common with one of the last few is not kept twice: the next turn of a conversation begins with
    all turns before.
    """

    def __init__(self, num_tokens: int = NUM_SHARED_TOKENS) -> None:
        self._half = num_tokens // 2
        self._older, self._newer = TextIndex(), TextIndex()
        self._last: deque[list[int]] = deque(maxlen=NUM_COMPARED)

    def add(self, tokens: Sequence[int]) -> None:
        """Keep a text, or its end where it is too long."""
        text = list(tokens)
        num_known = max((_common_start(text, other) for other in self._last), default=0)
        if num_known == len(text):
            return
        kept = text[max(num_known - LONGEST_MATCH, 0) :][-(self._half - 1) :]
        if len(self._newer.tokens) + len(kept) >= self._half:
            self._older, self._newer = self._newer, TextIndex()
            self._last.clear()
        self._newer.extend([*kept, _SEPARATOR])
        self._last.append(text)

    def places(self, tail: list[int]) -> list[_Place]:
        """Where kept texts go on after matches of `tail`."""
        places: list[_Place] = []
        for index in (self._newer, self._older):
            if len(places) < MAX_PLACES:
                found = index.find(tail, MAX_PLACES - len(places))
                places += [(index.tokens, start, 0, length) for start, length in found.items()]
        return places

    def save(self, path: Path, fingerprint: str) -> None:
        """Write the texts to a file, whole or not at all. Its owner alone may read it."""
        content = np.array(self._older.tokens + self._newer.tokens, dtype="<i4").tobytes()
        header = {
            "kind": _FILE_KIND,
            "version": _FILE_VERSION,
            "tokenizer": fingerprint,
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def load(self, path: Path, fingerprint: str) -> None:
        """Add the texts of a file. Raises OptionError where it is no such file, damaged, or of another tokenizer."""
        tokens = _read(path, fingerprint)
        ends = [i for i, token in enumerate(tokens) if token == _SEPARATOR]
        for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False):
            self.add(tokens[start:end])


def _read(path: Path, fingerprint: str) -> list[int]:
    try:
        first, _, content = path.read_bytes().partition(b"\n")
        header = json.loads(first)
        kind, version = header["kind"], header["version"]
    except OSError as error:
        raise OptionError(f"draft memory {path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        kind, version = None, None
    if kind != _FILE_KIND:
        raise OptionError(f"{path} is not a draft memory; name a file that is one, or that does not exist yet")
    if version != _FILE_VERSION:
        raise OptionError(
            f"draft memory {path} has version {version}, and this program reads {_FILE_VERSION}; delete it"
        )
    if header.get("sha256") != hashlib.sha256(content).hexdigest():
        raise OptionError(f"draft memory {path} is damaged; delete it")
    if header.get("tokenizer") != fingerprint:
        raise OptionError(f"draft memory {path} belongs to a model with another tokenizer; name another file")
    tokens: list[int] = np.frombuffer(content, dtype="<i4").tolist()
    return tokens


def _save_at_end(shared: SharedTexts, path: Path, fingerprint: str) -> None:
    try:
        shared.save(path, fingerprint)
    except OSError as error:  # nobody is left to catch it
        logging.getLogger(__name__).warning("draft memory %s could not be written: %s", path, error.strerror)


class SuffixDrafter(Drafter):
    """Proposes a tree of what followed the longest matches of the last tokens, as many places as say so.

    shared: texts of earlier sequences, to which those that end are added; None: each sequence has its own text only.
    """

    spec = DrafterSpec(name="suffix")

    def __init__(self, shared: SharedTexts | None = None) -> None:
        self._shared = shared
        self._own: dict[int, TextIndex] = {}
        self._sequences: dict[int, SequenceView] = {}

    @classmethod
    def with_file(cls, path: Path, fingerprint: str) -> "SuffixDrafter":
        """A drafter that begins with the texts of a file, if it is there, and writes it when it is dropped.

        Raises OptionError as `SharedTexts.load`, and where the file could not be written later.
        """
        shared = SharedTexts()
        try:
            path = Path(os.path.realpath(path))  # a link stays one when the file is replaced
            exists = path.exists()
        except ValueError:
            raise OptionError(f"draft memory {str(path)!r}: no file can have this name") from None
        except OSError as error:
            raise OptionError(f"draft memory {path} cannot be used: {error.strerror}") from None
        if exists and not path.is_file() and not path.is_dir():
            raise OptionError(f"draft memory {path} is no file: name one, or none to keep no texts")
        if exists:
            shared.load(path, fingerprint)
        if not os.access(path.parent, os.W_OK):
            raise OptionError(f"draft memory {path} cannot be written: no such folder, or no right to write there")
        drafter = cls(shared)
        weakref.finalize(drafter, _save_at_end, shared, path, fingerprint)
        return drafter

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [
            self._propose_one(sequence, budget) if budget.num_tokens > 0 else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _propose_one(self, sequence: SequenceView, budget: Budget) -> DraftTree:
        index = self._index(sequence)
        text = index.tokens
        tail = text[-LONGEST_MATCH:]
        found = index.find(tail, MAX_PLACES)
        places: list[_Place] = [(text, start, len(text) - start, length) for start, length in found.items()]
        if self._shared is not None:
            places += self._shared.places(tail)
        return grow_tree(text[-1], places, budget.num_tokens, budget.least) if places else no_draft(sequence)

    def _index(self, sequence: SequenceView) -> TextIndex:
        index = self._own.get(sequence.id)
        if index is None:
            index = self._own[sequence.id] = TextIndex()
        index.extend(sequence.tokens[len(index.tokens) :])
        return index

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`. The tokens are taken in when they are needed: to propose, or for other sequences."""
        for sequence in sequences:
            self._sequences[sequence.id] = sequence

    def end(self, sequence_id: int) -> None:
        """See `Drafter`. From here on the text may serve other sequences."""
        sequence = self._sequences.pop(sequence_id, None)
        index = self._own.pop(sequence_id, None)
        if self._shared is None:
            return
        if sequence is not None:
            self._shared.add(sequence.tokens)
        elif index is not None:
            self._shared.add(index.tokens)


def grow_tree(root: int, places: list[_Place], budget: int, least: float = 0.0) -> DraftTree:
    """The likeliest `budget` nodes below `root` that places vote for, those less likely than `least` left out.

    A place whose match is n tokens long has n * n votes, and one token more of match at each node that it agreed with.
    The confidence of a token is its share of the votes, DOUBT among them: for one place alone n * n / (n * n + 4).
    """
    tokens, parents, confidences = [root], [-1], [1.0]
    heap: list[tuple[float, int, int, int, float, int, list[_Place]]] = []
    num_pushed, survival, node, depth, group = 0, 1.0, 0, 0, places
    while True:
        votes, voters, total = _count(group, depth)
        for token, vote in votes.items():
            confidence = vote / total
            num_pushed += 1  # settles between equals: first come, first served
            entry = (-survival * confidence, num_pushed, node, token, confidence, depth + 1, voters[token])
            heapq.heappush(heap, entry)
        if not heap or len(tokens) > budget or -heap[0][0] < least:
            break
        negative, _, parent, token, confidence, depth, group = heapq.heappop(heap)
        survival, node = -negative, len(tokens)
        tokens.append(token)
        parents.append(parent)
        confidences.append(confidence)
    return DraftTree(tuple(tokens), tuple(parents), tuple(confidences))


def _count(group: list[_Place], depth: int) -> tuple[dict[int, float], dict[int, list[_Place]], float]:
    """Votes for each next token, who voted for it, and all votes together."""
    votes: dict[int, float] = {}
    voters: dict[int, list[_Place]] = {}
    total = DOUBT
    for place in group:
        text, start, period, length = place
        if period:
            token = text[start + depth % period]
        else:
            token = text[start + depth]
            if token == _SEPARATOR:
                continue
        weight = float((length + depth) ** 2)
        total += weight
        if token in votes:
            votes[token] += weight
            voters[token].append(place)
        else:
            votes[token] = weight
            voters[token] = [place]
    return votes, voters, total
