"""What the engine tells of its rounds is what they did."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, submit, table_decoder, tiny_decoder, tiny_tokenizer

from foredraft.drafters.base import Drafter
from foredraft.drafters.first import FirstDrafter
from foredraft.engine import Engine
from foredraft.errors import ForedraftError
from foredraft.planner import FixedPlanner
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.text.vocabulary import Vocabulary
from foredraft.trace import Expectation, Record, RequestEnd, RequestStart, RoundRecord, Trace
from foredraft.verify import Verifier

TABLE = TableModel(vocab_size=32, seed=3, scale=2.0)
PROMPT = [1, 2, 3]
SAMPLED = SamplingParams(max_tokens=24, temperature=0.9, seed=5, ignore_eos=True)


def traced(drafter: Drafter, prompts: Sequence[Sequence[int]], params: SamplingParams) -> tuple[Trace, list[list[int]]]:
    decoder, _ = table_decoder(TABLE)
    trace = Trace()
    planner = FixedPlanner(drafter, 5, reason="because")
    engine = Engine(Verifier(decoder, TABLE.vocab_size), planner, tiny_tokenizer(), context_length=64, trace=trace)
    return trace, [output(request) for request in run(engine, prompts, params)]


@pytest.mark.parametrize("params", [SAMPLED, replace(SAMPLED, temperature=0.0)], ids=["sampled", "greedy"])
def test_the_rounds_add_up_to_the_answer(params: SamplingParams) -> None:
    draft_model = TableModel(vocab_size=32, seed=4, scale=1.0)
    trace, [answer] = traced(DistDrafter(draft_model, shape=(2, 2)), [PROMPT], params)
    request = trace.requests[0]
    assert request.start is not None
    assert request.start.prompt_tokens == tuple(PROMPT)
    assert request.start.params["seed"] == 5
    tokens = list(PROMPT)
    for index, record in enumerate(request.rounds):
        assert (record.round, record.num_tokens) == (index, len(tokens))
        assert record.tokens[0] == tokens[-1]
        assert record.parents[0] == -1
        assert record.num_requests == 1
        assert record.num_rows == len(record.tokens) == len(record.confidence) == len(record.sources)
        assert set(record.sources[1:]) <= {"dist"}
        drafted = [record.tokens[node] for node in record.accepted]
        assert list(record.emitted[: len(drafted)]) == drafted
        assert record.reason == "because"
        tokens += record.emitted
    assert tokens == PROMPT + answer
    end = request.end
    assert end is not None
    assert (end.finish_reason, end.num_rounds, end.num_emitted_tokens) == ("length", len(request.rounds), 24)
    assert end.num_draft_tokens == sum(record.num_draft_tokens for record in request.rounds)
    assert end.num_accepted_tokens == sum(len(record.accepted) for record in request.rounds)


def test_ranks_and_probabilities_are_the_targets() -> None:
    trace, _ = traced(DistDrafter(TableModel(vocab_size=32, seed=4), shape=(3, 2)), [PROMPT], SAMPLED)
    text = list(PROMPT)
    for record in trace.requests[0].rounds:
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
    for record in trace.requests[0].rounds:
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
    assert all(record.rejected is None for record in trace.requests[0].rounds)


def test_a_request_that_ends_in_a_draft_has_no_choice_there() -> None:
    known = TABLE.generate(PROMPT, SAMPLED, 40)
    params = replace(SAMPLED, stop_token_ids=(known[3],))
    trace, [answer] = traced(OracleDrafter(known), [PROMPT], params)
    [record] = trace.requests[0].rounds
    assert list(record.emitted) == answer
    assert record.accepted == tuple(range(1, len(answer) + 1))
    assert (record.choice, record.rejected) == (None, None)


def test_requests_of_a_batch_are_told_apart() -> None:
    script = {0: [[5, 6], [], [7]], 1: [[], [9]]}
    trace, answers = traced(ScriptedDrafter(script), [PROMPT, [4, 4]], SAMPLED)
    for number, answer in enumerate(answers):
        assert [token for record in trace.requests[number].rounds for token in record.emitted] == answer
    together = [record for record in trace.requests[0].rounds if record.num_requests == 2]
    assert together
    assert together[0].num_rows >= 2 + together[0].num_draft_tokens


def test_texts_join_to_the_text_of_the_answer() -> None:
    decoder = tiny_decoder(length=128)
    trace = Trace()
    planner = FixedPlanner(ScriptedDrafter([[3, 4]]), 2)
    engine = Engine(Verifier(decoder, 275), planner, tiny_tokenizer(), context_length=128, trace=trace)
    params = SamplingParams(max_tokens=60, temperature=3.0, seed=1, ignore_eos=True)
    [request] = run(engine, [[5, 6, 7]], params)
    done = request.completion(methods=["x"], load_s=0.0)
    joined = "".join(text for record in trace.requests[0].rounds for text in record.emitted_texts)
    assert done.text.startswith(joined)  # what is left inside a character comes with the end
    assert any("<0x" in text for record in trace.requests[0].rounds for text in record.texts)


def test_a_request_that_is_given_up_ends_without_a_reason_to_finish() -> None:
    decoder, _ = table_decoder(TABLE)
    records: list[Record] = []
    engine = Engine(
        Verifier(decoder, TABLE.vocab_size),
        FixedPlanner(ScriptedDrafter([]), 1),
        tiny_tokenizer(),
        context_length=64,
        trace=records.append,
    )
    first, second = (submit(engine, PROMPT, SAMPLED) for _ in range(2))
    engine.step()
    engine.release(first)
    engine.release(second)  # was never started: nothing is told of it
    assert [type(record) for record in records] == [RequestStart, RequestEnd]
    assert isinstance(records[-1], RequestEnd)
    assert records[-1].finish_reason is None


def test_a_sink_that_fails_ends_all_requests_of_the_round() -> None:
    """Kind: a full disk, and requests whose clean-up fails for it go on with a cache that lacks what they said."""
    decoder, _ = table_decoder(TABLE)
    full = False

    def sink(record: Record) -> None:
        if full:
            raise ForedraftError(f"no room for {type(record).__name__}")

    engine = Engine(
        Verifier(decoder, TABLE.vocab_size),
        FixedPlanner(ScriptedDrafter([]), 1),
        tiny_tokenizer(),
        context_length=64,
        trace=sink,
    )
    requests = [submit(engine, PROMPT, SAMPLED) for _ in range(3)]
    for _ in requests:
        engine.step()
    full = True
    with pytest.raises(ForedraftError, match="no room for RoundRecord"):
        engine.step()
    assert all(request.failed for request in requests)
    assert not engine.has_work
    assert decoder.cache.pool.num_used == 0


def test_an_engine_without_a_trace_makes_no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a record was made")

    for cls in (RequestStart, RoundRecord, RequestEnd):
        monkeypatch.setattr(f"foredraft.engine.tracing.{cls.__name__}", fail)
    run(make_engine(table_decoder(TABLE)[0]), [PROMPT], SAMPLED)


@dataclass
class ExpectingPlanner(FixedPlanner):
    def __init__(self) -> None:
        super().__init__(ScriptedDrafter([]), 1)

    def expectation(self, request_id: int) -> Expectation | None:
        return Expectation(num_tokens=1.5, seconds=0.25)


def test_what_the_planner_expected_is_told() -> None:
    decoder, _ = table_decoder(TABLE)
    trace = Trace()
    verifier = Verifier(decoder, TABLE.vocab_size)
    run(Engine(verifier, ExpectingPlanner(), tiny_tokenizer(), context_length=64, trace=trace), [PROMPT], SAMPLED)
    assert {(r.expected_tokens, r.expected_s) for r in trace.requests[0].rounds} == {(1.5, 0.25)}


def test_of_several_drafters_the_one_that_proposed_is_named() -> None:
    scripts = [ScriptedDrafter([[5], [], [6], []]), WrongDrafter(TABLE)]
    trace, _ = traced(FirstDrafter(scripts), [PROMPT], replace(SAMPLED, max_tokens=6))
    sources = [record.sources[1:] for record in trace.requests[0].rounds]
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
    engine = Engine(
        Verifier(decoder, tokenizer.vocab_size),
        FixedPlanner(ScriptedDrafter([]), 1),
        replace(tokenizer, vocabulary=vocabulary),
        context_length=64,
        trace=(trace := Trace()),
    )
    run(engine, [[control, letter]], SamplingParams(max_tokens=1))
    [request] = trace.requests.values()
    assert request.start is not None
    assert request.start.prompt.startswith(tokenizer.token_text(control))
    assert request.rounds[0].texts == ("b<0xE2>",)
