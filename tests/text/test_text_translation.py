"""Texts of one vocabulary in the tokens of another, as they grow."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_samples import small_metadata, tiny_bpe, tiny_spm

from foredraft.text import Tokenizer, tokenizer_from_gguf
from foredraft.text.translation import ContinuingEncoder, GrowingTranslation, shared_tokens

TEXT = (
    "The quick brown fox doesn't jump over 13 lazy dogs.\n\n  def f(x):\n\treturn x**2  # 😀 naïve 你好世界\n"
    "Words that are followed by others stay as they are. "
) * 12


def bytes_of(tokenizer: Tokenizer, ids: Sequence[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(token) for token in ids)


@pytest.fixture(scope="module")
def tokenizers(smollm2: Tokenizer) -> dict[str, Tokenizer]:
    return {
        "smollm2": smollm2,
        "qwen": tokenizer_from_gguf(small_metadata("qwen2.5-coder")),
        "gemma": tokenizer_from_gguf(small_metadata("gemma3")),
    }


def test_shared_tokens_stand_for_the_same(tokenizers: dict[str, Tokenizer]) -> None:
    for target in tokenizers.values():
        for other in tokenizers.values():
            shared = shared_tokens(target, other)
            assert len(shared) == other.vocab_size
            assert (shared >= 0).sum() > 100
            for token in np.flatnonzero(shared >= 0)[::7].tolist():
                same = int(shared[token])
                assert target.token_bytes(same) == other.token_bytes(token) != b""
                assert (same in target.special_ids) == (token in other.special_ids)
            if target is other:
                assert (shared >= 0).mean() > 0.9


@pytest.mark.parametrize("name", ["smollm2", "gemma"])
@settings(max_examples=100)
@given(
    text=st.text(st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cs", "Cc"]), max_size=60),
    cut=st.integers(0, 3),
)
def test_any_bytes_come_back(request: pytest.FixtureRequest, name: str, text: str, cut: int) -> None:
    """Kind: half a character at the seam, a leading space, a line break or an emoji is lost on the way.

    (SmolLM2 has no tokens for bytes that no common character has.)
    """
    data = text.encode()[cut:]
    tokenizer = request.getfixturevalue("tokenizers")[name]
    assert bytes_of(tokenizer, ContinuingEncoder(tokenizer).encode(data)) == data
    assert bytes_of(tokenizer, ContinuingEncoder(tokenizer).encode(data[: len(data) - cut])) == data[: len(data) - cut]


def test_nothing_is_put_before_a_continuation() -> None:
    """Kind: a tokenizer that begins every text with a space puts one in the middle of it."""
    tokenizer = tokenizer_from_gguf(tiny_spm())
    assert tokenizer.space_prefix
    encoder = ContinuingEncoder(tokenizer)
    for text in ("a", " a", "ab ab", "\na", "  b"):
        assert bytes_of(tokenizer, encoder.encode(text.encode())) == text.encode()
    assert bytes_of(tokenizer, encoder.encode(b"a", at_start=True)) == b" a"


def test_one_space_is_put_before_a_text_that_is_broken_inside() -> None:
    """Kind: behind bytes that form no character a text begins anew, with a space."""
    tokenizer = tokenizer_from_gguf(tiny_spm())
    encoder = ContinuingEncoder(tokenizer)
    assert bytes_of(tokenizer, encoder.encode(b"ab\xffab", at_start=True)) == b" ab\xffab"
    assert bytes_of(tokenizer, encoder.encode(b"\xffab", at_start=True)) == b"\xffab"


@pytest.mark.parametrize("step", [1, 7])
def test_what_is_settled_behind_a_space_of_the_vocabulary_is_cut_at_words(step: int) -> None:
    """Kind: where the vocabulary puts a space before a text, the text is cut wherever it happens to end."""
    own, text = tokenizer_from_gguf(tiny_spm()), "abc ab bc cab abcd " * 40
    tokens = [own.vocabulary.tokens.index(f"<0x{byte:02X}>") for byte in text.encode()]
    growing = GrowingTranslation(own, own)
    for end in range(step, len(tokens) + step, step):
        growing.follow(tokens[:end])
    assert growing.tokens == own.encode(text)
    assert len(growing._tail) < 300


def test_bytes_without_a_token_are_left_out() -> None:
    tokenizer = tokenizer_from_gguf(tiny_bpe())
    encoder = ContinuingEncoder(tokenizer)
    assert bytes_of(tokenizer, encoder.encode(b"\xf0\x9f")) == b""


@pytest.mark.parametrize("step", [1, 2, 7, 100, 10**6])
@pytest.mark.parametrize(("source", "other"), [("smollm2", "qwen"), ("gemma", "smollm2"), ("smollm2", "gemma")])
def test_a_growing_text_is_that_of_the_whole(
    tokenizers: dict[str, Tokenizer], source: str, other: str, step: int
) -> None:
    tokens = tokenizers[source].encode(TEXT, add_special=False)
    own = tokenizers[other]
    growing = GrowingTranslation(tokenizers[source], own)
    before: list[int] = []
    for end in [*range(step, len(tokens), step), len(tokens)]:
        growing.follow(tokens[:end])
        shared = sum(1 for _ in _common(before, growing.tokens))
        assert shared > len(before) - 64  # only the end of a text is ever encoded anew
        before = list(growing.tokens)
        begin = [own.bos_id] if own.add_bos else []
        assert growing.tokens[: len(begin)] == begin
        assert own.bos_id not in growing.tokens[len(begin) :]
        text = bytes_of(own, growing.tokens[len(begin) :])
        assert text == bytes_of(tokenizers[source], tokens[:end])
    assert growing.tokens == [*begin, *own.encode(TEXT, add_special=False)]


def _common(a: Sequence[int], b: Sequence[int]) -> list[int]:
    length = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return list(a[:length])


def test_texts_without_words_are_settled_too(tokenizers: dict[str, Tokenizer]) -> None:
    own = tokenizers["qwen"]
    for text in ("你好世界" * 2000, "a" * 9000, "\n" * 5000):
        tokens = tokenizers["smollm2"].encode(text, add_special=False)
        growing = GrowingTranslation(tokenizers["smollm2"], own)
        for end in range(0, len(tokens), max(1, len(tokens) // 40)):
            growing.follow(tokens[:end])
        growing.follow(tokens)
        assert bytes_of(own, growing.tokens) == text.encode()
        assert len(growing._tail) <= 2048


def test_control_tokens_become_those_of_the_same_text(tokenizers: dict[str, Tokenizer], smollm2: Tokenizer) -> None:
    qwen = tokenizers["qwen"]
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello <|im_end|>"}]
    growing = GrowingTranslation(smollm2, qwen)
    growing.follow(smollm2.encode_chat(messages))
    text = smollm2.render_chat(messages)
    plain = text.replace("Hello <|im_end|>", "Hello \0")
    expected = qwen.encode(plain, add_special=False, parse_special=True)
    [place] = [i for i, token in enumerate(expected) if token == qwen.encode("\0", add_special=False)[0]]
    spelled = qwen.encode("<|im_end|>", add_special=False)
    assert growing.tokens[: place - 1] == expected[: place - 1]
    assert growing.tokens.count(qwen.encode("<|im_end|>", parse_special=True)[0]) == 2  # and none that was spelled out
    assert bytes_of(qwen, spelled) in bytes_of(qwen, growing.tokens)
    # What the other vocabulary does not have is left out.
    gemma = GrowingTranslation(smollm2, tokenizers["gemma"])
    gemma.follow(smollm2.encode_chat(messages))
    assert b"im_start" not in bytes_of(tokenizers["gemma"], gemma.tokens)


def test_one_beginning_of_text(tokenizers: dict[str, Tokenizer]) -> None:
    """Kind: a beginning-of-text token at each seam, or two at the beginning."""
    gemma = tokenizers["gemma"]
    growing = GrowingTranslation(gemma, gemma)
    tokens = gemma.encode("Hello there, how are you?")
    assert tokens[0] == gemma.bos_id
    for end in range(1, len(tokens) + 1):
        growing.follow(tokens[:end])
        assert growing.tokens == tokens[:end]
