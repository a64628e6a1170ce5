"""LLM: the trace of what it does, and the same model with another way of drafting."""

from pathlib import Path

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import OptionError
from foredraft.trace import Header, Record, Trace

PARAMS = SamplingParams(max_tokens=16, ignore_eos=True)
TEXT = "a b a b a b a"


def test_a_trace_goes_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    llm = LLM(tiny_file(), draft="lookup", num_draft_tokens=3, threads=1, trace=path)
    [done] = llm.generate(TEXT, PARAMS)
    trace = Trace.read(path)
    assert trace.header is not None
    assert trace.header.model == tiny_file().name
    assert trace.header.tokenizer == llm.tokenizer.fingerprint()
    assert "lookup" in trace.header.drafters
    assert trace.header.settings["num_draft_tokens"] == 3
    assert trace.header.settings["threads"] == 1
    assert trace.header.machine["processor"]
    [sequence] = trace.sequences.values()
    assert sequence.start is not None
    assert sequence.start.prompt == TEXT
    assert [token for record in sequence.rounds for token in record.emitted] == list(done.token_ids)
    assert sequence.end is not None
    assert sequence.end.finish_reason == done.finish_reason


def test_a_trace_goes_to_a_function() -> None:
    records: list[Record] = []
    llm = LLM(tiny_file(), draft="none", threads=1, trace=records.append)
    assert [type(record) for record in records] == [Header]
    llm.generate(TEXT, PARAMS)
    assert [record.kind for record in records] == ["header", "sequence", *(["round"] * 16), "end"]


def test_a_trace_changes_nothing() -> None:
    params = SamplingParams(max_tokens=24, temperature=1.0, seed=3, ignore_eos=True)
    plain = LLM(tiny_file(), draft="lookup", threads=1)
    traced = plain.with_drafts("lookup", trace=Trace())
    assert traced.generate(TEXT, params)[0].token_ids == plain.generate(TEXT, params)[0].token_ids


def test_the_same_model_with_other_drafts() -> None:
    plain = LLM(tiny_file(), draft="none", threads=1, context_length=64)
    [expected] = plain.generate(TEXT, PARAMS)
    drafted = plain.with_drafts(["lookup", tiny_file(seed=1)], num_draft_tokens=2)
    assert drafted.decoder is plain.decoder
    assert drafted.context_length == 64
    [done] = drafted.generate(TEXT, PARAMS)
    assert done.token_ids == expected.token_ids
    assert done.speculation.methods == ("lookup", f"model:{tiny_file(seed=1).stem}")
    assert plain.generate(TEXT, PARAMS)[0].speculation.methods == ("none",)


def test_other_drafts_are_checked_as_the_first_ones() -> None:
    llm = LLM(tiny_file(), draft="none", threads=1)
    with pytest.raises(OptionError, match="--num-draft-tokens"):
        llm.with_drafts("lookup", num_draft_tokens=0)
    with pytest.raises(OptionError, match="medusaa"):
        llm.with_drafts("medusaa")
