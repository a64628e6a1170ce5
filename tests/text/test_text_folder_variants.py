"""Folders that say things about their tokens in every place give the ids and texts that transformers makes of them.

Expected values come from transformers (see data/make_folders.py). Where foredraft differs on purpose, the reason stands
here.
"""

from typing import Any

import pytest
from folder_variants import CONVERSATIONS, FOLDERS, TEXTS, write_folder
from text_samples import read_data

from foredraft.errors import UserError
from foredraft.text import Tokenizer, tokenizer_from_folder

EXPECTED: dict[str, Any] = read_data("expected_folders.json")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {
        name: tokenizer_from_folder(write_folder(tmp_path_factory.mktemp("folder"), files))
        for name, files in FOLDERS.items()
    }


def test_there_are_enough_folders() -> None:
    assert EXPECTED.keys() == FOLDERS.keys()
    assert len(FOLDERS) >= 55


@pytest.mark.parametrize("name", FOLDERS)
def test_ids_are_those_of_transformers(tokenizers: dict[str, Tokenizer], name: str) -> None:
    """Kind: a field of a model folder that changes what a text is made of is not read, or is obeyed though it was
    stored for training."""
    tokenizer, expected = tokenizers[name], EXPECTED[name]
    assert tokenizer.bos_id == expected["bos"] or expected["bos"] is None
    assert tokenizer.eos_id == expected["eos"] or expected["eos"] is None
    assert expected["eos"] is None or expected["eos"] in tokenizer.eos_ids
    for text, ids in zip(TEXTS, expected["ids"], strict=True):
        found = tokenizer.encode(text, parse_special=True)
        if name == "bos and eos":  # a prompt is continued, so no end token stands behind it
            assert ids[-1] == expected["eos"]
            ids = ids[:-1]
        if name == "flags alone":  # transformers 5 leaves the flags out where there is a tokenizer.json, 4 does not
            ids = [expected["bos"], *ids]
        if ids[:2] == [1, 1]:  # one beginning is enough, whether the text or the tokenizer writes it
            ids = ids[1:]
        assert found == ids, text


@pytest.mark.parametrize("name", FOLDERS)
def test_texts_are_those_of_transformers(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer, expected = tokenizers[name], EXPECTED[name]
    if name == "added and named":  # transformers 5 loses special tokens that are only in special_tokens_map.json
        assert tokenizer.special_ids >= {tokenizer.encode("<extra>", parse_special=True)[0]}
        return
    for ids, whole, plain in zip(expected["ids"], expected["texts"], expected["plain"], strict=True):
        assert tokenizer.decode(ids) == plain
        if (
            not tokenizer.space_prefix
        ):  # the space that a tokenizer puts before a text is none of it, behind <s> as well
            assert tokenizer.decode(ids, skip_special=False) == whole


@pytest.mark.parametrize("name", [name for name in FOLDERS if EXPECTED[name]["chats"]])
def test_conversations_are_those_of_transformers(tokenizers: dict[str, Tokenizer], name: str) -> None:
    """Kind: a template sees other messages than it was written for, or another template is taken."""
    tokenizer = tokenizers[name]
    for kind, expected in EXPECTED[name]["chats"].items():
        messages, options = CONVERSATIONS[kind]
        if "continue_final_message" not in options:
            options = {"add_generation_prompt": False, **options}
        refused = _refused(name, kind)
        if refused or (expected is None and kind != "parts" and (name, kind) != ("template thinking", "open")):
            with pytest.raises(UserError, match=refused or "template"):
                tokenizer.encode_chat(messages, **options)
            continue
        if (name, kind) == ("template thinking", "open"):  # which leaves out the thoughts, and can go on all the same
            assert tokenizer.render_chat(messages, **options).endswith("<|im_start|>assistant\ncaf")
            continue
        if kind == "parts" and name != "template parts":  # transformers prints such lists, writes nothing, or fails
            joined = [{**message, "content": " a \nb"} for message in messages]
            expected = [tokenizer.render_chat(joined, **options), tokenizer.encode_chat(joined, **options)]
        assert tokenizer.render_chat(messages, **options) == expected[0], kind
        assert tokenizer.encode_chat(messages, **options) == expected[1], kind


def _refused(name: str, kind: str) -> str:
    """Why an option is refused that transformers leaves out where a template does not know it."""
    thinking = name == "template thinking"
    if kind == "quiet" and not thinking:
        return "knows no variable 'enable_thinking'"
    if kind == "calls" and not thinking and name not in ("templates by name", "template files"):
        return "has no place for tools"
    return ""
