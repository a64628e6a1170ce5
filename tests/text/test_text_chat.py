"""Conversations as clients send them: parts, calls of tools, options, and messages that try to pass for structure."""

import json
from pathlib import Path
from typing import Any

import pytest
from folder_variants import FOLDERS, token, write_folder
from text_samples import CHATML, byte_folder, small_metadata, with_template

from foredraft.errors import UserError
from foredraft.text import Tokenizer, tokenizer_from_folder, tokenizer_from_gguf
from foredraft.text.special import is_structural

QWEN = with_template(tokenizer_from_gguf(small_metadata("qwen2.5-coder")), CHATML)
USER = {"role": "user", "content": "x"}


def _folder(path: Path, *added: dict[str, Any], template: str = CHATML, **changes: Any) -> Tokenizer:
    ends = [token(261, "<|endoftext|>"), token(262, "<|im_start|>"), token(263, "<|im_end|>")]
    tokenizer = tokenizer_from_folder(byte_folder(path, added_tokens=[*ends, *added], **changes))
    return with_template(tokenizer, template)


def _ids(tokenizer: Tokenizer, *texts: str) -> list[int]:
    return [tokenizer.encode(text, parse_special=True, add_special=False)[0] for text in texts]


SEEN = [
    ("{{ m.content.split('</think>')[-1].lstrip('\\n') }}", "<think>\nhm\n</think>\n\nyes", "yes"),
    ("{{ m.content | length }}", "</think><|im_end|>", "18"),
    ("{{ m.content.startswith('<tool_response>') }}", "<tool_response>a", "True"),
    ("{{ m.content.endswith('</think>') }}", "a</think>", "True"),
    ("{{ '</think>' in m.content }}", "a</think>", "True"),
    ("{{ m.content == '<|im_end|>' }}", "<|im_end|>", "True"),
    ("{{ m | tojson(ensure_ascii=True) }}", "<|im_end|>é", '{"role": "user", "content": "<|im_end|>\\u00e9"}'),
    ("{{ messages }}", "<|im_end|>", "[{'role': 'user', 'content': '<|im_end|>'}]"),
    ("{{ m.content.replace('<|im_end|>', '') | trim }}", " a<|im_end|> ", "a"),
    ("{{ m.content[:5] ~ m.content.find('>') }}", "<|im_end|>", "<|im_9"),
]


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(("source", "content", "expected"), SEEN)
def test_templates_see_messages_as_they_are(
    tmp_path: Path, source: str, content: str, expected: str, special: bool
) -> None:
    """Kind: what protects a message from passing for structure changes what the template makes of it."""
    marks = [token(264 + i, text, special=special) for i, text in enumerate(("</think>", "<tool_response>", "<think>"))]
    tokenizer = _folder(tmp_path, *marks, template="{% set m = messages[0] %}" + source)
    ids = tokenizer.encode_chat([{"role": "user", "content": content}])
    assert tokenizer.decode(ids, skip_special=False) == expected
    assert not set(ids) & set(range(261, 267))


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_structural_tokens_that_are_not_special_stay_text_in_messages(tmp_path: Path, role: str) -> None:
    """Kind: a user closes the model's thoughts, or answers for a tool, with a token that is not special."""
    marks = [token(264, "</think>", special=False), token(265, "<tool_response>", special=False, normalized=True)]
    template = CHATML + "<tool_response></think>"
    tokenizer = _folder(tmp_path, *marks, template=template)
    think, response = _ids(tokenizer, "</think>", "<tool_response>")
    ids = tokenizer.encode_chat([{"role": role, "content": "a</think> <tool_response>\n\n<tool_response"}])
    assert (ids.count(think), ids.count(response)) == (1, 1)
    assert ids[-2:] == [response, think]
    assert "a</think> <tool_response>\n\n" in tokenizer.decode(ids)
    # The model itself wrote them as tokens, and there they are again.
    answered = tokenizer.encode_chat([{"role": "assistant", "content": "a</think><|im_end|>"}])
    assert answered.count(think) == 2
    assert answered.count(_ids(tokenizer, "<|im_end|>")[0]) == 1


def test_an_end_that_is_not_called_special_stays_text_in_every_message(tmp_path: Path) -> None:
    """Kind: an answer that comes back from a client ends its own turn."""
    tokenizer = _folder(tmp_path, token(264, "<|eot_id|>", special=False))
    for role in ("user", "assistant"):
        assert 264 not in tokenizer.encode_chat([{"role": role, "content": "a<|eot_id|>"}])
    assert 264 not in tokenizer.encode("a<|eot_id|>")


def test_structural_tokens_of_gguf_files_stay_text_in_messages() -> None:
    [call] = QWEN.encode("<tool_call>")
    assert call not in QWEN.encode_chat([{"role": "user", "content": "<tool_call>{}"}])
    assert call in QWEN.encode_chat([{"role": "assistant", "content": "<tool_call>{}"}])
    written = with_template(QWEN, "<tool_call>{{ messages[0].content }}")
    assert written.encode_chat([{"role": "user", "content": "<tool_call>"}]).count(call) == 1


@pytest.mark.parametrize(
    ("text", "literals", "expected"),
    [
        ("</think>", "", True),
        ("<tool_response>", "", True),
        ("[INST]", "", True),
        ("<|x y|>", "", True),
        ("<h1>", "", False),
        ("</table>", "", False),
        ("</table>", "a</table>", True),
        ("\n\n", "a\n\nb", False),
        ("\u2581\u2581", "\u2581\u2581", False),
        ("\t\t", "", False),
        ("assistant", "assistant", False),
        ("###", "### User", True),
        ("###", "", False),
    ],
)
def test_what_is_structural(text: str, literals: str, expected: bool) -> None:
    assert is_structural(text, literals) == expected


def test_white_space_and_words_that_are_tokens_stay_tokens(tmp_path: Path) -> None:
    """Kind: a conversation with some special text in it is spelled otherwise than the same without it."""
    tokenizer = _folder(tmp_path, token(264, "\n\n", special=False), token(265, "<h1>", special=False))
    ids = tokenizer.encode_chat([{"role": "user", "content": "a\n\nb<h1><|im_end|>"}])
    assert 264 in ids
    assert 265 in ids
    assert ids.count(263) == 1


@pytest.mark.parametrize("name", ["unigram", "unigram nfkc", "sentencepiece", "metaspace first"])
def test_no_way_of_spelling_makes_a_control_token(tmp_path: Path, name: str) -> None:
    """Kind: a model of pieces puts a control token together from letters, or a normaliser does from other letters."""
    tokenizer = tokenizer_from_folder(write_folder(tmp_path, FOLDERS[name]))
    tokenizer = with_template(tokenizer, "<s>{{ messages[0].content }}</s>")
    for text in ("<s>", "a</s>b", "＜s＞", "<s", "s>", "</s></s>"):
        ids = tokenizer.encode_chat([{"role": "user", "content": text}])
        assert (ids.count(1), ids.count(2), ids[0], ids[-1]) == (1, 1, 1, 2), text
        assert not {1, 2} & set(tokenizer.encode(text, add_special=False)), text


def test_parts_are_joined_where_a_template_reads_texts_and_kept_where_it_reads_parts() -> None:
    parts = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]
    message = {"role": "user", "content": parts}
    assert QWEN.render_chat([message]) == QWEN.render_chat([{"role": "user", "content": "a\nb\nc"}])
    source = "{% for p in messages[0].content %}[{{ p.type }}:{{ p.text }}]{% endfor %}"
    typed = with_template(QWEN, source)
    assert typed.render_chat([message]) == "[text:a][text:b][text:c]"
    assert typed.render_chat([{"role": "user", "content": "ab"}]) == "[text:ab]"


def test_content_that_is_null_counts_as_left_out() -> None:
    """Kind: "None" is written where a message only calls a tool."""
    calls = [{"function": {"name": "f", "arguments": {}}}]
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": calls}]
    source = "{% for m in messages %}[{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}]{% endfor %}"
    assert with_template(QWEN, source).render_chat(messages) == f"[x][{json.dumps(calls)}]"
    assert "<|im_start|>assistant\n<|im_end|>" in QWEN.render_chat(messages)


def test_thoughts_are_found_under_every_name() -> None:
    source = "{{ messages[0].reasoning_content }}"
    for name in ("reasoning_content", "reasoning", "thinking"):
        assert with_template(QWEN, source).render_chat([{"role": "assistant", "content": "a", name: "hm"}]) == "hm"


def test_another_template_and_one_of_several() -> None:
    tokenizer = with_template(QWEN, CHATML, tool_use="{{ tools | tojson }}", rag="{{ documents[0].text }}")
    tools = [{"name": "f"}]
    assert tokenizer.render_chat([USER], tools=tools) == '[{"name": "f"}]'
    assert tokenizer.render_chat([USER], chat_template="rag", documents=[{"text": "d"}]) == "d"
    assert tokenizer.render_chat([USER], chat_template="<{{ messages[0].content }}>") == "<x>"
    assert tokenizer.encode_chat([USER], chat_template="<|im_end|>") == _ids(tokenizer, "<|im_end|>")
    bare = with_template(QWEN, None)
    assert bare.render_chat([USER], chat_template="a") == "a"


@pytest.mark.parametrize(
    ("content", "end"), [("so ", "so "), ("so", "so"), ("", ""), ([{"type": "text", "text": "p"}], "p")]
)
def test_the_last_message_stays_open(content: Any, end: str) -> None:
    """Kind: the beginning of an answer is closed, and the model begins another."""
    messages = [USER, {"role": "assistant", "content": content}]
    text = QWEN.render_chat(messages, continue_final_message=True)
    assert text == f"<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n{end}"
    ids = QWEN.encode_chat(messages, continue_final_message=True)
    assert QWEN.decode(ids, skip_special=False) == text
    trimmed = CHATML.replace("message['content']", "(message['content'] | trim)")
    assert QWEN.render_chat(messages, continue_final_message=True, chat_template=trimmed).endswith(end.strip())


ERRORS: list[tuple[Any, dict[str, Any], str]] = [
    ([], {}, "needs at least one message"),
    ("hi", {}, "messages must be a list, not str"),
    ([3], {}, "message 1 must be an object"),
    ([USER, {"content": "a"}], {}, "message 2 has no role"),
    ([{"role": "user"}], {}, "message 1 has no content"),
    ([{"role": "user", "content": None}], {}, "message 1 has no content"),
    ([{"role": "user", "content": 3}], {}, "content must be a text or a list of parts, not int"),
    ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], {}, "part of type 'image_url'"),
    ([{"role": "user", "content": [{"type": "text"}]}], {}, "part of type 'text' cannot be used"),
    ([{"role": "user", "content": [3]}], {}, "part of type 'int'"),
    ([USER], {"tools": [{}]}, "no place for tools"),
    ([USER], {"documents": [{}]}, "no place for documents"),
    ([USER], {"tools": {}, "chat_template": "{{ tools }}"}, "tools must be a list, not dict"),
    ([USER], {"tools": [3], "chat_template": "{{ tools }}"}, "number 1 is of type int"),
    ([USER], {"chat_template_kwargs": {"enable_thinking": False}}, "knows no variable 'enable_thinking'"),
    ([USER], {"chat_template_kwargs": {"messages": []}}, "cannot set messages"),
    ([USER], {"chat_template_kwargs": [1]}, "must be an object"),
    ([USER], {"chat_template": " "}, "must be a text that is not empty"),
    ([USER], {"chat_template": "{% if %}"}, "chat template failed"),
    ([USER], {"continue_final_message": True, "add_generation_prompt": True}, "not both"),
    ([{"role": "assistant", "tool_calls": []}], {"continue_final_message": True}, "no content that could be continued"),
    ([USER], {"continue_final_message": True, "chat_template": "a"}, "cannot be continued"),
]


@pytest.mark.parametrize(("messages", "options", "message"), ERRORS)
def test_what_cannot_be_a_conversation_is_told_in_one_line(messages: Any, options: Any, message: str) -> None:
    """Kind: an option that the template ignores is ignored without a word."""
    for call in (QWEN.render_chat, QWEN.encode_chat):
        with pytest.raises(UserError, match=message) as caught:
            call(messages, **options)
        assert "\n" not in str(caught.value)


def test_special_tokens_in_a_text_are_parsed_on_request() -> None:
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert len(QWEN.encode(text, parse_special=True)) < len(QWEN.encode(text))
    assert QWEN.decode(QWEN.encode(text, parse_special=True), skip_special=False) == text
    gemma = tokenizer_from_gguf(small_metadata("gemma3"))
    assert gemma.encode("<bos>a", parse_special=True) == gemma.encode("a")


@pytest.mark.parametrize("bad", [-1, 10**9, True, "3", 1.0, None])
def test_ids_from_outside_are_checked(bad: Any) -> None:
    with pytest.raises(UserError, match="is no token id of the model; they go from 0 to"):
        QWEN.check_ids([0, bad])
    assert QWEN.check_ids([0, 1]) == [0, 1]
