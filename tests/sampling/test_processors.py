"""What options do to logits, against plain versions written from their definitions, and values of transformers."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import tiny_spm

from foredraft.sampling import ProcessorFactory, Processors, SamplingParams, filtered_probs
from foredraft.text.gguf_vocab import tokenizer_from_gguf

V = 40
TOKENIZER = tiny_tokenizer(end_ids=(7, 9, 274))
FACTORY = ProcessorFactory(TOKENIZER, V)
ENDS = frozenset({7, 9, 274, 30})
INF = float("inf")
F = np.float32
ROW = np.array([((i * 7919) % 101) / 10 - 5 for i in range(24)], dtype=np.float32)


def made(params: SamplingParams, prompt: Sequence[int]) -> Processors:
    processors = FACTORY.make(params, prompt, ENDS)
    assert processors is not None
    return processors


def applied(params: SamplingParams, row: np.ndarray, prompt: Sequence[int], output: Sequence[int] = ()) -> np.ndarray:
    return made(params, prompt).apply(row, [*prompt, *output], (), None)


# --- each against its definition ---------------------------------------------------------------------------------


def plain(params: SamplingParams, row: Sequence[float], prompt: list[int], output: list[int]) -> list[float]:
    """All options but typical_p and the grammar, one token at a time."""
    logits = [F(value) for value in row]
    for token, bias in params.logit_bias.items():
        logits[token] = logits[token] + F(bias)
    for word in params.bad_words:
        for text in (word, " " + word.lstrip()):
            *before, last = TOKENIZER.encode(text, add_special=False)
            if last < V and output[len(output) - len(before) :] == before:
                logits[last] = F(-INF)
    if len(output) < params.min_tokens:
        for token in ENDS & set(range(V)):
            logits[token] = F(-INF)
    for token in set(prompt) | set(output):
        factor = F(params.repetition_penalty)
        logits[token] = logits[token] / factor if logits[token] > 0 else logits[token] * factor
    for token in set(output):
        logits[token] = logits[token] - F(params.frequency_penalty) * F(output.count(token))
        logits[token] = logits[token] - F(params.presence_penalty)
    for token, length in repetitions(params, prompt + output).items():
        logits[token] -= F(params.dry_multiplier * params.dry_base ** (length - params.dry_allowed_length))
    return [float(value) for value in logits]


def repetitions(params: SamplingParams, tokens: list[int]) -> dict[int, int]:
    """For each token that DRY punishes, how long the run is that it would go on with."""
    if not params.dry_multiplier or not params.dry_range:
        return {}
    text = [TOKENIZER.token_bytes(token).decode("latin-1") for token in tokens]
    breakers = params.dry_sequence_breakers
    begin = 0  # behind the last token in which a breaker ends
    for end in range(1, len(tokens) + 1):
        so_far, piece = "".join(text[:end]), text[end - 1]
        for breaker in breakers:
            for place in range(len(so_far)):
                if so_far.startswith(breaker, place) and place + len(breaker) > len(so_far) - len(piece):
                    begin = end
    window = tokens if params.dry_range < 0 else tokens[-params.dry_range :]
    limit = min(len(window), len(tokens) - begin)
    longest: dict[int, int] = {}
    for end in range(1, len(window)):
        length = 0
        while length < min(end, limit) and window[end - 1 - length] == window[-1 - length]:
            length += 1
        token = window[end]
        if length >= params.dry_allowed_length and not any(
            breaker in TOKENIZER.token_bytes(token).decode("latin-1") for breaker in breakers
        ):
            longest[token] = max(longest.get(token, 0), length)
    return longest


tokens = st.integers(0, V - 1)
texts = st.lists(st.sampled_from([32, 33, 34, 35, 36, 3, 3, 3]), max_size=24)
penalties = st.fixed_dictionaries(
    {},
    optional={
        "repetition_penalty": st.sampled_from([0.7, 1.3, 2.0]),
        "frequency_penalty": st.sampled_from([-1.5, 0.1, 2.0]),
        "presence_penalty": st.sampled_from([-2.0, 0.3]),
        "logit_bias": st.dictionaries(tokens, st.sampled_from([-100.0, 3.5, 100.0]), max_size=3),
        "bad_words": st.lists(st.sampled_from(["!", '"#', "###", "##$", " #"]), max_size=3),
        "min_tokens": st.integers(0, 6),
    },
)
dry = st.fixed_dictionaries(
    {"dry_multiplier": st.sampled_from([0.0, 0.8, 3.0])},
    optional={
        "dry_base": st.sampled_from([1.0, 1.75]),
        "dry_allowed_length": st.integers(1, 4),
        "dry_sequence_breakers": st.lists(st.sampled_from(["\n", '"', "#$", "$#\x03"]), max_size=2),
        "dry_range": st.sampled_from([-1, 0, 1, 5, 9, 100]),
    },
)


@st.composite
def options(draw: st.DrawFn) -> SamplingParams:
    chosen = draw(penalties)
    repeats = draw(dry)
    if repeats["dry_multiplier"]:
        chosen |= repeats
    if draw(st.booleans()):
        chosen |= {"typical_p": draw(st.sampled_from([0.2, 0.9])), "temperature": draw(st.sampled_from([0.5, 2.0]))}
    return SamplingParams(**chosen)


@settings(max_examples=300)
@given(params=options(), prompt=st.lists(tokens, min_size=1, max_size=9), output=texts, seed=st.integers(0, 99))
def test_every_option_does_what_its_definition_says(
    params: SamplingParams, prompt: list[int], output: list[int], seed: int
) -> None:
    """Kind: an option is accepted and does nothing, or looks at the prompt where it must not, or the reverse."""
    row = (3 * np.random.default_rng(seed).standard_normal(V)).astype(np.float32)
    processors = FACTORY.make(params, prompt, ENDS)
    found = row if processors is None else processors.apply(row, prompt + output, (), None)
    expected = np.array(plain(params, row.tolist(), prompt, output), dtype=np.float32)
    if params.typical_p < 1:
        kept = typical_by_definition(expected, params.temperature, params.typical_p)
        expected = np.array([value if i in kept else -INF for i, value in enumerate(expected)], dtype=np.float32)
    np.testing.assert_array_equal(found, expected)


def test_a_repetition_counts_as_far_as_it_lies_in_the_range() -> None:
    """Kind: a run that began before the range is as long as it ever was."""
    params = SamplingParams(dry_multiplier=1.0, dry_base=2.0, dry_allowed_length=1, dry_range=5)
    found = applied(params, np.zeros(V, np.float32), [32] * 6, [32] * 6)
    assert found[32] == -(2.0**3)  # four of the five before the last


def typical_by_definition(row: np.ndarray, temperature: float, mass: float) -> set[int]:
    z = [float(value) / temperature for value in row]
    most = max(z)
    total = math.fsum(math.exp(value - most) for value in z)
    surprise = [math.log(total) - (value - most) for value in z]
    probs = [math.exp(-value) for value in surprise]
    entropy = math.fsum(p * s for p, s in zip(probs, surprise, strict=True) if p)
    kept: set[int] = set()
    for token in sorted(range(len(z)), key=lambda i: round(abs(surprise[i] - entropy), 9) if probs[i] else INF):
        kept.add(token)
        if math.fsum(probs[i] for i in kept) >= mass - 1e-12:
            return kept
    return kept


def test_values_of_transformers() -> None:
    """Generated with transformers 5.24: RepetitionPenaltyLogitsProcessor, TypicalLogitsWarper, NoBadWords..."""
    found = applied(SamplingParams(repetition_penalty=1.3), ROW, [3, 5, 5, 7, 1, 3])
    changed = {1: -1.1699999570846558, 3: -3.6399998664855957, 5: -6.109999656677246, 7: 2.692307710647583}
    assert {i: float(found[i]) for i in changed} == changed
    assert [i for i in range(24) if found[i] != ROW[i]] == sorted(changed)
    for temperature, mass, kept in [
        (1.0, 0.5, [7, 12, 17]),
        (2.0, 0.3, [2, 7, 14, 19]),
        (0.5, 0.9, [7, 12, 17, 22]),
        (3.0, 0.95, [1, 2, 4, 6, 7, 8, 9, 11, 12, 13, 14, 16, 17, 18, 19, 21, 22, 23]),
        (1.0, 0.05, [12]),
    ]:
        found = applied(SamplingParams(typical_p=mass, temperature=temperature), ROW, [1])
        assert np.flatnonzero(found > -INF).tolist() == kept


def test_a_long_row_is_as_typical_as_a_short_one() -> None:
    """Kind: where only a part is sorted, tokens are lost, or equal ones come in another order."""
    random = np.random.default_rng(0)
    for spread in (0.0, 0.1, 3.0):
        row = (spread * random.standard_normal(20_000)).astype(np.float32).round(2)
        for mass in (1e-6, 0.3, 0.999):
            params = SamplingParams(typical_p=mass, temperature=1.0)
            found = applied(params, row, [1])
            probs = filtered_probs(row, SamplingParams(temperature=1.0))
            surprise = -np.log(probs)
            order = np.argsort(np.abs(surprise - (probs * surprise).sum()).round(9), kind="stable")
            num_kept = int(np.searchsorted(np.cumsum(probs[order]), mass - 1e-12)) + 1
            assert abs(int((found > -INF).sum()) - num_kept) <= 1  # sums of 20000 numbers may differ in a last bit
            kept = set(np.flatnonzero(found > -INF).tolist())
            assert len(kept ^ set(order[:num_kept].tolist())) <= 1


# --- along a path -------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(params=options(), prompt=st.lists(tokens, min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
def test_detours_leave_no_trace(params: SamplingParams, prompt: list[int], seed: int) -> None:
    """Kind: what drafts held, or how many there were, changes what an option does to the text."""
    processors = FACTORY.make(params, prompt, ENDS)
    if processors is None:
        return
    random = np.random.default_rng(seed)
    committed = list(prompt)
    for _ in range(12):
        committed += random.choice([33, 34, 35, 3], size=random.integers(0, 4)).tolist()
        path = random.choice([33, 34, 35, 3], size=random.integers(0, 5)).tolist()
        row = random.standard_normal(V).astype(np.float32)
        before = row.copy()
        found = processors.apply(row, committed, path, None)
        np.testing.assert_array_equal(row, before)  # the logits of a round belong to others as well
        fresh = FACTORY.make(params, prompt, ENDS)
        assert fresh is not None
        np.testing.assert_array_equal(found, fresh.apply(row, committed + path, (), None))


def test_many_steps_back() -> None:
    """Kind: going back further than is remembered."""
    params = SamplingParams(dry_multiplier=1.0)
    processors = made(params, [33, 34])
    row = np.zeros(V, dtype=np.float32)
    path = [33, 34, 35] * 100
    processors.apply(row, [33, 34], path, None)
    found = processors.apply(row, [33, 34], [33, 34, 35, 33], None)
    np.testing.assert_array_equal(found, applied(params, row, [33, 34], [33, 34, 35, 33]))


@settings(max_examples=80)
@given(params=options(), output=texts, seed=st.integers(0, 99))
def test_a_drafter_that_knows_some_tokens_sees_the_same(params: SamplingParams, output: list[int], seed: int) -> None:
    """Kind: with a shortened vocabulary, penalties and bans hit other tokens."""
    processors = FACTORY.make(params, [1, 2], ENDS)
    if processors is None or params.typical_p < 1:  # which depends on the whole distribution
        return
    random = np.random.default_rng(seed)
    ids = np.sort(random.choice(V, size=20, replace=False)).astype(np.int32)
    row = random.standard_normal(V).astype(np.float32)
    whole = processors.apply(row, [1, 2, *output], (), None)
    np.testing.assert_array_equal(processors.apply(row[ids], [1, 2, *output], (), ids), whole[ids])


# --- edges --------------------------------------------------------------------------------------------------------


def test_no_option_no_processors() -> None:
    for params in (
        SamplingParams(),
        SamplingParams(temperature=1.0, top_k=3, top_p=0.5, min_p=0.1, seed=3, stop="x", logprobs=3),
        SamplingParams(typical_p=0.3),  # at temperature 0 the most likely token stays
        SamplingParams(dry_multiplier=1.0, dry_range=0),
    ):
        assert FACTORY.make(params, [1], ENDS) is None


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1e-45},
        {"repetition_penalty": 1e-60},
        {"repetition_penalty": 1e38},
        {"dry_multiplier": 1e300, "dry_base": 1e300},
        {"frequency_penalty": -2.0, "presence_penalty": -2.0},
        {"logit_bias": {3: 100.0}},
    ],
)
def test_extreme_values_make_no_infinity(options: dict) -> None:
    """Kind: a penalty overflows, and NaN or +inf reaches the choice."""
    row = np.full(V, 3e38, dtype=np.float32)
    row[3], row[4] = -3e38, 0
    found = applied(SamplingParams(**options), row, [3, 4, 3, 4, 3], [4, 3, 4, 3])
    assert not np.isnan(found).any()
    assert found.max() < INF


def test_banned_stays_banned() -> None:
    """Kind: a penalty of a sign that raises logits lifts a ban."""
    params = SamplingParams(
        bad_words=("!",), repetition_penalty=0.5, frequency_penalty=-2.0, presence_penalty=-2.0, logit_bias={33: 100}
    )
    assert applied(params, np.zeros(V, dtype=np.float32), [33], [33])[33] == -INF


def test_bad_words_of_a_vocabulary_that_puts_a_space_before_a_text() -> None:
    """Kind: a word is excluded at the beginning of a word only, or with two spaces before it."""
    tokenizer = tokenizer_from_gguf(tiny_spm())
    factory = ProcessorFactory(tokenizer, tokenizer.vocab_size)
    texts = tokenizer.vocabulary.tokens

    def banned(output: list[str], word: str) -> set[str]:
        processors = factory.make(SamplingParams(bad_words=word), [1], frozenset())
        assert processors is not None
        row = np.zeros(tokenizer.vocab_size, dtype=np.float32)
        found = processors.apply(row, [1, *(texts.index(text) for text in output)], (), None)
        return {texts[token] for token in np.flatnonzero(found == -INF)}

    assert banned([], "ab") == {"ab", "▁ab"}
    assert banned(["▁ab"], "abd") == {"d"}
    assert banned(["ab"], "abd") == {"d"}
    assert banned(["a"], "abd") == set()
    assert banned([], " abc") == {"▁abc"}
