"""What the engine tells of its rounds is what they did."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import (
    completion,
    make_engine,
    output,
    run,
    run_to_the_end,
    submit,
    table_decoder,
    tiny_decoder,
    tiny_tokenizer,
)

from foredraft.drafters.base import Drafter
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.engine import Engine
from foredraft.errors import ForedraftError
from foredraft.planner import FixedPlanner
from foredraft.planner.base import Plan
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch, Status
from foredraft.target import ModelTarget
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.text.vocabulary import Vocabulary
from foredraft.trace import Record, RoundRecord, SequenceEnd, SequenceStart, Trace

TABLE = TableModel(vocab_size=32, seed=3, scale=2.0)
PROMPT = [1, 2, 3]
SAMPLED = SamplingParams(max_tokens=24, temperature=0.9, seed=5, ignore_eos=True)


def traced(drafter: Drafter, prompts: Sequence[Sequence[int]], params: SamplingParams) -> tuple[Trace, list[list[int]]]:
    decoder, _ = table_decoder(TABLE)
    trace = Trace()
    engine = make_engine(decoder, drafter, num_draft_tokens=5, context_length=64, trace=trace)
    return trace, [output(one) for one in run(engine, prompts, params)]


@pytest.mark.parametrize("params", [SAMPLED, replace(SAMPLED, temperature=0.0)], ids=["sampled", "greedy"])
def test_the_rounds_add_up_to_the_completion(params: SamplingParams) -> None:
    draft_model = TableModel(vocab_size=32, seed=4, scale=1.0)
    trace, [said] = traced(DistDrafter(draft_model, shape=(2, 2)), [PROMPT], params)
    followed = trace.sequences[0]
    assert followed.start is not None
    assert followed.start.prompt_tokens == tuple(PROMPT)
    assert followed.start.params["seed"] == 5
    tokens = list(PROMPT)
    for index, record in enumerate(followed.rounds):
        assert (record.round, record.num_tokens) == (index, len(tokens))
        assert record.tokens[0] == tokens[-1]
        assert record.parents[0] == -1
        assert record.num_sequences == 1
        assert record.num_batched_tokens == len(record.tokens) == len(record.confidence) == len(record.sources)
        assert set(record.sources[1:]) <= {"dist"}
        drafted = [record.tokens[node] for node in record.accepted]
        assert list(record.emitted[: len(drafted)]) == drafted
        assert record.reason == "asked for"
        tokens += record.emitted
    assert tokens == PROMPT + said
    end = followed.end
    assert end is not None
    assert (end.finish_reason, end.num_rounds, end.num_emitted_tokens) == ("length", len(followed.rounds), 24)
    assert end.num_draft_tokens == sum(record.num_draft_tokens for record in followed.rounds)
    assert end.num_accepted_tokens == sum(len(record.accepted) for record in followed.rounds)


def test_ranks_and_probabilities_are_the_targets() -> None:
    trace, _ = traced(DistDrafter(TableModel(vocab_size=32, seed=4), shape=(3, 2)), [PROMPT], SAMPLED)
    text = list(PROMPT)
    for record in trace.sequences[0].rounds:
        paths = {0: list(text)}
        for node in range(1, len(record.tokens)):
            before = paths[record.parents[node]]
            paths[node] = [*before, record.tokens[node]]
            probs = TABLE.probs(before, SAMPLED)
            order = np.argsort(-TABLE.logits(before), kind="stable").tolist()
            assert record.target_ranks[node] == order.index(record.tokens[node]) + 1
            assert record.target_probs[node] == pytest.approx(probs[record.tokens[node]], rel=1e-4)
        if record.choice is not None:
            last = paths[record.accepted[-1] if record.accepted else 0]
            assert record.choice.token == record.emitted[-1]
            assert record.choice.probability == pytest.approx(TABLE.probs(last, SAMPLED)[record.choice.token], rel=1e-4)
        text += record.emitted


def test_the_first_rejected_token_is_named() -> None:
    trace, _ = traced(WrongDrafter(TABLE), [PROMPT], SAMPLED)
    for record in trace.sequences[0].rounds:
        if record.num_draft_tokens:
            assert record.accepted == ()
            assert record.rejected == 1
            assert record.choice is not None
            assert record.choice.token != record.tokens[1]
            assert record.target_probs[1] is not None
            assert record.target_probs[1] < record.choice.probability


def test_nothing_is_rejected_where_everything_was_right() -> None:
    known = TABLE.generate(PROMPT, SAMPLED, 40)
    trace, _ = traced(OracleDrafter(known), [PROMPT], SAMPLED)
    assert all(record.rejected is None for record in trace.sequences[0].rounds)


def test_a_sequence_that_ends_in_a_draft_has_no_choice_there() -> None:
    known = TABLE.generate(PROMPT, SAMPLED, 40)
    params = replace(SAMPLED, stop_token_ids=(known[3],))
    trace, [said] = traced(OracleDrafter(known), [PROMPT], params)
    [record] = trace.sequences[0].rounds
    assert list(record.emitted) == said
    assert record.accepted == tuple(range(1, len(said) + 1))
    assert (record.choice, record.rejected) == (None, None)


def test_sequences_of_a_batch_are_told_apart() -> None:
    script = {0: [[5, 6], [], [7]], 1: [[], [9]]}
    trace, texts = traced(ScriptedDrafter(script), [PROMPT, [4, 4]], SAMPLED)
    for number, said in enumerate(texts):
        assert [token for record in trace.sequences[number].rounds for token in record.emitted] == said
    together = [record for record in trace.sequences[0].rounds if record.num_sequences == 2]
    assert together
    for one, other in zip(together, [r for r in trace.sequences[1].rounds if r.num_sequences == 2], strict=True):
        drafted = one.num_draft_tokens + other.num_draft_tokens
        assert one.num_batched_tokens == other.num_batched_tokens == 2 + drafted


def test_tokens_of_prompts_in_the_pass_of_a_round_are_told() -> None:
    """Kind: a round is slow for a prompt beside it, and the trace does not say so."""
    decoder, _ = table_decoder(TABLE)
    trace = Trace()
    engine = make_engine(decoder, trace=trace, max_batched_tokens=16)
    submit(engine, PROMPT, SAMPLED)
    for _ in range(4):
        engine.step()
    submit(engine, [*range(30)], SAMPLED)
    run_to_the_end(engine)
    rounds = trace.sequences[0].rounds
    assert [record.num_prefill_tokens for record in rounds[2:8]] == [0, 16, 13, 0, 0, 0]
    assert [record.num_batched_tokens for record in rounds[2:8]] == [1, 17, 14, 2, 2, 2]
    assert [record.num_sequences for record in rounds[2:8]] == [1, 1, 1, 2, 2, 2]
    assert trace.sequences[1].start is not None
    assert trace.sequences[1].start.prefill_s > 0


def test_texts_join_to_the_text_of_the_completion() -> None:
    decoder = tiny_decoder(length=128)
    trace = Trace()
    engine = make_engine(decoder, ScriptedDrafter([[3, 4]]), num_draft_tokens=2, trace=trace)
    params = SamplingParams(max_tokens=60, temperature=3.0, seed=1, ignore_eos=True)
    done = completion(run(engine, [[5, 6, 7]], params)[0])
    joined = "".join(text for record in trace.sequences[0].rounds for text in record.emitted_texts)
    assert done.text.startswith(joined)  # what is left inside a character comes with the end
    assert any("<0x" in text for record in trace.sequences[0].rounds for text in record.texts)


def test_a_sequence_that_is_cancelled_ends_without_a_reason_to_finish() -> None:
    decoder, _ = table_decoder(TABLE)
    records: list[Record] = []
    engine = make_engine(decoder, trace=records.append, max_running=1)
    first, second = (submit(engine, PROMPT, SAMPLED) for _ in range(2))
    for _ in range(3):
        engine.step()
    engine.cancel(first)
    engine.cancel(second)  # was never started: nothing is told of it
    assert [type(record) for record in records] == [SequenceStart, RoundRecord, RoundRecord, SequenceEnd]
    assert isinstance(records[-1], SequenceEnd)
    assert records[-1].finish_reason is None
    assert (records[-1].num_rounds, records[-1].num_emitted_tokens) == (2, 2)


@pytest.mark.parametrize("kind", [SequenceStart, RoundRecord, SequenceEnd])
def test_a_record_that_cannot_be_written_is_an_error_of_its_sequence(kind: type[Record]) -> None:
    """Kind: one record fails, and others of the round end, or go on with a cache that lacks what they said."""
    decoder, _ = table_decoder(TABLE)

    def sink(record: Record) -> None:
        if isinstance(record, kind) and record.sequence == 1:
            raise ForedraftError(f"no room for {type(record).__name__}")

    engine = make_engine(decoder, trace=sink)
    sequences = [submit(engine, prompt, SAMPLED) for prompt in (PROMPT, [*range(20)], [7, 8])]
    run_to_the_end(engine)
    assert [one.sequence.status for one in sequences] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert isinstance(sequences[1].sequence.error, ForedraftError)
    assert str(sequences[1].sequence.error) == f"no room for {kind.__name__}"
    assert len(output(sequences[1])) == {SequenceStart: 0, RoundRecord: 1, SequenceEnd: 24}[kind]
    for one in (sequences[0], sequences[2]):
        assert output(one) == TABLE.generate(one.prompt, SAMPLED, 24)
    assert decoder.cache.pool.num_used == 0
    decoder.cache.pool.check_integrity()


def test_a_full_disk_ends_all_that_are_traced_and_the_engine_stays_usable() -> None:
    """Kind: sequences whose clean-up fails for it keep their blocks."""
    decoder, _ = table_decoder(TABLE)
    full = False

    def sink(record: Record) -> None:
        if full:
            raise ForedraftError(f"no room for {type(record).__name__}")

    engine = make_engine(decoder, trace=sink)
    sequences = [submit(engine, PROMPT, SAMPLED) for _ in range(3)]
    for _ in range(3):
        engine.step()
    full = True
    assert set(engine.step()) == set(sequences)
    assert [one.sequence.status for one in sequences] == [Status.FAILED] * 3
    assert not engine.has_work
    assert decoder.cache.pool.num_used == 0
    full = False
    assert output(run(engine, [PROMPT], SAMPLED)[0]) == TABLE.generate(PROMPT, SAMPLED, 24)


def test_an_engine_without_a_trace_makes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a record was made")

    for cls in (SequenceStart, RoundRecord, SequenceEnd):
        monkeypatch.setattr(f"foredraft.engine.tracing.{cls.__name__}", fail)
    run(make_engine(table_decoder(TABLE)[0]), [PROMPT], SAMPLED)


class ExpectingPlanner(FixedPlanner):
    def plan(self, batch: Batch) -> Plan:
        return replace(super().plan(batch), expected_tokens=(1.5,) * len(batch.running), expected_s=0.25)


def test_what_the_planner_expected_is_told() -> None:
    decoder, _ = table_decoder(TABLE)
    trace = Trace()
    target, planner = ModelTarget(decoder, TABLE.vocab_size), ExpectingPlanner(ScriptedDrafter([]), 1, reason="because")
    [one] = run(Engine(target, planner, tiny_tokenizer(), context_length=64, trace=trace), [PROMPT], SAMPLED)
    assert {(r.expected_tokens, r.expected_s) for r in trace.sequences[0].rounds} == {(1.5, 0.25)}
    assert {r.reason for r in trace.sequences[0].rounds} == {"because"}
    found = completion(one).speculation
    assert (found.expected_tokens, found.expected_s) == (1.5 * 24, 0.25 * 24)


def test_of_several_drafters_the_one_that_proposed_is_named() -> None:
    scripts = [ScriptedDrafter([[5], [], [6], []]), WrongDrafter(TABLE)]
    trace, _ = traced(FallbackDrafter(scripts), [PROMPT], replace(SAMPLED, max_tokens=6))
    sources = [record.sources[1:] for record in trace.sequences[0].rounds]
    assert sources[0] == ("scripted",)
    assert set(sources[1]) == {"wrong"}


def test_tokens_are_shown_as_what_they_are() -> None:
    """Kind: control tokens of a prompt are left out, and a part of a character hides the letters beside it."""
    tokenizer = tiny_tokenizer()
    control = min(tokenizer.special_ids)
    [letter] = tokenizer.encode("b", add_special=False)
    tokens = list(tokenizer.vocabulary.tokens)
    tokens[letter] = "b\u00e2"  # the byte-level alphabet's sign for the byte 0xE2
    vocabulary = Vocabulary(tokens, tokenizer.vocabulary.kinds, tokenizer.vocabulary.style)
    decoder, _ = table_decoder(TableModel(1, tokenizer.vocab_size))
    engine = make_engine(decoder, tokenizer=replace(tokenizer, vocabulary=vocabulary), trace=(trace := Trace()))
    run(engine, [[control, letter]], SamplingParams(max_tokens=1))
    [followed] = trace.sequences.values()
    assert followed.start is not None
    assert followed.start.prompt.startswith(tokenizer.token_text(control))
    assert followed.rounds[0].texts == ("b<0xE2>",)
