"""Streams of ids: whole characters only, and the same text as decoding at once."""

from functools import cache

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from text_samples import small_metadata, tiny_bpe, tiny_spm

from foredraft.text import Detokenizer, Tokenizer, tokenizer_from_gguf
from foredraft.text.vocabulary import byte_alphabet

in_session = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@cache
def _small(name: str) -> Tokenizer:
    metadata = {"spm": tiny_spm, "bpe": lambda: tiny_bpe(259, 264)}.get(name, lambda: small_metadata(name))()
    return tokenizer_from_gguf(metadata)


def _stream(tokenizer: Tokenizer, ids: list[int], *, skip_special: bool, at_start: bool = True) -> list[str]:
    detokenizer = Detokenizer(tokenizer, skip_special=skip_special, at_start=at_start)
    return [*map(detokenizer.push, ids), detokenizer.finish()]


@in_session
@given(text=st.text(max_size=80))
@example(text="\U00040000 \x04\x1d")
def test_round_trip(smollm2: Tokenizer, text: str) -> None:
    # SmolLM2 has no token for some bytes that occur in no text of its training; they vanish.
    tokens = set(smollm2.vocabulary.tokens)
    known = {byte for char, byte in byte_alphabet().items() if char in tokens}
    expected = bytes(byte for byte in text.encode() if byte in known).decode(errors="replace")
    assert smollm2.decode(smollm2.encode(text, add_special=False), skip_special=False) == expected


@in_session
@given(text=st.text(alphabet="ab cdé中😀\n\u2581"), parse_special=st.booleans())
def test_sentencepiece_round_trip(text: str, parse_special: bool) -> None:
    tokenizer = _small("spm")
    ids = tokenizer.encode(text, parse_special=parse_special)
    assert tokenizer.decode(ids) == text.replace("\u2581", " ")


@in_session
@given(ids=st.lists(st.integers(0, 49151), max_size=30), skip_special=st.booleans())
def test_stream_equals_decode_on_smollm2(smollm2: Tokenizer, ids: list[int], skip_special: bool) -> None:
    assert "".join(_stream(smollm2, ids, skip_special=skip_special)) == smollm2.decode(ids, skip_special=skip_special)


@settings(max_examples=300)
@given(
    name=st.sampled_from(["spm", "bpe", "gemma3", "qwen2.5-coder"]),
    ids=st.lists(st.integers(0, 270), max_size=20),
    skip_special=st.booleans(),
    at_start=st.booleans(),
)
def test_stream_equals_decode_on_bytes(name: str, ids: list[int], skip_special: bool, at_start: bool) -> None:
    tokenizer = _small(name)
    whole = tokenizer.decode(ids, skip_special=skip_special, at_start=at_start)
    pushed = _stream(tokenizer, ids, skip_special=skip_special, at_start=at_start)
    assert "".join(pushed) == whole
    # The text of every prefix only ever grows.
    for end in range(len(ids)):
        assert whole.startswith("".join(pushed[:end]))


def _bytes_as_ids(tokenizer: Tokenizer, data: bytes) -> list[int]:
    ids = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}
    return [ids[f"<0x{byte:02X}>"] for byte in data]


@pytest.mark.parametrize(
    ("data", "pushed"),
    [
        ("é".encode(), ["", "é", ""]),
        ("😀".encode(), ["", "", "", "😀", ""]),
        (b"\xf0\x9f", ["", "", "\ufffd"]),
        (b"\xff", ["\ufffd", ""]),
        (b"\xe4a", ["", "\ufffda", ""]),
        (b"\xe4\xb8\xf0\x9f\x98\x80", ["", "", "\ufffd", "", "", "😀", ""]),
        (b"\xed\xa0\x80", ["", "", "\ufffd" * 3, ""]),
        (b"\xc0\x80", ["\ufffd", "\ufffd", ""]),
    ],
)
def test_replacement_only_when_certain(data: bytes, pushed: list[str]) -> None:
    tokenizer = _small("spm")
    assert _stream(tokenizer, _bytes_as_ids(tokenizer, data), skip_special=True) == pushed


def test_special_tokens_do_not_use_up_the_leading_space() -> None:
    tokenizer = _small("spm")
    ids = tokenizer.encode("abc")
    assert _stream(tokenizer, ids, skip_special=True) == ["", "abc", ""]
    assert _stream(tokenizer, ids, skip_special=False) == ["<s>", "abc", ""]


def test_nothing_pushed_gives_nothing(smollm2: Tokenizer) -> None:
    assert Detokenizer(smollm2).finish() == ""
    assert smollm2.decode([]) == ""


def test_a_space_that_is_no_part_of_a_word_stays() -> None:
    """Kind: a space that the model wrote as a byte is taken for the one that the vocabulary puts before a text."""
    tokenizer = _small("spm")
    [word] = tokenizer.encode("ab", add_special=False)
    assert tokenizer.decode([*_bytes_as_ids(tokenizer, b" "), word]) == "  ab"
