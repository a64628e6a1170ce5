"""What each round did, and why: the records of a trace, and the file of JSON Lines they are kept in.

docs/trace.md describes every field. Records are plain values; the engine makes them (`foredraft.engine.tracing`), and
any function takes them.
"""

import contextlib
import dataclasses
import json
import math
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from foredraft.errors import UserError
from foredraft.files import text_of, user_path
from foredraft.tree import DraftTree

FORMAT = 2
"""Number of the format. Fields may be added under the same number; it rises where their names or meanings change."""


class TraceFileError(UserError):
    """A trace cannot be written, or a file is not one."""


class _OtherFormatError(ValueError):
    """A trace of another version."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a planner expected of a round: tokens emitted for one sequence, seconds of the whole round."""

    num_tokens: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What one drafter proposed, before anything of it was chosen. Fields of the tree as in `RoundRecord`."""

    drafter: str
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    confidence: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Header:
    """What the rounds that follow were made with.

    model: name of the file or folder. tokenizer: fingerprint of its vocabulary. drafters: those that may be asked.
    settings: how the engine was made. machine: processor and cores.
    """

    kind: ClassVar[str] = "header"
    format: int = FORMAT
    foredraft: str
    model: str
    tokenizer: str
    drafters: tuple[str, ...]
    settings: dict[str, Any]
    machine: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class SequenceStart:
    """A sequence whose prompt has been computed.

    num_cached_tokens: of the prompt, found in the prefix cache. prefill_s: seconds of the passes over the rest.
    params: sampling parameters, with the seed.
    """

    kind: ClassVar[str] = "sequence"
    sequence: int
    prompt: str
    prompt_tokens: tuple[int, ...]
    num_cached_tokens: int
    prefill_s: float
    params: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The token the target chose where it left the tree: the bonus.

    rank: 1 for the largest logit. probability: see `RoundRecord.target_probs`.
    """

    token: int
    text: str
    rank: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """One round of one sequence.

    round: index among the sequence's rounds. num_tokens: of the sequence before the round, prompt included; the last
    of them is the root, node 0 of the tree.
    tokens, parents, confidence, sources, texts: one entry for each node of the tree as it was verified; the root has
    parent -1 and source "". A planner may have put what it learned in place of a drafter's confidences.
    target_ranks, target_probs: how the target ranks a node's token given its parent (1: the largest logit), and how
    likely it finds it: softmax of its logits over the sequence's temperature (over 1 where that is 0), before filters
    and penalties. None for the root.
    accepted: the nodes accepted and kept, from the root's child down. rejected: the first node, in the order of the
    tree, below the last of these that was not chosen; None where there was none, or the sequence ended before.
    choice: the token chosen instead, or after a path that led to a leaf; None where the sequence ended before.
    emitted, emitted_texts: tokens the sequence got, and the text that each of them completed.
    draft_s, verify_s, accept_s: seconds of the whole round. num_sequences: that shared it. num_batched_tokens: of its
    forward pass, nodes of all trees and num_prefill_tokens of prompts.
    expected_tokens, expected_s: what the planner expected of the round; None: nothing in particular.
    reason: why the sequence was drafted for as it was, in words.
    proposals: what drafters proposed, verified or not; only in recordings for `foredraft tune --replay`.
    """

    kind: ClassVar[str] = "round"
    sequence: int
    round: int
    num_tokens: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    confidence: tuple[float, ...]
    sources: tuple[str, ...]
    texts: tuple[str, ...]
    target_ranks: tuple[int | None, ...]
    target_probs: tuple[float | None, ...]
    accepted: tuple[int, ...]
    rejected: int | None
    choice: Choice | None
    emitted: tuple[int, ...]
    emitted_texts: tuple[str, ...]
    draft_s: float
    verify_s: float
    accept_s: float
    num_sequences: int
    num_batched_tokens: int
    num_prefill_tokens: int = 0
    expected_tokens: float | None = None
    expected_s: float | None = None
    reason: str = ""
    proposals: tuple[Proposal, ...] = ()

    @property
    def num_draft_tokens(self) -> int:
        """Nodes verified, without the root."""
        return len(self.tokens) - 1

    @property
    def total_s(self) -> float:
        """Seconds of all parts."""
        return self.draft_s + self.verify_s + self.accept_s


@dataclass(frozen=True, kw_only=True)
class SequenceEnd:
    """The end of a sequence. finish_reason: "stop" or "length"; None: it failed or was cancelled."""

    kind: ClassVar[str] = "end"
    sequence: int
    finish_reason: str | None
    num_rounds: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int
    reason: str = ""


Record = Header | SequenceStart | RoundRecord | SequenceEnd
Sink = Callable[[Record], object]
"""Takes the records as they come."""

_KINDS: dict[str, type[Record]] = {cls.kind: cls for cls in (Header, SequenceStart, RoundRecord, SequenceEnd)}


# --- the file -------------------------------------------------------------------------------------------------


def to_json(record: Record) -> str:
    """A record as one line of JSON, without a line ending."""
    return json.dumps({"kind": record.kind, **_plain(dataclasses.asdict(record))}, ensure_ascii=False, allow_nan=False)


def from_json(line: str) -> Record:
    """The record of one line. Fields that are not known here are left out.

    Raises ValueError, with what is wrong, where it is none.
    """
    entry = json.loads(line)
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"not an object whose kind is one of {', '.join(_KINDS)}")
    if kind == Header.kind and entry.get("format", FORMAT) != FORMAT:
        raise _OtherFormatError(f"has format {entry['format']}, this version reads format {FORMAT}: record it anew")
    record = _read(_KINDS[kind], entry)
    if isinstance(record, RoundRecord):
        _check_round(record)
    assert isinstance(record, Header | SequenceStart | RoundRecord | SequenceEnd)
    return record


def _check_round(record: RoundRecord) -> None:
    """Raise ValueError where the parts of a round do not fit together."""
    DraftTree(record.tokens, record.parents, record.confidence)
    num_nodes = len(record.tokens)
    for values in (record.confidence, record.sources, record.texts, record.target_ranks, record.target_probs):
        if len(values) != num_nodes:
            raise ValueError(f"a tree of {num_nodes} nodes needs as many entries for each of what is said of them")
    if not all(0 < node < num_nodes for node in (*record.accepted, record.rejected) if node is not None):
        raise ValueError("accepted and rejected must be drafted nodes of the tree")
    if len(record.emitted) != len(record.emitted_texts):
        raise ValueError("emitted tokens need one text each")
    for proposal in record.proposals:
        DraftTree(proposal.tokens, proposal.parents, proposal.confidence)
        if proposal.tokens[0] != record.tokens[0]:
            raise ValueError(f"the proposal of {proposal.drafter} has another root than the tree")


class TraceWriter:
    """Writes records to a file, each as soon as it is there. What was in the file before is lost.

    Raises TraceFileError where it cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = user_path(path)
        try:
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise self._cannot_write(error) from error
        except ValueError:
            raise TraceFileError(f"cannot write the trace {str(path)!r}: no file can have this name") from None
        self._closed = weakref.finalize(self, self._file.close)

    def __call__(self, record: Record) -> None:
        """Write one record."""
        if self._file.closed:
            raise TraceFileError(f"cannot write the trace {self.path}: it was closed")
        try:
            self._file.write(to_json(record) + "\n")
            self._file.flush()
        except OSError as error:
            with contextlib.suppress(OSError):  # it would try to write once more
                self._file.close()
            raise self._cannot_write(error) from error

    def close(self) -> None:
        """Close the file; it is closed by itself when nobody holds the writer any more."""
        self._closed()

    def _cannot_write(self, error: OSError) -> TraceFileError:
        return TraceFileError(f"cannot write the trace {self.path}: {error.strerror}")


def read_trace(path: str | Path) -> Iterator[Record]:
    """The records of a file. Half a line at its end, of a run that was interrupted, is left out.

    Raises TraceFileError where the file cannot be read, or names the line that is no record.
    """
    try:
        text = text_of(user_path(path).read_bytes())
    except OSError as error:
        raise TraceFileError(f"cannot read the trace {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraceFileError(f"{path} is not a trace: not UTF-8 at byte {error.start}") from error
    lines = text.split("\n")[:-1]
    if not lines:
        raise TraceFileError(f"{path} is not a trace: it holds no whole line")
    for number, line in enumerate(lines, start=1):
        try:
            record = from_json(line)
        except _OtherFormatError as error:
            raise TraceFileError(f"the trace {path} {error}") from error
        except (ValueError, RecursionError) as error:
            raise TraceFileError(f"{path} is not a trace: line {number}: {error}") from error
        if (number == 1) != isinstance(record, Header):
            raise TraceFileError(f"{path} is not a trace: line {number}: the first line, and no other, is a header")
        yield record


def _plain(value: object) -> Any:
    """The value in the types that JSON has; what it has no type for as its repr."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, str | bool | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Iterable):
        return [_plain(inner) for inner in value]
    return repr(value)


def _read(cls: type[Any], entry: Mapping[str, object]) -> Any:
    hints = get_type_hints(cls)
    values = {}
    for known in dataclasses.fields(cls):
        if known.name in entry:
            values[known.name] = _typed(hints[known.name], entry[known.name], known.name)
        elif known.default is dataclasses.MISSING:
            raise ValueError(f"{known.name} is missing")
    return cls(**values)


def _typed(hint: Any, value: object, name: str) -> object:
    """The value, if it is of that type: lists become tuples, objects become dataclasses, integers serve as floats."""
    if isinstance(hint, types.UnionType):
        if value is None and types.NoneType in get_args(hint):
            return None
        [hint] = [inner for inner in get_args(hint) if inner is not types.NoneType]
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_typed(get_args(hint)[0], inner, name) for inner in value)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _read(hint, value)  # type: ignore[arg-type]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = get_origin(hint) or hint
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise ValueError(f"{name} must be {getattr(hint, '__name__', hint)}, got {value!r}")
    return value


# --- a whole trace --------------------------------------------------------------------------------------------


@dataclass
class SequenceTrace:
    """All that a trace says of one sequence. start is None where the trace began later, end where it ended before."""

    sequence: int
    start: SequenceStart | None = None
    rounds: list[RoundRecord] = field(default_factory=list)
    end: SequenceEnd | None = None


@dataclass
class Trace:
    """A trace in memory: itself a sink of records. Records of a sequence may lie between those of others."""

    header: Header | None = None
    sequences: dict[int, SequenceTrace] = field(default_factory=dict)

    def __call__(self, record: Record) -> None:
        """Take in one record."""
        if isinstance(record, Header):
            self.header = record
            return
        sequence = self.sequences.setdefault(record.sequence, SequenceTrace(record.sequence))
        if isinstance(record, RoundRecord):
            sequence.rounds.append(record)
        elif isinstance(record, SequenceStart):
            sequence.start = record
        else:
            sequence.end = record

    @classmethod
    def read(cls, path: str | Path) -> "Trace":
        """The trace of a file. Raises as `read_trace`."""
        trace = cls()
        for record in read_trace(path):
            trace(record)
        return trace
