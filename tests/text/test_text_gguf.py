"""Tokenizers from GGUF metadata: flags, kinds of tokens, ends, and damaged files."""

import itertools
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from text_samples import small_metadata, tiny_bpe, tiny_spm

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.text import Tokenizer, tokenizer_from_gguf
from foredraft.text.pretokenize import _FAMILY, pre_tokenizer
from foredraft.text.special import find_ends
from foredraft.text.vocabulary import TokenKind


def test_smollm2_flags(smollm2: Tokenizer) -> None:
    assert smollm2.vocab_size == 49152
    assert smollm2.bos_id == 1
    assert smollm2.eos_ids == {0, 2, 4}
    assert not smollm2.add_bos
    assert smollm2.chat_template is not None
    assert smollm2.special_ids == frozenset(range(17))


def test_qwen_ends_are_those_of_llama_cpp() -> None:
    tokenizer = tokenizer_from_gguf(small_metadata("qwen2.5-coder"))
    ends = {tokenizer.token_text(i) for i in tokenizer.eos_ids}
    assert ends - {"</s>"} == {"<|endoftext|>", "<|im_end|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}


def test_gemma_adds_bos_and_no_space() -> None:
    tokenizer = tokenizer_from_gguf(small_metadata("gemma3"))
    assert tokenizer.add_bos
    assert tokenizer.encode("hi")[0] == tokenizer.bos_id
    assert tokenizer.encode("hi")[1:] == tokenizer.encode("hi", add_special=False)
    assert tokenizer.decode(tokenizer.encode("hi")) == "hi"
    assert {"<eos>", "<end_of_turn>"} <= {tokenizer.token_text(i) for i in tokenizer.eos_ids}


def test_no_end_token_stands_behind_a_text_that_is_continued() -> None:
    """Kind: a file that was made for training puts an end token behind a prompt."""
    tokenizer = tokenizer_from_gguf(tiny_bpe(add_bos_token=True, add_eos_token=True))
    assert tokenizer.encode("#") == [0, *tokenizer.encode("#", add_special=False)]


def test_user_defined_tokens_are_matched_always_and_control_tokens_on_request() -> None:
    tokenizer = tokenizer_from_gguf(small_metadata("qwen2.5-coder"))
    ids = {tokenizer.token_text(i): i for i in range(tokenizer.vocab_size)}
    assert tokenizer.encode("<tool_call>") == [ids["<tool_call>"]]
    assert len(tokenizer.encode("<|im_end|>")) > 1
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [ids["<|im_end|>"]]
    assert tokenizer.decode([ids["<tool_call>"], ids["<|im_end|>"]]) == "<tool_call>"
    assert tokenizer.decode([ids["<|im_end|>"]], skip_special=False) == "<|im_end|>"


def test_of_special_tokens_that_begin_alike_the_longest_is_found() -> None:
    metadata = tiny_bpe()
    metadata["tokenizer.ggml.tokens"][1:3] = ["~~", "~~~"]
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("~~~~~", parse_special=True) == [2, 1]
    assert tokenizer.encode("!~~~", parse_special=True)[1:] == [2]


def test_llama2_style_space_prefix_comes_and_goes() -> None:
    tokenizer = tokenizer_from_gguf(tiny_spm())
    assert tokenizer.add_bos
    assert [tokenizer.token_text(i) for i in tokenizer.encode("abc")] == ["<s>", "\u2581abc"]
    assert tokenizer.decode(tokenizer.encode("abc")) == "abc"
    assert tokenizer.decode(tokenizer.encode(" abc")) == " abc"
    assert tokenizer.decode(tokenizer.encode("abc"), at_start=False) == " abc"
    with_special = tokenizer.encode("a</s>b", parse_special=True)
    assert [tokenizer.token_text(i) for i in with_special] == ["<s>", "\u2581a", "</s>", "\u2581", "b"]


def test_byte_fallback() -> None:
    tokenizer = tokenizer_from_gguf(tiny_spm(add_space_prefix=False))
    ids = tokenizer.encode("é中", add_special=False)
    assert [tokenizer.token_text(i) for i in ids] == ["é", "<0xE4>", "<0xB8>", "<0xAD>"]
    assert tokenizer.decode(ids) == "é中"
    assert tokenizer.token_bytes(ids[1]) == b"\xe4"
    spelled = tokenizer.encode("<0x0A>", add_special=False)
    assert tokenizer.decode(spelled) == "<0x0A>"


def test_text_that_spells_a_byte_token_stays_text() -> None:
    """Kind: "<0x0A>" in a prompt becomes a line break where its pieces are tokens."""
    metadata = tiny_spm(add_space_prefix=False)
    pieces = ["<0", "<0x", "<0x0", "A>"]  # which the byte token could be put together from
    for name, values in [("tokens", pieces), ("scores", [-1.0] * 4), ("token_type", [1] * 4)]:
        metadata[f"tokenizer.ggml.{name}"] = [*metadata[f"tokenizer.ggml.{name}"], *values]
    tokenizer = tokenizer_from_gguf(metadata)
    ids = tokenizer.encode("<0x0A>", add_special=False)
    assert [tokenizer.token_text(i) for i in ids] == ["<0x0", "A>"]


def test_what_the_file_does_not_say_is_as_in_llama_cpp() -> None:
    assert tokenizer_from_gguf(tiny_spm()).eos_id == 2
    assert tokenizer_from_gguf(tiny_spm()).bos_id == 1
    assert tokenizer_from_gguf(tiny_spm(token_type=[1] * 271)).eos_id is None  # which llama.cpp takes on trust
    for pre, adds_bos in [("gpt-2", False), ("llama-bpe", True), ("qwen2", False)]:
        assert tokenizer_from_gguf(tiny_bpe(pre=pre)).add_bos == adds_bos


def test_a_byte_level_file_without_ids_has_none() -> None:
    """Kind: token 11, a comma in Llama 3 and Qwen, ends texts and begins prompts of files that name no ids."""
    bare = {key: value for key, value in tiny_bpe(add_bos_token=True).items() if not key.endswith("_token_id")}
    bare["tokenizer.chat_template"] = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    tokenizer = tokenizer_from_gguf(bare)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, None)
    assert 11 not in tokenizer.eos_ids
    assert tokenizer.encode("#") == tokenizer.encode_chat([{"role": "user", "content": "#"}])
    assert tokenizer.render_chat([{"role": "user", "content": "#"}]) == "#"


@pytest.mark.parametrize(
    ("texts", "no_ends"),
    [
        (["<|end|>"], []),
        (["<|end|>", "<|return|>", "<|call|>"], ["<|end|>"]),
        (["<|end|>", "<|return|>"], []),
        (["<|end|>", "<|flush|>", "<|calls|>"], ["<|end|>"]),
        (["</s>", "<|tool_response>"], ["</s>"]),
        (["</s>", "<eos>"], []),
    ],
)
def test_what_ends_a_message_and_not_the_answer(texts: list[str], no_ends: list[str]) -> None:
    """Kind: an answer of several messages ends after the first."""
    ids = {text: place for place, text in enumerate(texts)}
    ends = find_ends(ids, bytearray([TokenKind.CONTROL] * len(ids)), stated=[0])
    assert ends == {ids[text] for text in texts if text not in no_ends}


def test_what_the_file_names_for_filling_in_counts_instead_of_known_texts() -> None:
    ids = {"a": 0, "<|fim_pad|>": 1}
    kinds = bytearray([TokenKind.NORMAL] * 2)
    assert find_ends(ids, kinds, stated=[], fill_in=(0, None, None)) == {0}
    assert list(kinds) == [TokenKind.CONTROL, TokenKind.NORMAL]


def test_half_a_surrogate_pair_is_refused(smollm2: Tokenizer) -> None:
    with pytest.raises(UserError, match=r"not valid Unicode: character 2 .*U\+D83D"):
        smollm2.encode("a\ud83d")


def test_padding_ids_stand_for_nothing() -> None:
    tokenizer = tokenizer_from_gguf(tiny_bpe(60, 64))
    assert tokenizer.vocab_size == 60
    assert tokenizer.decode([60, 63, 64, 1000]) == ""
    assert tokenizer.token_text(1000) == ""
    with pytest.raises(ValueError, match="negative"):
        tokenizer.token_bytes(-1)


def test_every_known_pre_tokenizer_cuts_without_losing_text() -> None:
    text = "I'm 1234 years; don’t\r\n\n  x中文ไทย e\u0301 <a>=$1.50\t!?\n"
    for name in _FAMILY:
        pieces = pre_tokenizer(name).pre_tokenize_str(text)
        places = [place for _, place in pieces]
        assert places[0][0] == 0, name
        assert places[-1][1] == len(text), name
        assert all(a[1] == b[0] for a, b in itertools.pairwise(places)), name


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tokenizer.ggml.model": None}, ModelFileError, "has no tokenizer"),
        ({"tokenizer.ggml.model": "bert"}, UnsupportedModelError, "'bert'"),
        ({"tokenizer.ggml.model": 3}, ModelFileError, "must be of type str, not int"),
        ({"tokenizer.ggml.pre": "klingon"}, UnsupportedModelError, "'klingon'"),
        ({"tokenizer.ggml.tokens": None}, ModelFileError, "has no vocabulary"),
        ({"tokenizer.ggml.tokens": []}, ModelFileError, "tokens"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, ModelFileError, "'a' twice"),
        ({"tokenizer.ggml.tokens": ["a", 1]}, ModelFileError, "not of type str"),
        ({"tokenizer.ggml.tokens": ["\udcff"]}, ModelFileError, "damaged"),
        ({"tokenizer.ggml.token_type": [1]}, ModelFileError, "1 entries for 64 tokens"),
        ({"tokenizer.ggml.token_type": [-1] * 64}, ModelFileError, "damaged"),
        ({"tokenizer.ggml.merges": None}, ModelFileError, "no merges"),
        ({"tokenizer.ggml.merges": ["ab"]}, ModelFileError, "not a pair"),
        ({"tokenizer.ggml.add_bos_token": 1}, ModelFileError, "must be of type bool"),
        ({"tokenizer.chat_template": 1}, ModelFileError, "chat_template"),
    ],
)
def test_faults_are_told_in_one_line(change: dict[str, Any], error: type[UserError], message: str) -> None:
    metadata = {key: value for key, value in {**tiny_bpe(), **change}.items() if value is not None}
    with pytest.raises(error, match=re.escape(message)) as caught:
        tokenizer_from_gguf(metadata)
    assert "\n" not in str(caught.value)


def test_scores_are_needed_and_must_be_numbers() -> None:
    metadata = tiny_spm()
    del metadata["tokenizer.ggml.scores"]
    with pytest.raises(ModelFileError, match="no scores"):
        tokenizer_from_gguf(metadata)
    with pytest.raises(ModelFileError, match="not a number"):
        tokenizer_from_gguf(tiny_spm(scores=[float("nan")] * 271))


def test_merges_that_do_not_fit_the_vocabulary_are_left_out() -> None:
    tokenizer = tokenizer_from_gguf(tiny_bpe(merges=["! !", "x y"]))
    assert tokenizer.decode(tokenizer.encode("!!")) == "!!"


_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 2**33),
    st.floats(),
    st.text(max_size=4),
    st.lists(st.text(max_size=3), max_size=6),
    st.lists(st.integers(-2, 300), max_size=80),
    st.lists(st.floats(), max_size=300),
    st.lists(st.one_of(st.text(max_size=3), st.integers(), st.booleans()), max_size=5),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_metadata_raises_only_user_errors(data: st.DataObject) -> None:
    metadata = data.draw(st.sampled_from([tiny_bpe(), tiny_spm(), small_metadata("qwen2.5-coder")]))
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)), min_size=1, max_size=3, unique=True)):
        value = metadata[key]
        if isinstance(value, list) and value and data.draw(st.booleans()):
            copy = list(value)
            for _ in range(data.draw(st.integers(1, 3))):
                place = data.draw(st.integers(0, len(copy) - 1))
                copy[place] = data.draw(st.one_of(st.text(max_size=5), st.integers(-2, 300), st.floats()))
            metadata[key] = copy[: data.draw(st.integers(0, len(copy)))] if data.draw(st.booleans()) else copy
        else:
            metadata[key] = data.draw(_values)
    try:
        tokenizer = tokenizer_from_gguf(metadata)
        tokenizer.decode(tokenizer.encode("a b\n<|im_end|>é", parse_special=True))
        tokenizer.fingerprint()
    except UserError as error:
        message = str(error)
    else:
        message = ""
    assert "\n" not in message


def test_merges_beyond_the_longest_token_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: the library does not refuse a damaged file, but panics, which no `except Exception` catches."""
    metadata = tiny_bpe()
    metadata["tokenizer.ggml.tokens"][10] = "abcdefghijk"
    expected = tokenizer_from_gguf(metadata).encode("!#")
    metadata["tokenizer.ggml.merges"] = ["abcdefghijk abcdefghijk"]
    assert tokenizer_from_gguf(metadata).encode("!#") == expected
