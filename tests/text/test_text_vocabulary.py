"""When two vocabularies are the same."""

from text_samples import small_metadata, tiny_bpe, tiny_spm

from foredraft.text import first_difference, tokenizer_from_gguf
from foredraft.text.vocabulary import TokenKind, Vocabulary


def test_padding_is_no_difference() -> None:
    target, drafter = tokenizer_from_gguf(tiny_bpe(60, 64)), tokenizer_from_gguf(tiny_bpe(60, 96))
    assert first_difference(target, drafter) is None
    assert first_difference(drafter, target) is None
    assert target.fingerprint() == drafter.fingerprint()


def test_a_missing_real_token_is_a_difference() -> None:
    target, drafter = tokenizer_from_gguf(tiny_bpe(60, 64)), tokenizer_from_gguf(tiny_bpe(59, 64))
    last = target.token_text(59)
    assert first_difference(target, drafter) == (59, last, "")
    assert first_difference(drafter, target) == (59, "", last)
    assert target.fingerprint() != drafter.fingerprint()


def test_the_first_different_token_is_named() -> None:
    changed = tiny_bpe(60, 64)
    changed["tokenizer.ggml.tokens"][10] = "other"
    target, drafter = tokenizer_from_gguf(tiny_bpe(60, 64)), tokenizer_from_gguf(changed)
    assert first_difference(target, drafter) == (10, target.token_text(10), "other")


def test_different_families_differ() -> None:
    qwen, gemma = (tokenizer_from_gguf(small_metadata(name)) for name in ("qwen2.5-coder", "gemma3"))
    assert first_difference(qwen, gemma) is not None
    assert first_difference(gemma, tokenizer_from_gguf(tiny_spm())) is not None
    assert first_difference(qwen, qwen) is None


def test_equal_texts_with_different_meanings_differ() -> None:
    """A byte-level 'Ġ' is a space, a SentencePiece 'Ġ' is a letter."""
    bpe, spm = tiny_bpe(60, 60), tiny_spm()
    bpe["tokenizer.ggml.tokens"][30] = "Ġ"
    spm |= {
        key: bpe[f"tokenizer.ggml.{name}"] for name in ("tokens", "token_type") for key in [f"tokenizer.ggml.{name}"]
    }
    spm["tokenizer.ggml.scores"] = [0.0] * 60
    assert first_difference(tokenizer_from_gguf(bpe), tokenizer_from_gguf(spm)) == (30, "Ġ", "Ġ")


def test_names_of_placeholders_are_no_difference() -> None:
    """Kind: a hole among the tokens that one file calls otherwise makes two equal vocabularies differ."""
    one, other = tiny_bpe(60, 60), tiny_bpe(60, 60)
    for metadata, name in [(one, "[PAD30]"), (other, "")]:
        metadata["tokenizer.ggml.tokens"][30] = name
    target, drafter = tokenizer_from_gguf(one), tokenizer_from_gguf(other)
    assert first_difference(target, drafter) is None
    assert target.fingerprint() == drafter.fingerprint()


def test_tokens_without_a_text_only_fill_the_table_up() -> None:
    vocabulary = Vocabulary(["a", ""], bytes([TokenKind.NORMAL] * 2), "byte_level")
    assert vocabulary.is_placeholder(1)
    assert vocabulary.num_real == 1
