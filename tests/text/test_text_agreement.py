"""Token ids must be those of llama.cpp, for every string (see data/make_expected.py)."""

import pytest
from text_samples import read_data, small_metadata

from foredraft.text import Tokenizer, first_difference, tokenizer_from_gguf


def _disagreements(tokenizer: Tokenizer, name: str) -> list[tuple[str, bool, list[int], list[int]]]:
    texts, expected = read_data("strings.json"), read_data(f"expected_{name}.json")
    assert len(texts) == len(expected["plain"]) > 600
    wrong = []
    for place, text in enumerate(texts):
        plain = expected["plain"][place]
        special = expected["special"].get(str(place), plain)
        for parse_special, ids in ((False, plain), (True, special)):
            found = tokenizer.encode(text, add_special=False, parse_special=parse_special)
            if found != ids:
                wrong.append((text, parse_special, found, ids))
    return wrong


def test_smollm2_agrees_with_llama_cpp_on_every_string(smollm2: Tokenizer) -> None:
    assert _disagreements(smollm2, "smollm2") == []


def test_larger_vocabularies_agree_where_their_files_are_at_hand(
    real_tokenizers: dict[str, Tokenizer],
) -> None:
    for name, tokenizer in real_tokenizers.items():
        expected = "gemma3" if name == "gemma3" else "qwen2.5-coder"
        assert _disagreements(tokenizer, expected) == [], name


def test_real_pair_is_equal_and_strangers_differ(smollm2: Tokenizer, real_tokenizers: dict[str, Tokenizer]) -> None:
    assert first_difference(smollm2, smollm2) is None
    for name, tokenizer in real_tokenizers.items():
        assert first_difference(smollm2, tokenizer) is not None
        pair = real_tokenizers.get("qwen2.5-coder")
        if name.startswith("qwen") and pair is not None:
            assert first_difference(tokenizer, pair) is None
            assert tokenizer.fingerprint() == pair.fingerprint()
            assert tokenizer.vocab_size == 151665


@pytest.mark.parametrize("name", ["qwen2.5-coder", "gemma3"])
def test_small_vocabularies_encode_like_the_real_ones(name: str) -> None:
    small, texts = read_data(f"small_{name}.json"), read_data("strings.json")
    tokenizer = tokenizer_from_gguf(small_metadata(name))
    assert len(small["strings"]) > 200
    wrong = [
        (texts[place], found, ids)
        for place, ids in zip(small["strings"], small["ids"], strict=True)
        if (found := tokenizer.encode(texts[place], add_special=False)) != ids
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["qwen2.5-coder", "gemma3"])
def test_small_vocabularies_decode_what_they_encode(name: str) -> None:
    small, texts = read_data(f"small_{name}.json"), read_data("strings.json")
    tokenizer = tokenizer_from_gguf(small_metadata(name))
    for place, ids in zip(small["strings"], small["ids"], strict=True):
        text = texts[place].replace("\u2581", " ") if name == "gemma3" else texts[place]
        assert tokenizer.decode(ids, skip_special=False) == text


def test_user_text_never_becomes_a_control_token(smollm2: Tokenizer) -> None:
    for text in read_data("strings.json"):
        assert not smollm2.special_ids & set(smollm2.encode(text))
