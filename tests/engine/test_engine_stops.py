"""Stop strings and stop tokens at every offset of a draft, with and without what ended the text."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import completion, make_engine, output, result, run, table_decoder, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.engine import Output
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel

V = 128  # the characters of ASCII: every token is one
MODEL = TableModel(2, V, seed=21)
TOKENIZER = tiny_tokenizer(end_ids=())
PROMPT = [60, 61, 62]
SAID = MODEL.generate(PROMPT, SamplingParams(), 60)
TEXT = TOKENIZER.decode(SAID, at_start=False)


def answered(params: SamplingParams, drafter: object, budget: int) -> Output:
    decoder, _ = table_decoder(MODEL)
    [one] = run(make_engine(decoder, drafter, num_draft_tokens=budget, tokenizer=TOKENIZER), [PROMPT], params)
    # What came after the end leaks nowhere: neither into the text nor into what the next turn finds in the cache.
    assert one.sequence.tokens == [*PROMPT, *output(one)]
    return one


def by_definition(params: SamplingParams) -> tuple[list[int], str, str]:
    """Tokens, text and reason, read off the whole output; every token is one character."""
    assert params.max_tokens is not None
    for num, token in enumerate(SAID[: params.max_tokens], start=1):
        ends_here = token in params.stop_token_ids
        shown = num if not ends_here or params.include_stop_str_in_output else num - 1
        stops = [stop for stop in params.stop if TEXT[:shown].endswith(stop)]
        if stops:
            longest = max(map(len, stops))
            return SAID[:num], TEXT[: shown if params.include_stop_str_in_output else shown - longest], "stop"
        if ends_here:
            return SAID[:num], TEXT[:shown], "stop"
    return SAID[: params.max_tokens], TEXT[: params.max_tokens], "length"


@st.composite
def stopping(draw: st.DrawFn) -> SamplingParams:
    stops = []
    for _ in range(draw(st.integers(0, 3))):
        begin = draw(st.integers(0, len(TEXT) - 1))
        stops.append(TEXT[begin : begin + draw(st.integers(1, 6))])
    return SamplingParams(
        max_tokens=draw(st.integers(1, 40)),
        stop=tuple(stops),
        stop_token_ids=tuple(draw(st.lists(st.sampled_from(SAID), max_size=2))),
        include_stop_str_in_output=draw(st.booleans()),
    )


@settings(max_examples=120)
@given(params=stopping(), budget=st.integers(1, 9), seed=st.integers(0, 99))
def test_ends_at_all_offsets(params: SamplingParams, budget: int, seed: int) -> None:
    """Kind: a stop string or stop token is missed, found late, or found in what lies behind the end, depending on where
    rounds cut the text; only the tail of a run is searched; the text goes on behind the stop."""
    plain = answered(params, None, 1)
    random = np.random.default_rng(seed)
    ragged = [SAID[:0]]
    place = 0
    while place < 60:
        ragged.append(SAID[place + 1 : place + 1 + int(random.integers(0, 9))])
        place += len(ragged[-1]) + 1
    for drafter in (OracleDrafter([*SAID, *SAID]), ScriptedDrafter(ragged[1:]), DistDrafter(MODEL, (2, 1, 1))):
        assert result(answered(params, drafter, budget)) == result(plain)
    done = completion(plain)
    assert (list(done.token_ids), done.text, done.finish_reason) == by_definition(params)


@settings(max_examples=40)
@given(begin=st.integers(0, 40), length=st.integers(1, 4), budget=st.integers(1, 9), include=st.booleans())
def test_stops_of_characters_that_take_several_tokens(begin: int, length: int, budget: int, include: bool) -> None:
    """Kind: a stop string is missed where its characters are spread over tokens."""
    said = TOKENIZER.encode("naïve 🌍 schön, ≤ 5 € 🌍🌍 größer — ende. naïve 🌍 schön", add_special=False)
    text = TOKENIZER.decode(said, at_start=False)
    stop = text[begin : begin + length]
    params = SamplingParams(max_tokens=len(said), stop=stop, include_stop_str_in_output=include)
    results = []
    for drafter in (None, OracleDrafter(said)):
        decoder, _ = table_decoder(Fixed(PROMPT, said))
        engine = make_engine(decoder, drafter, num_draft_tokens=budget, tokenizer=TOKENIZER)
        [one] = run(engine, [PROMPT], params)
        results.append(result(one))
    assert results[0] == results[1]
    assert results[0][1:3] == (text[: text.index(stop) + (length if include else 0)], "stop")


class Fixed(TableModel):
    """Says one text after one prompt."""

    def __init__(self, prompt: list[int], said: list[int]) -> None:
        super().__init__(1, 275)
        self._prompt, self._said = prompt, said

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        row = np.zeros(275, dtype=np.float32)
        place = len(tokens) - len(self._prompt)
        row[self._said[place] if 0 <= place < len(self._said) else 0] = 9
        return row


@pytest.mark.parametrize("include", [False, True])
def test_what_ended_the_text_stays_where_it_is_wanted(include: bool) -> None:
    """Kind: the stop string is cut although it was to be kept, or the reverse, or more than it is shown."""
    ascii_model = TableModel(2, 120, seed=2)
    said = ascii_model.generate(PROMPT, SamplingParams(), 30)
    text = TOKENIZER.decode(said, at_start=False)
    for begin in range(3, 12):
        for length in (1, 2, 5):
            stop = text[begin : begin + length]
            expected = text[: text.index(stop) + (length if include else 0)]
            params = SamplingParams(max_tokens=30, stop=stop, include_stop_str_in_output=include)
            for drafter in (None, OracleDrafter(said)):
                decoder, _ = table_decoder(ascii_model)
                engine = make_engine(decoder, drafter, num_draft_tokens=7, tokenizer=TOKENIZER)
                [one] = run(engine, [PROMPT], params)
                done = completion(one)
                assert (done.text, done.finish_reason) == (expected, "stop")
                pieces = one.take_new(0).text
                assert pieces == expected
    token = said[5]
    [one] = run(
        make_engine(table_decoder(ascii_model)[0], OracleDrafter(said), tokenizer=TOKENIZER),
        [PROMPT],
        SamplingParams(max_tokens=30, stop_token_ids=(token,), include_stop_str_in_output=include),
    )
    place = said.index(token)
    assert output(one) == said[: place + 1]
    shown = said[: place + 1] if include else said[:place]
    assert completion(one).text == TOKENIZER.decode(shown, at_start=False)


def test_the_next_turn_finds_the_whole_completion_in_the_cache() -> None:
    """Kind: tokens accepted behind the end stay in the cache's account, and the next turn of a conversation, which goes
    on from the completion, finds less than was computed."""
    for place in range(20, 30):
        params = SamplingParams(max_tokens=60, stop_token_ids=(SAID[place],))
        num = SAID.index(SAID[place]) + 1
        decoder, _ = table_decoder(MODEL)
        engine = make_engine(decoder, OracleDrafter([*SAID, *SAID]), num_draft_tokens=8, tokenizer=TOKENIZER)
        [first] = run(engine, [PROMPT], params)
        assert output(first) == SAID[:num]
        [after] = run(engine, [[*PROMPT, *output(first), 65, 66]], SamplingParams(max_tokens=2))
        # All of the completion but its last token, which was never run, in whole blocks of 16.
        assert after.sequence.num_cached_tokens == (len(PROMPT) + num - 1) // 16 * 16
        assert output(after) == MODEL.generate([*PROMPT, *output(first), 65, 66], SamplingParams(), 2)
