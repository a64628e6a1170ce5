"""Forms of the text on vocabularies that write a space first, normalise, or lack characters."""

import json
import os
import random
import signal
from dataclasses import replace
from functools import cache
from typing import Any

import llguidance
import numpy as np
import pytest
from text_samples import byte_folder, read_data, small_metadata, tiny_bpe, tiny_spm

from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams
from foredraft.sampling.processors import ProcessorFactory
from foredraft.sampling.processors.base import Processors
from foredraft.sampling.processors.grammar import Grammar, GrammarCompiler
from foredraft.text import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from foredraft.text.translation import ExactEncoder
from foredraft.text.vocabulary import TokenKind, Vocabulary, byte_alphabet

SCHEMAS: list[Any] = read_data("schemas.json")
KINDS = {
    "spm": {},
    "gemma3": {},
    "nfc": {"normalizer": {"type": "NFC"}},
    "nfkc": {"normalizer": {"type": "NFKC"}},
    "lowercase": {"normalizer": {"type": "Lowercase"}},
    "prefix": {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    },
}
OTHER_FORMS: list[dict[str, Any]] = [
    {"regex": "yes|no"},
    {"regex": " yes| no"},
    {"regex": "cafe\u0301( \u1100\u1161)?"},
    {"regex": "Ab\n+c"},
    {"grammar": 'root ::= "a" [b-d] ("\\n" | " ") "\\U0001F600"'},
    {"grammar": 'start: "yes" " "* "NO"'},
]


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    made = {"spm": tokenizer_from_gguf(tiny_spm()), "gemma3": tokenizer_from_gguf(small_metadata("gemma3"))}
    for name, change in KINDS.items():
        if change:
            made[name] = tokenizer_from_folder(byte_folder(tmp_path_factory.mktemp(name), **change))
    return made


@cache
def _plain() -> GrammarCompiler:
    """Grammars on a vocabulary of single bytes, where nothing can go wrong with spelling."""
    tokens = [*byte_alphabet(), "<end>"]
    kinds = bytes([TokenKind.NORMAL] * 256 + [TokenKind.CONTROL])
    tokenizer = tokenizer_from_gguf(tiny_bpe())
    plain = replace(tokenizer, vocabulary=Vocabulary(tokens, kinds, "byte_level"), eos_ids=frozenset([256]), eos_id=256)
    return GrammarCompiler(plain, 257)


def _byte_id(byte: int) -> int:
    return list(byte_alphabet().values()).index(byte)


def _walk(grammar: Grammar, tokenizer: Tokenizer, seed: int, *, longest: int = 60) -> bytes:
    """The bytes of a text that the grammar lets through, chosen at random, token by token."""
    chance, text = random.Random(seed), b""
    for _ in range(longest):
        if grammar.complete:
            break
        row = np.zeros(tokenizer.vocab_size, np.float32)
        grammar.apply(row)
        allowed = np.flatnonzero(row == 0).tolist()
        ends = [token for token in allowed if token in tokenizer.eos_ids]
        assert len(allowed) < tokenizer.vocab_size  # under a form some token is always excluded
        token = chance.choice(ends or allowed)
        if token in tokenizer.eos_ids:
            break
        grammar.push(token)
        grammar.check(0)
        text += tokenizer.token_bytes(token)
    return text


def _holds(params: SamplingParams, text: bytes) -> bool:
    """Whether a text has the form, or begins one."""
    grammar = _plain().compile(params)
    for byte in text:
        grammar.push(_byte_id(byte))
    try:
        grammar.check(0)
    except OptionError:
        return False
    return True


@pytest.mark.parametrize("name", KINDS)
def test_every_schema_holds_on_every_vocabulary(vocabularies: dict[str, Tokenizer], name: str) -> None:
    """Kind: a form is lost on a vocabulary that writes a space before a text, or normalises it."""
    tokenizer = vocabularies[name]
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    assert len(SCHEMAS) > 75
    forms = [SamplingParams(json_schema=schema) for schema in SCHEMAS] + [SamplingParams(**o) for o in OTHER_FORMS]
    for place, params in enumerate([*forms, SamplingParams(json_object=True)]):
        for seed in range(2):
            text = _walk(compiler.compile(params), tokenizer, seed)
            assert text, params
            assert _holds(params, text), (params, text)
            if place < len(SCHEMAS) and isinstance(SCHEMAS[place], dict) and "const" in SCHEMAS[place]:
                assert json.loads(text) == SCHEMAS[place]["const"]


@pytest.mark.parametrize("name", KINDS)
def test_texts_are_spelled_byte_for_byte(vocabularies: dict[str, Tokenizer], name: str) -> None:
    tokenizer = vocabularies[name]
    encoder = ExactEncoder(tokenizer, tokenizer.vocab_size)
    for text in (" a", "a", "  ", "Cafe\u0301", "\n", "</s>", "é", "a b", "😀"):
        ids = encoder.encode(text.encode())
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode(), text
        assert not tokenizer.special_ids & set(ids)


@pytest.mark.parametrize("name", KINDS)
def test_words_are_banned_as_they_are_written(vocabularies: dict[str, Tokenizer], name: str) -> None:
    """Kind: a word is banned in the form that the vocabulary normalises it to, and not in its own."""
    tokenizer = vocabularies[name]
    processors = _processors(SamplingParams(bad_words=("Cafe\u0301",)), tokenizer)
    *before, last = ExactEncoder(tokenizer, tokenizer.vocab_size).encode("Cafe\u0301".encode())
    row = processors.apply(np.zeros(tokenizer.vocab_size, np.float32), [1, *before], (), None)
    assert row[last] == -np.inf


def _without_byte(byte: int) -> Tokenizer:
    """A vocabulary of single bytes that has no token for one of them."""
    tokenizer = tokenizer_from_gguf(tiny_spm(add_space_prefix=False))
    tokens, kinds = list(tokenizer.vocabulary.tokens), bytearray(tokenizer.vocabulary.kinds)
    for token, text in enumerate(tokens):
        if text == f"<0x{byte:02X}>" or (kinds[token] == TokenKind.NORMAL and text.encode()[0] == byte):
            tokens[token], kinds[token] = f"[PAD{token}]", TokenKind.UNUSED
    return replace(tokenizer, vocabulary=Vocabulary(tokens, bytes(kinds), "sentencepiece"))


def test_a_dead_end_is_told_in_one_short_line() -> None:
    """Kind: where no token can follow, the state of a parser is printed, or the text goes on without a form."""
    tokenizer = _without_byte(ord("#"))
    processors = ProcessorFactory(tokenizer, tokenizer.vocab_size).make(SamplingParams(regex="a#b"), [1], frozenset())
    assert processors is not None
    [letter] = tokenizer.encode("a", add_special=False)
    row = np.zeros(tokenizer.vocab_size, np.float32)
    assert np.flatnonzero(processors.apply(row, [1], (), None) == 0).tolist() == [letter]
    assert not processors.complete([1, letter])
    with pytest.raises(OptionError, match="--regex cannot be followed any further: no token of the model") as caught:
        processors.apply(row, [1, letter], (), None)
    assert len(str(caught.value)) < 120
    assert not processors.complete([1, letter])  # a parser that gave up is at no end
    assert processors.forced([1, letter]) == []


def _push(grammar: Grammar, token: int, times: int) -> None:
    for _ in range(times):
        grammar.push(token)
        grammar.check(0)


def test_a_parser_that_gives_up_says_so_in_one_line() -> None:
    tokenizer = tokenizer_from_gguf(tiny_spm(add_space_prefix=False))
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    compiler.compile(SamplingParams(regex="a"))  # makes the vocabulary of the package
    deep = llguidance.LLMatcher.grammar_from_lark('start: "a" start | "b" start "c" | "a"')
    limits = llguidance.LLParserLimits(max_items_in_row=50)
    grammar = Grammar(llguidance.LLMatcher(compiler._vocabulary, deep, log_level=0, limits=limits), "--grammar")
    [letter] = tokenizer.encode("a", add_special=False)
    with pytest.raises(OptionError, match=r"--grammar cannot be followed any further: Parser Error: ") as caught:
        _push(grammar, letter, 99)
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)
    assert "<state>" not in str(caught.value)
    assert not grammar.complete
    grammar.pop(letter)  # back out of the draft that was too much for it
    row = np.zeros(tokenizer.vocab_size, np.float32)
    grammar.apply(row)
    assert np.any(row == 0)


def _processors(params: SamplingParams, tokenizer: Tokenizer) -> Processors:
    made = ProcessorFactory(tokenizer, tokenizer.vocab_size).make(params, [1], frozenset())
    assert made is not None
    return made


def test_a_text_that_has_left_its_form_is_an_error_and_a_draft_is_none() -> None:
    """Kind: a token that a grammar cannot follow turns the constraint off, without a word."""
    tokenizer = tokenizer_from_gguf(tiny_spm(add_space_prefix=False))
    processors = _processors(SamplingParams(regex="ab"), tokenizer)
    other = tokenizer.encode("c", add_special=False)[0]
    row = np.zeros(tokenizer.vocab_size, np.float32)
    processors.apply(row, [1], (other, other), None)
    with pytest.raises(OptionError, match="--regex cannot be followed any further"):
        processors.apply(row, [1, other], (), None)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"enum": [2**63, -(2**63)]}, "9223372036854775808 has more digits"),
        ({"const": -(2**63) + 1}, "more digits"),
        ({"properties": {"a": {"const": [2**53 + 1]}}}, "9007199254740993 has more digits"),
        ({"const": 10**400}, r"1000+\.\.\. has more digits"),
        ({"type": "integer", "minimum": 2**64}, "Unsatisfiable schema"),
        (False, "Unsatisfiable schema: schema is false"),
        ({"type": "integer", "multipleOf": 2**40}, "multipleOf"),
    ],
)
def test_numbers_that_cannot_be_kept_are_refused(schema: Any, message: str) -> None:
    """Kind: a large number in a schema becomes another one in the text, or ends the process."""
    with pytest.raises(OptionError, match=f"--json-schema cannot be used: .*{message}") as caught:
        _plain().compile(SamplingParams(json_schema=schema))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}, [0, 2**62, -(2**62)], [2**63, -(2**63) - 1]),
        ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, [0, 2**62], [-1, 2**64]),
        ({"type": "integer", "exclusiveMinimum": -(2**63) - 1, "exclusiveMaximum": 2**63}, [7], [2**63]),
        ({"type": "integer", "maximum": 2**53 + 3}, [2**53 + 2], [2**53 + 4]),
        ({"type": "integer", "minimum": 10**18 + 1}, [10**18 + 200], [10**18]),
        ({"type": "integer", "maximum": -(10**18) - 1}, [-(10**18) - 200], [-(10**18)]),
        ({"type": ["integer", "null"], "minimum": -(2**63), "maximum": 2**63 - 1}, [None, 5], [2**63]),
        ({"type": "number", "minimum": -1e300, "maximum": 2**64}, [1.5, -3], []),
        ({"properties": {"const": {"type": "integer", "maximum": 2**63 - 1, "minimum": -(2**63)}}}, [{"const": 5}], []),
        ({"const": 10**20}, [10**20], [10**20 + 1]),
        (True, ["a", 1, None, [], {}], []),
        ("true", ["a"], []),
    ],
)
def test_bounds_of_64_bits_and_boolean_schemas(schema: Any, inside: list[Any], outside: list[Any]) -> None:
    """Kind: a schema that every program writes is refused because its bounds are those of an int64."""
    params = SamplingParams(json_schema=schema)
    for value, expected in [(value, True) for value in inside] + [(value, False) for value in outside]:
        grammar = _plain().compile(params)
        for byte in json.dumps(value).encode():
            grammar.push(_byte_id(byte))
        row = np.zeros(257, np.float32)
        try:
            grammar.check(0)
            grammar.apply(row)
            found = grammar.complete or row[256] == 0
        except OptionError:
            found = False
        assert found == expected, value


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        ('root ::= "\\U0001F600" "\\u00e9" "\\xe9" "\\x41"', "😀ééA"),
        ("root ::= [\\U0001F600-\\U0001F64F] [\\u00e0-\\u00ff]", "😃é"),
        ('root ::= "\\\\U0001F600"', "\\U0001F600"),
        ('root ::= "a" # "\\u0041"', "a"),
        ('root ::= "\\[\\u005d\\u0022\\u005c" [\\]\\u002d\\u005d]', '[]"\\-'),
        ('start: "\\U0001F600" /\\u00e9/ "\\u00e9"', "😀éé"),
    ],
)
def test_escapes_of_characters_in_grammars(grammar: str, text: str) -> None:
    """Kind: characters that llama.cpp takes by number are refused in a grammar."""
    assert _holds(SamplingParams(grammar=grammar), text.encode())
    assert not _holds(SamplingParams(grammar=grammar), text.encode()[:-1] + b"?")


def test_an_escape_that_is_no_character_is_refused() -> None:
    for escape in ("\\ud83d", "\\U00110000"):
        with pytest.raises(OptionError, match="is no character"):
            _plain().compile(SamplingParams(grammar=f'root ::= "{escape}"'))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_compiles_does_not_hang_the_child() -> None:
    """Kind: the lock of the thread that compiles is never released in the child."""
    compiler = GrammarCompiler(tokenizer_from_gguf(tiny_bpe()), 200)
    with compiler._lock:
        child = os.fork()
        if not child:
            signal.alarm(20)
            free = compiler._lock.acquire(timeout=10)
            os._exit(0 if free else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    compiler.compile(SamplingParams(regex="a"))
