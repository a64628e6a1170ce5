"""The file of a trace: what is written is read again, and what is no trace is refused with the line."""

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foredraft.errors import UserError
from foredraft.trace import (
    Choice,
    Header,
    Proposal,
    Record,
    RoundRecord,
    SequenceEnd,
    SequenceStart,
    Trace,
    TraceFileError,
    TraceWriter,
    from_json,
    read_trace,
    to_json,
)

HEADER = Header(
    foredraft="1", model="m.gguf", tokenizer="ab", drafters=("lookup",), settings={"threads": 2}, machine={}
)
START = SequenceStart(
    sequence=3, prompt="a é", prompt_tokens=(1, 2), num_cached_tokens=0, prefill_s=0.5, params={"stop": ["x"]}
)
ROUND = RoundRecord(
    sequence=3,
    round=0,
    num_tokens=2,
    tokens=(2, 7, 8),
    parents=(-1, 0, 0),
    confidence=(1.0, 0.5, 0.25),
    sources=("", "lookup", "lookup"),
    texts=("a", "<0xE2>", "\u2028"),
    target_ranks=(None, 1, 2),
    target_probs=(None, 0.75, 0.125),
    accepted=(1,),
    rejected=None,
    choice=Choice(token=9, text="b", rank=1, probability=0.5),
    emitted=(7, 9),
    emitted_texts=("", "éb"),
    draft_s=0.1,
    verify_s=0.2,
    accept_s=0.3,
    num_sequences=1,
    num_batched_tokens=3,
    expected_tokens=1.5,
)
END = SequenceEnd(
    sequence=3,
    finish_reason=None,
    num_rounds=1,
    num_draft_tokens=2,
    num_accepted_tokens=1,
    num_emitted_tokens=2,
)
ALL: list[Record] = [HEADER, START, ROUND, END]


@pytest.mark.parametrize("record", ALL, ids=lambda record: record.kind)
def test_a_record_is_one_line_and_comes_back(record: Record) -> None:
    line = to_json(record)
    assert "\n" not in line
    assert from_json(line) == record


def test_a_file_comes_back_with_the_sequences_sorted_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    writer = TraceWriter(path)
    other = replace(ROUND, sequence=4)
    for record in (HEADER, START, ROUND, other, END):
        writer(record)
    assert len(path.read_text().split("\n")) == 6  # U+2028 in a text is no line ending
    trace = Trace.read(path)
    assert trace.header == HEADER
    assert (trace.sequences[3].start, trace.sequences[3].rounds, trace.sequences[3].end) == (START, [ROUND], END)
    assert (trace.sequences[4].start, trace.sequences[4].rounds, trace.sequences[4].end) == (None, [other], None)
    writer.close()


def test_each_record_is_in_the_file_at_once_and_the_file_closes_itself(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer(HEADER)
    assert list(read_trace(tmp_path / "t.jsonl")) == [HEADER]
    del writer
    gc.collect()  # an unclosed file would be a ResourceWarning, which fails here


def test_half_a_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(to_json(HEADER) + "\n" + to_json(ROUND)[:100])
    assert list(read_trace(path)) == [HEADER]


def test_fields_of_a_later_version_are_left_out() -> None:
    line = json.dumps(json.loads(to_json(ROUND)) | {"colour": "red"})
    assert from_json(line) == ROUND


WRONG_ROUNDS: list[tuple[dict[str, Any], str]] = [
    ({"accepted": (0, 1)}, "accepted and rejected must be drafted nodes"),
    ({"rejected": 0}, "accepted and rejected must be drafted nodes"),
    ({"parents": (-1, 0)}, "one parent"),
    ({"parents": (-1, 0, 5)}, "has parent 5"),
    ({"confidence": ()}, "as many entries"),
    ({"texts": ("a",)}, "as many entries"),
    ({"target_ranks": (None,)}, "as many entries"),
    ({"accepted": (3,)}, "drafted nodes"),
    ({"rejected": -1}, "drafted nodes"),
    ({"emitted_texts": ()}, "one text each"),
    ({"proposals": (Proposal(drafter="d", tokens=(1,), parents=(-1,), confidence=(1.0,)),)}, "another root"),
]
"""What would be found out in the middle of showing or replaying it."""


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no whole line"),
        (["{}"], "line 1"),
        ([to_json(ROUND)], "line 1: the first line"),
        ([to_json(HEADER), to_json(HEADER)], "line 2: the first line"),
        ([to_json(HEADER), "hello"], "line 2"),
        ([to_json(HEADER), "[1]"], "kind"),
        ([to_json(HEADER), '{"kind": "end", "sequence": 1}'], "finish_reason is missing"),
        ([to_json(HEADER), to_json(ROUND).replace('"round": 0', '"round": "0"')], "round must be int"),
        ([to_json(HEADER), to_json(ROUND).replace('"round": 0', '"round": false')], "round must be int"),
        ([to_json(HEADER), to_json(ROUND).replace("[2, 7, 8]", "[2, null, 8]")], "tokens must be int"),
        ([to_json(HEADER), '{"kind": []}'], "kind"),
        *(([to_json(HEADER), to_json(replace(ROUND, **wrong))], said) for wrong, said in WRONG_ROUNDS),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(TraceFileError, match="is not a trace") as error:
        list(read_trace(path))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("other", [1, 3])
def test_a_trace_of_another_format_is_refused_before_its_fields_are_read(tmp_path: Path, other: int) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"kind": "header", "format": other, "requests": []}) + "\n")
    with pytest.raises(TraceFileError, match=f"has format {other}, this version reads format 2"):
        list(read_trace(path))


def test_files_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write the trace"):
        TraceWriter(tmp_path / "missing" / "t.jsonl")
    with pytest.raises(UserError, match="cannot read the trace"):
        list(read_trace(tmp_path / "t.jsonl"))
    (tmp_path / "b").write_bytes(b"\xff\n")
    with pytest.raises(UserError, match="not UTF-8"):
        list(read_trace(tmp_path / "b"))


def test_a_full_disk_is_said() -> None:
    with pytest.raises(UserError, match="cannot write the trace /dev/full"):
        TraceWriter("/dev/full")(HEADER)


def test_a_trace_that_was_closed_is_said() -> None:
    """Kind: what comes after a full disk, the end of a sequence say, hides it behind a traceback."""
    writer = TraceWriter("/dev/null")
    writer.close()
    with pytest.raises(UserError, match="cannot write the trace /dev/null: it was closed"):
        writer(HEADER)


def test_values_without_a_type_in_json_are_written_as_they_show_themselves() -> None:
    start = replace(START, params={"a": {1: 2}, "b": frozenset({3}), "c": float("inf"), "d": object})
    assert json.loads(to_json(start))["params"] == {"a": {"1": 2}, "b": [3], "c": None, "d": "<class 'object'>"}
