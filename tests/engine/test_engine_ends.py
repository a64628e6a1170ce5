"""Where a sequence ends, and what is counted on the way."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers.engines import completion, make_engine, output, result, run, submit, table_decoder, tiny_tokenizer

from foredraft.drafters.lookup import LookupDrafter
from foredraft.engine import Choice, Engine, Output
from foredraft.planner import FixedPlanner
from foredraft.planner.base import Plan
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch
from foredraft.target import ModelTarget
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.text import Detokenizer

V = 40
MODEL = TableModel(2, V, seed=11)
PROMPT = [1, 2, 3]
SAID = MODEL.generate(PROMPT, SamplingParams(), 60)


def answered(
    script: Sequence[int] | None, *, end_ids: tuple[int, ...] = (), budget: int = 8, **options: object
) -> Output:
    """One greedy completion; `script` is what an oracle goes on proposing, ends or no ends."""
    decoder, _ = table_decoder(MODEL)
    drafter = OracleDrafter(script) if script is not None else None
    engine = make_engine(decoder, drafter, num_draft_tokens=budget, tokenizer=tiny_tokenizer(end_ids=end_ids))
    [one] = run(engine, [PROMPT], SamplingParams(**options))
    assert decoder.cache.pool.num_used == 0
    return one


def first_place(token: int) -> int:
    return SAID.index(token)


@pytest.mark.parametrize("place", range(9))
def test_an_end_token_ends_at_every_offset_of_a_draft(place: int) -> None:
    """Kind: an end token accepted in the middle of a draft does not end the text, or what follows it leaks."""
    token = SAID[place]
    place = first_place(token)
    for budget in range(1, 9):
        one = answered(SAID, end_ids=(token,), budget=budget, max_tokens=30)
        done = completion(one)
        assert (list(done.token_ids), done.finish_reason) == (SAID[: place + 1], "stop")
        assert done.usage.completion_tokens == place + 1
        assert one.sequence.tokens == [*PROMPT, *SAID[: place + 1]]
        assert done.speculation.num_accepted_tokens <= done.usage.completion_tokens
        ignored = answered(SAID, end_ids=(token,), budget=budget, max_tokens=30, ignore_eos=True)
        assert (output(ignored), ignored.sequence.finish_reason) == (SAID[:30], "length")
        given = answered(SAID, budget=budget, max_tokens=30, ignore_eos=True, stop_token_ids=(token,))
        assert (output(given), given.sequence.finish_reason) == (SAID[: place + 1], "stop")


@pytest.mark.parametrize("max_tokens", range(1, 12))
def test_a_limit_inside_an_accepted_run(max_tokens: int) -> None:
    """Kind: more tokens than asked for, or the wrong reason, when a run crosses limit and end token together."""
    token = next(t for place, t in enumerate(SAID) if place >= 4 and first_place(t) == place)
    place = first_place(token)
    for script in (None, SAID):
        one = answered(script, end_ids=(token,), max_tokens=max_tokens)
        expected = min(max_tokens, place + 1)
        assert output(one) == SAID[:expected]
        assert one.sequence.finish_reason == ("stop" if max_tokens > place else "length")


def test_text_runs_on_where_nothing_ends_it() -> None:
    """Kind: no end token set is an error; no limit set is an error."""
    decoder, _ = table_decoder(MODEL, length=50)
    for drafter in (None, OracleDrafter(SAID), LookupDrafter()):
        engine = make_engine(decoder, drafter, tokenizer=tiny_tokenizer(end_ids=()))
        [one] = run(engine, [PROMPT], SamplingParams(max_tokens=None))
        assert (output(one), one.sequence.finish_reason) == (SAID[:47], "length")


@pytest.mark.parametrize("room", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("max_tokens", [None, 4, 100])
def test_a_prompt_that_nearly_fills_the_context(room: int, max_tokens: int | None) -> None:
    """Kind: a draft reaches past the end of the context."""
    prompt = [index % V for index in range(64 - room)]
    decoder, _ = table_decoder(MODEL, length=64)
    engine = make_engine(decoder, DistDrafter(MODEL, (1,) * 8), num_draft_tokens=8)
    [one] = run(engine, [prompt], SamplingParams(max_tokens=max_tokens, ignore_eos=True))
    expected = min(room, max_tokens or 64)
    assert output(one) == MODEL.generate(prompt, SamplingParams(), expected)
    assert one.sequence.finish_reason == "length"


def text_of(tokens: Sequence[int]) -> str:
    reader = Detokenizer(tiny_tokenizer(), at_start=False)
    return "".join(reader.push(token) for token in tokens) + reader.finish()


@pytest.mark.parametrize("begin", range(12))
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stop_string_over_the_borders_of_rounds(begin: int, length: int) -> None:
    """Kind: a stop string is missed, or found late, when rounds cut it at any place."""
    text = text_of(SAID)
    stop = text[begin : begin + length]
    cut = text.index(stop)
    for budget in range(1, 6):
        for script in (None, SAID):
            one = answered(script, budget=budget, max_tokens=60, stop=(stop, "never said"))
            done = completion(one)
            assert (done.text, done.finish_reason) == (text[:cut], "stop")
            assert list(done.token_ids) == SAID[: cut + length]  # one character a token here


def test_a_stop_string_at_the_last_token_is_a_stop() -> None:
    text = text_of(SAID)
    one = answered(SAID, max_tokens=20, stop=(text[18:20],))
    place = text.index(text[18:20])
    assert completion(one).text == text[:place]
    assert one.sequence.finish_reason == "stop"
    # Held back as the beginning of a stop string, then shown since the limit ends the text.
    one = answered(SAID, max_tokens=20, stop=(text[18:20] + text[20] + "never",))
    assert completion(one).text == text[:20]
    assert one.sequence.finish_reason == "length"


def test_pieces_are_the_text() -> None:
    """Kind: streaming drops the tail that was held back, or all but the last token of a round."""
    text = text_of(SAID)
    for stop in ((), (text[9:12],), (text[29] + "never",)):
        decoder, _ = table_decoder(MODEL)
        engine = make_engine(decoder, OracleDrafter(SAID), num_draft_tokens=3)
        for max_tokens in (1, 2, 7, 30):
            one = submit(engine, PROMPT, SamplingParams(max_tokens=max_tokens, stop=stop, ignore_eos=True))
            chunks = []
            while not one.sequence.status.is_over:
                engine.step()
                chunks.append(one.take_new(0))
            assert "".join(chunk.text for chunk in chunks) == completion(one).text
            assert [token for chunk in chunks for token in chunk.token_ids] == output(one)
            for chunk in chunks:
                assert "".join(chunk.pieces) == chunk.text
                assert len(chunk.pieces) == len(chunk.sources) == len(chunk.token_ids)
            drafted = [source for chunk in chunks for source in chunk.sources]
            counts = completion(one).speculation
            assert drafted.count("oracle") == sum(chunk.num_accepted_tokens for chunk in chunks)
            assert counts.num_draft_tokens == sum(chunk.num_draft_tokens for chunk in chunks)


# --- what is counted ------------------------------------------------------------------------------------------------


def test_counts_of_right_wrong_and_absent_drafts() -> None:
    """Kind: acceptance above 1, NaN where nothing was drafted, the bonus counted or not."""
    right = completion(answered(SAID, max_tokens=45, ignore_eos=True)).speculation
    assert (right.num_rounds, right.num_draft_tokens, right.num_accepted_tokens) == (5, 40, 40)
    assert (right.acceptance_rate, right.mean_acceptance_length) == (1.0, 9.0)
    assert right.accepted_per_position == (5,) * 8
    decoder, _ = table_decoder(MODEL)
    [one] = run(make_engine(decoder, WrongDrafter(MODEL)), [PROMPT], SamplingParams(max_tokens=20, ignore_eos=True))
    wrong = completion(one).speculation
    assert (wrong.acceptance_rate, wrong.mean_acceptance_length, wrong.num_rounds) == (0.0, 1.0, 20)
    assert set(wrong.accepted_per_position) == {0}
    absent = completion(answered(None, max_tokens=20, ignore_eos=True)).speculation
    assert (absent.acceptance_rate, absent.mean_acceptance_length) == (None, 1.0)
    assert absent.accepted_per_position == ()


@pytest.mark.parametrize("options", [{}, {"stop": (text_of(SAID)[7:9],)}, {"stop_token_ids": (SAID[13],)}])
@pytest.mark.parametrize("budget", range(1, 9))
def test_counts_hang_together(options: dict[str, object], budget: int) -> None:
    one = answered(SAID, budget=budget, max_tokens=37, ignore_eos=True, **options)
    done = completion(one)
    s = done.speculation
    assert sum(s.accepted_per_position) == s.num_accepted_tokens <= s.num_draft_tokens
    assert list(s.accepted_per_position) == sorted(s.accepted_per_position, reverse=True)
    assert s.acceptance_rate is not None
    assert 0 <= s.acceptance_rate <= 1
    assert s.mean_acceptance_length == len(done.token_ids) / s.num_rounds
    # Every round emits one token more than were accepted, unless the text ended within the draft.
    assert len(done.token_ids) - s.num_accepted_tokens in (s.num_rounds, s.num_rounds - 1)


def test_the_json_object() -> None:
    done = completion(answered([9, 9, 9], max_tokens=6, ignore_eos=True), load_s=1.5)
    found = json.loads(json.dumps(done.to_json_dict(), allow_nan=False))
    assert list(found) == ["text", "token_ids", "finish_reason", "usage", "timings", "speculation"]
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    times = {"load_s", "prefill_s", "decode_s", "draft_s", "verify_s", "accept_s"}
    assert set(found["timings"]) == times | {"prompt_tokens_per_s", "tokens_per_s"}
    assert set(found["speculation"]) == {
        "methods",
        "lossless",
        "num_rounds",
        "num_draft_tokens",
        "num_accepted_tokens",
        "acceptance_rate",
        "mean_acceptance_length",
        "accepted_per_position",
        "reason",
        "acceptance",
        "equality",
        "cost",
        "by_method",
        "expected_tokens",
        "expected_s",
        "speedup",
    }
    assert found["token_ids"] == SAID[:6]
    assert found["speculation"]["lossless"] is True
    assert found["timings"]["load_s"] == 1.5


class Knowing(FixedPlanner):
    """Knows what a plain round takes, of every second round."""

    num_rounds = 0

    def plan(self, batch: Batch) -> Plan:
        self.num_rounds += bool(batch.running)
        return replace(super().plan(batch), plain_s=0.5 if self.num_rounds % 2 else None)


def test_the_speed_up_is_over_plain_decoding_of_the_same_tokens() -> None:
    """Kind: rounds of which nothing is known count for one side and not for the other."""
    decoder, _ = table_decoder(MODEL)
    planner = Knowing(OracleDrafter(SAID), 4)
    engine = Engine(ModelTarget(decoder, V), planner, tiny_tokenizer(end_ids=()), context_length=256)
    [one] = run(engine, [PROMPT], SamplingParams(max_tokens=22))
    assert one.counts.num_rounds == 5  # of 5, 5, 5, 5 and 2 tokens
    found = completion(one).speculation.speedup
    assert one.counts.plain_s == 12 * 0.5
    assert 0 < one.counts.round_s < one.counts.draft_s + one.counts.verify_s + one.counts.accept_s
    assert found == one.counts.plain_s / one.counts.round_s
    assert completion(answered(SAID, max_tokens=9)).speculation.speedup is None


def test_impossible_completions_can_be_written_as_json() -> None:
    """Kind: a probability of 0 is written as -Infinity, which is no JSON."""
    choice = Choice(index=0, text="", token_ids=(), finish_reason="stop", cumulative_logprob=-math.inf)
    assert json.loads(json.dumps(choice.to_json_dict(), allow_nan=False))["cumulative_logprob"] == -9999.0


def test_rates_are_about_what_was_computed() -> None:
    """Kind: absurd speeds because tokens are counted that the cache supplied."""
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder)
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    prompt = list(range(33))
    first, again = (completion(run(engine, [prompt], params)[0]).timings for _ in range(2))
    assert (first.num_prompt_tokens, again.num_prompt_tokens) == (32, 0)
    assert first.prompt_tokens_per_s is not None
    assert again.prompt_tokens_per_s is None
    one = completion(run(engine, [[5]], params)[0]).timings
    assert one.prompt_tokens_per_s is None
    assert one.tokens_per_s is not None
    assert one.tokens_per_s > 0


def test_a_completion_keeps_its_first_space() -> None:
    """Kind: a vocabulary that puts a space before a text takes it from the completion, which goes on from a prompt."""
    tokenizer = replace(tiny_tokenizer(end_ids=()), space_prefix=True)
    word = next(token for token in range(tokenizer.vocab_size) if tokenizer.token_bytes(token) == b" a")
    decoder, _ = table_decoder(TableModel(1, tokenizer.vocab_size))
    params = SamplingParams(max_tokens=2, logit_bias={word: 100})
    [one] = run(make_engine(decoder, tokenizer=tokenizer), [PROMPT], params)
    assert completion(one).text == " a a"
    [one] = run(make_engine(decoder, tokenizer=tokenizer), [[word, word]], replace(params, echo=True))
    assert completion(one).text == "a a a a"  # a prompt, however, begins a text


# --- seeds ----------------------------------------------------------------------------------------------------------


def test_seeds() -> None:
    """Kind: unseeded sequences share one stream of numbers, or a seeded one depends on what ran before it."""
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, DistDrafter(MODEL))
    free = SamplingParams(max_tokens=20, temperature=1.0, ignore_eos=True)
    seeded = SamplingParams(max_tokens=20, temperature=1.0, seed=0, ignore_eos=True)
    [before] = run(engine, [PROMPT], seeded)
    outputs = {tuple(output(run(engine, [PROMPT], free)[0])) for _ in range(50)}
    assert len(outputs) == 50
    together = {tuple(output(one)) for one in run(engine, [PROMPT] * 50, free)}
    assert len(together) == 50
    assert result(run(engine, [PROMPT], seeded)[0]) == result(before)
    assert output(before) == MODEL.generate(PROMPT, seeded, 20)


def test_ids_that_do_not_exist_never_reach_the_target() -> None:
    """Kind: a drafter proposes -1, the size of the vocabulary or more, and the embedding is read there."""
    decoder, _ = table_decoder(MODEL)  # its table raises for an id outside the vocabulary
    for chain in ([-1], [V], [V + 5], [SAID[0], -1, SAID[2]], [SAID[0], SAID[1], V]):
        engine = make_engine(decoder, ScriptedDrafter([chain] * 3))
        assert output(run(engine, [PROMPT], SamplingParams(max_tokens=9, ignore_eos=True))[0]) == SAID[:9]


@pytest.mark.parametrize("budget", [1, 4])
def test_the_parts_make_the_whole(budget: int) -> None:
    """Kind: drafting is not shown as a cost, or tokens are counted for nobody."""
    one = answered(SAID, budget=budget, max_tokens=30, ignore_eos=True)
    done = completion(one).to_json_dict()
    timings, speculation = done["timings"], done["speculation"]
    parts = sum(timings[name] for name in ("draft_s", "verify_s", "accept_s"))
    assert 0.5 * timings["decode_s"] < parts <= timings["decode_s"]
    assert speculation["by_method"] == {
        "oracle": {key: speculation[key] for key in ("num_draft_tokens", "num_accepted_tokens")}
    }
    assert speculation["expected_tokens"] is None
