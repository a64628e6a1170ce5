"""What stands beside tokenizer.json, in new folders and in old ones, damaged and made for training."""

import json
from pathlib import Path
from typing import Any

import pytest
from text_samples import byte_folder, tiny_spm

from foredraft.errors import ModelFileError
from foredraft.text import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from foredraft.text.folder_files import stated_ends
from foredraft.text.translation import ContinuingEncoder

CUT = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
PAD = {"strategy": {"Fixed": 90}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 3, "pad_type_id": 0}
TEXT = "a text of some more tokens than three "


def _folder(path: Path, **files: Any) -> Path:
    for name, value in files.items():
        (path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return path


def _dropout(path: Path) -> Tokenizer:
    state = json.loads((byte_folder(path) / "tokenizer.json").read_text(encoding="utf-8"))
    state["model"]["dropout"] = 0.9
    return tokenizer_from_folder(byte_folder(path, model=state["model"]))


def test_what_was_stored_for_training_does_not_touch_a_prompt(tmp_path: Path) -> None:
    """Kind: a long prompt becomes 8 tokens, or is filled up with padding, or is cut otherwise each time."""
    plain = tokenizer_from_folder(byte_folder(tmp_path)).encode(TEXT)
    stored = tokenizer_from_folder(byte_folder(tmp_path, truncation=CUT, padding={**PAD, "pad_token": "<|endoftext|>"}))
    assert stored.encode(TEXT) == plain
    assert _dropout(tmp_path).encode(TEXT) == plain


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Kind: a file written by an editor of Windows is damaged, or its template writes a mark."""
    folder = byte_folder(tmp_path)
    plain = tokenizer_from_folder(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    (folder / "config.json").write_bytes(b'\xef\xbb\xbf{"eos_token_id": 5}')
    (folder / "chat_template.jinja").write_bytes(b"\xef\xbb\xbfa{{ messages[0].content }}")
    marked = tokenizer_from_folder(folder)
    assert marked.encode(TEXT) == plain.encode(TEXT)
    assert marked.eos_ids == {*plain.eos_ids, 5}
    assert marked.render_chat([{"role": "user", "content": "b"}]) == "ab"


def test_an_end_token_that_is_only_named_ends_an_answer(tmp_path: Path) -> None:
    """Kind: special tokens that stand only in tokenizer_config.json are spelled in pieces and end nothing."""
    ends = [{"id": 261, "content": "<|endoftext|>", "special": True}]
    entry = {"content": "<|stop|>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}
    full = [{**dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False), **token} for token in ends]
    folder = byte_folder(tmp_path, added_tokens=full)
    declared = {"262": {**entry, "special": True}}
    for settings in ({"added_tokens_decoder": declared, "eos_token": "<|stop|>"}, {"eos_token": entry}):
        tokenizer = tokenizer_from_folder(_folder(folder, tokenizer_config=settings))
        assert tokenizer.encode("<|stop|>", parse_special=True) == [262]
        assert tokenizer.eos_id == 262
        assert 262 in tokenizer.eos_ids
        assert 262 in tokenizer.special_ids
        assert len(tokenizer.encode("<|stop|>")) == 8


def test_names_of_tokens_that_the_model_never_had_add_none(tmp_path: Path) -> None:
    """Kind: a token for padding gets an id behind the model's last."""
    folder = _folder(byte_folder(tmp_path), config={"vocab_size": 263})
    tokenizer = tokenizer_from_folder(
        _folder(folder, tokenizer_config={"pad_token": "[PAD]", "eos_token": "<|im_end|>"})
    )
    assert tokenizer.vocab_size == 263
    assert tokenizer.eos_id == 262
    (folder / "config.json").write_text('{"text_config": {"vocab_size": 999, "eos_token_id": [7]}}')
    roomy = tokenizer_from_folder(folder)
    assert (roomy.vocab_size, roomy.encode("[PAD]", parse_special=True)) == (264, [263])
    assert 7 in roomy.eos_ids


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_config": {"added_tokens_decoder": {"900": {"content": "<x>"}}}}, "'<x>' the id 900, but .* 263"),
        (
            {"tokenizer_config": {"added_tokens_decoder": {"x": {"content": "<x>"}}}},
            "added tokens in .* cannot be read",
        ),
        ({"tokenizer_config": {"added_tokens_decoder": {"263": "<x>"}}}, "'263' has no content"),
        ({"tokenizer_config": {"added_tokens_decoder": [1]}}, "cannot be read"),
        ({"added_tokens": {"<x>": "y"}}, "cannot be read"),
        ({"added_tokens": {"<x>": 5}}, "'<x>' the id 5, but"),
        ({"special_tokens_map": [1]}, "must hold a JSON object"),
        ({"chat_template": {"chat_template": 3}}, "chat_template.json must be a text"),
    ],
)
def test_damaged_files_beside_are_told_in_one_line(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    folder = _folder(byte_folder(tmp_path), **files)
    with pytest.raises(ModelFileError, match=message) as caught:
        tokenizer_from_folder(folder)
    assert "\n" not in str(caught.value)


def test_templates_come_from_their_own_files_first(tmp_path: Path) -> None:
    folder = byte_folder(tmp_path)
    _folder(folder, chat_template={"chat_template": "last"})
    assert tokenizer_from_folder(folder).chat_template == "last"
    _folder(folder, tokenizer_config={"chat_template": {"default": "second", "other": "o"}})
    assert tokenizer_from_folder(folder).templates.named == {"default": "second", "other": "o"}
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("r")
    (folder / "chat_template.jinja").write_text("first")
    assert tokenizer_from_folder(folder).templates.named == {"default": "first", "rag": "r"}
    assert tokenizer_from_folder(folder).chat_template == "first"


def test_gguf_files_have_templates_for_special_uses() -> None:
    metadata = tiny_spm()
    metadata |= {"tokenizer.chat_template": "{{ bos_token }}a", "tokenizer.chat_template.tool_use": "b{{ tools }}"}
    tokenizer = tokenizer_from_gguf(metadata)
    message = {"role": "user", "content": "x"}
    assert tokenizer.render_chat([message]) == "<s>a"
    assert tokenizer.render_chat([message], tools=[]) == "b[]"
    with pytest.raises(ModelFileError, match=r"tokenizer\.chat_template\.x must be of type str"):
        tokenizer_from_gguf({**metadata, "tokenizer.chat_template.x": 3})


def test_what_goes_on_gets_no_space_on_byte_level_vocabularies_that_write_one(tmp_path: Path) -> None:
    """Kind: a banned word, or a draft of another vocabulary, begins with a space that nobody wrote."""
    pre = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    tokenizer = tokenizer_from_folder(byte_folder(tmp_path, pre_tokenizer=pre))
    assert tokenizer.decode(tokenizer.encode("ab")) == " ab"
    for text in ("ab", " a", "\nab", "é"):
        assert tokenizer.decode(ContinuingEncoder(tokenizer).encode(text.encode())) == text


@pytest.mark.parametrize("value", ["</s>", 1.5, True, [2, "x"]])
def test_an_end_token_that_is_no_number_is_refused(tmp_path: Path, value: object) -> None:
    """Kind: an end that cannot be read is dropped silently, and no text ends."""
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(ModelFileError, match="eos_token_id must be the number"):
        stated_ends(tmp_path)
