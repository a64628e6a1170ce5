"""Texts with a form: valid whatever is drafted, ended when complete, and the same as without drafts."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import (
    completion,
    make_engine,
    output,
    result,
    run,
    run_to_the_end,
    submit,
    table_decoder,
    tiny_tokenizer,
)

from foredraft.drafters import with_grammar
from foredraft.drafters.base import Drafter
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.engine import Output
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.text.vocabulary import TokenKind, Vocabulary

V = 275
TOKENIZER = tiny_tokenizer()
END = 272  # <|endoftext|>
MODEL = TableModel(1, V, seed=4, scale=2.0)
PROMPT = TOKENIZER.encode("a text in some form: ")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["Ann", "Bob"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 999},
        "ok": {"type": "boolean"},
    },
    "required": ["name", "age", "ok"],
    "additionalProperties": False,
}
FORMS: list[dict] = [
    {"json_schema": SCHEMA},
    {"json_schema": json.dumps({"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4})},
    {"regex": "(the|then|and) [a-f]{3,9}!"},
    {"grammar": 'root ::= item ("; " item)* "."\nitem ::= "the" | "end" [0-9]'},
    {"grammar": 'start: "(" start? ")"'},
]


def holds(options: dict, text: str) -> bool:
    if "json_schema" in options:
        value = json.loads(text)
        return isinstance(value, list) or list(value) == ["name", "age", "ok"]
    if "regex" in options:
        return re.fullmatch(options["regex"], text) is not None
    if options["grammar"].startswith("root"):
        return re.fullmatch(r"(the|end\d)(; (the|end\d))*\.", text) is not None
    return re.fullmatch(r"\(+\)+", text) is not None and text.count("(") == text.count(")")


def drafter_of(kind: str, said: Sequence[int]) -> Drafter:
    random = np.random.default_rng(5)
    script = [random.integers(-1, V + 3, size=random.integers(6)).tolist() for _ in range(90)]
    beyond = [*said, *TOKENIZER.encode('"}, and more {"')]
    return {
        "oracle": lambda: OracleDrafter(beyond),
        "wrong": lambda: WrongDrafter(MODEL),
        "scripted": lambda: ScriptedDrafter(script, obey_budget=False),
        "self": lambda: DistDrafter(MODEL, (1,) * 6),
        "wide": lambda: DistDrafter(MODEL, (3, 2, 1)),
        "forced": lambda: FallbackDrafter(with_grammar([LookupDrafter()])),
    }[kind]()


def answered(params: SamplingParams, drafter: Drafter | None = None, *, budget: int = 6) -> Output:
    decoder, _ = table_decoder(MODEL)
    [one] = run(make_engine(decoder, drafter, num_draft_tokens=budget), [PROMPT], params)
    assert decoder.cache.pool.num_used == 0
    return one


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("options", FORMS, ids=lambda options: next(iter(options)))
def test_the_form_holds_whatever_is_drafted(options: dict, temperature: float) -> None:
    """Kind: a draft that breaks the grammar breaks the text or the engine; a complete text goes on; masks and rows are
    out of step with accepted drafts."""
    params = SamplingParams(max_tokens=200, temperature=temperature, seed=6, logprobs=1, **options)
    expected = answered(params)
    done = completion(expected)
    if done.finish_reason == "stop":
        assert holds(options, done.text)
    accepted = dict.fromkeys(("oracle", "wrong", "scripted", "self", "wide", "forced"), 0)
    for kind in accepted:
        for budget in (1, 8):
            found = answered(params, drafter_of(kind, output(expected)), budget=budget)
            assert result(found) == result(expected), (kind, budget)
            accepted[kind] += found.counts.num_accepted_tokens
    assert accepted["oracle"] > 0
    assert accepted["self"] > 0


def test_every_seed_gives_a_valid_object() -> None:
    params = [SamplingParams(max_tokens=200, temperature=1.0, seed=seed, json_schema=SCHEMA) for seed in range(30)]
    random = np.random.default_rng(1)
    script = {i: [random.integers(V, size=random.integers(6)).tolist() for _ in range(60)] for i in range(0, 30, 2)}
    decoder, _ = table_decoder(MODEL)
    several = run(make_engine(decoder, FallbackDrafter(with_grammar([ScriptedDrafter(script)]))), [PROMPT] * 30, params)
    texts = set()
    for one, own in zip(several, params, strict=True):
        done = completion(one)
        assert done.finish_reason == "stop"
        assert holds({"json_schema": SCHEMA}, done.text)
        assert result(one) == result(answered(own))
        texts.add(done.text)
    assert len(texts) > 5


def test_what_is_forced_is_drafted() -> None:
    """Kind: the grammar leaves no choice, and yet each token takes a pass."""
    params = SamplingParams(max_tokens=200, json_schema=SCHEMA)
    one = answered(params, FallbackDrafter(with_grammar([])), budget=16)
    done = completion(one, methods=["grammar"])
    assert done.speculation.num_accepted_tokens > 0
    assert done.speculation.num_rounds < one.sequence.num_output_tokens
    assert done.speculation.methods == ("grammar",)
    free = completion(answered(SamplingParams(max_tokens=5)), methods=["grammar", "lookup"])
    assert free.speculation.methods == ("lookup",)


def test_nothing_follows_a_complete_text() -> None:
    """Kind: the end of the grammar is missed where it lies in a draft."""
    script = TOKENIZER.encode("and abcd!") + TOKENIZER.encode(" and abc! more")
    params = SamplingParams(max_tokens=60, regex="and abcd!", logprobs=0)
    for budget in range(1, 17):
        one = answered(params, OracleDrafter(script), budget=budget)
        done = completion(one)
        assert (done.text, done.finish_reason) == ("and abcd!", "stop")
        assert done.logprobs is not None
        assert len(done.logprobs) == len(done.token_ids)
        assert result(one) == result(answered(params))


def test_where_the_text_may_end_the_model_ends_it() -> None:
    """Kind: an end token is masked where the grammar allows the end, or allowed where it does not."""
    plain = SamplingParams(max_tokens=80, regex="(a|b)*", logit_bias={END: 100})
    assert completion(answered(plain)).token_ids == (END,)
    longer = SamplingParams(max_tokens=80, regex="(a|b){5}(a|b)*", logit_bias={END: 100})
    for drafter in (None, ScriptedDrafter([[END] * 5] * 20), DistDrafter(MODEL)):
        done = completion(answered(longer, drafter))
        assert len(done.text) == 5
        assert (done.token_ids[-1], done.finish_reason) == (END, "stop")


def test_free_neighbours_of_constrained_sequences() -> None:
    """Kind: the mask of one sequence is laid over the row of another."""
    params = [
        SamplingParams(max_tokens=40, temperature=1.0, seed=seed, **(FORMS[seed % 5] if seed % 2 else {}))
        for seed in range(12)
    ]
    random = np.random.default_rng(2)
    script = {i: [random.integers(V, size=(i + r) % 5).tolist() for r in range(40)] for i in range(12)}
    decoder, _ = table_decoder(MODEL)
    found = run(make_engine(decoder, FallbackDrafter(with_grammar([ScriptedDrafter(script)]))), [PROMPT] * 12, params)
    assert [result(one) for one in found] == [result(answered(own)) for own in params]


def test_a_stop_string_inside_a_form() -> None:
    params = SamplingParams(max_tokens=200, json_schema=SCHEMA, stop='"age"')
    for drafter in (None, FallbackDrafter(with_grammar([]))):
        done = completion(answered(params, drafter))
        assert done.text in ('{"name": "Ann", ', '{"name": "Bob", ')
        assert done.finish_reason == "stop"


def test_bans_and_a_form_that_leave_nothing_fail_alone() -> None:
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, FallbackDrafter(with_grammar([LookupDrafter()])))
    bad = submit(engine, PROMPT, SamplingParams(max_tokens=9, regex="aaa", bad_words=("a",)))
    sound = submit(engine, PROMPT, SamplingParams(max_tokens=9, regex="aaa"))
    run_to_the_end(engine)
    assert completion(sound).text == "aaa"
    assert bad.sequence.status is Status.FAILED
    assert isinstance(bad.sequence.error, OptionError)
    assert "leave no token to choose" in str(bad.sequence.error)
    assert decoder.cache.pool.num_used == 0


def test_a_form_that_the_vocabulary_cannot_spell_fails_alone() -> None:
    """Kind: a text goes on without its form where no token can follow, and ends as if it were complete."""
    vocabulary = TOKENIZER.vocabulary
    kinds = bytearray(vocabulary.kinds)
    [mark] = TOKENIZER.encode("#", add_special=False)
    kinds[mark] = TokenKind.UNUSED
    lacking = replace(TOKENIZER, vocabulary=Vocabulary(vocabulary.tokens, bytes(kinds), vocabulary.style))
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, FallbackDrafter(with_grammar([LookupDrafter()])), tokenizer=lacking)
    bad = submit(engine, PROMPT, SamplingParams(max_tokens=9, regex="a#b"))
    sound = submit(engine, PROMPT, SamplingParams(max_tokens=9, regex="aaa"))
    run_to_the_end(engine)
    assert completion(sound).text == "aaa"
    assert bad.sequence.status is Status.FAILED
    assert isinstance(bad.sequence.error, OptionError)
    assert str(bad.sequence.error).startswith("--regex cannot be followed any further: no token of the model")
    assert "\n" not in str(bad.sequence.error)


def test_a_vocabulary_without_an_end_token() -> None:
    decoder, _ = table_decoder(MODEL)
    engine = make_engine(decoder, tokenizer=tiny_tokenizer(end_ids=()))
    complete, endless = run(
        engine, [PROMPT, PROMPT], [SamplingParams(max_tokens=30, regex=regex) for regex in ("and abcd!", "[ab]+")]
    )
    assert completion(complete).text == "and abcd!"
    done = completion(endless)
    assert (len(done.token_ids), done.finish_reason, set(done.text) <= {"a", "b"}) == (30, "length", True)


def test_without_the_package_the_option_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "llguidance", None)
    decoder, _ = table_decoder(MODEL)
    with pytest.raises(OptionError, match=r"--regex needs the package llguidance: pip install 'foredraft\[grammar\]'"):
        make_engine(decoder).prepare(PROMPT, SamplingParams(regex="a"))
