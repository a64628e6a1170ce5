"""Small vocabularies and expected ids for the tests of foredraft.text."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from foredraft.text import Tokenizer
from foredraft.text.vocabulary import byte_alphabet

DATA = Path(__file__).resolve().parent / "data"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

GEMMA = (
    "{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}"
    "{%- set first = messages[0]['content'] + '\n\n' -%}{%- set loop_messages = messages[1:] -%}"
    "{%- else -%}{%- set first = '' -%}{%- set loop_messages = messages -%}{%- endif -%}"
    "{%- for message in loop_messages -%}"
    "{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Conversation roles must alternate') }}{%- endif -%}"
    "{%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}"
    "{{ '<start_of_turn>' + role + '\n' + (first if loop.first else '') }}"
    "{{ message['content'] | trim }}{{ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)


@cache
def read_data(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def small_metadata(name: str) -> dict[str, Any]:
    """Metadata of a small vocabulary cut out of a real one ('qwen2.5-coder' or 'gemma3')."""
    return dict(read_data(f"small_{name}.json")["metadata"])


def tiny_bpe(num_real: int = 60, size: int = 64, **more: Any) -> dict[str, Any]:
    """Metadata of a byte-level vocabulary with `num_real` tokens, padded to `size`."""
    letters = list(byte_alphabet())
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters[: num_real - 3]]
    tokens += [f"[PAD{i}]" for i in range(num_real, size)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (num_real - 3) + [5] * (size - num_real),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def tiny_spm(**more: Any) -> dict[str, Any]:
    """Metadata of a Llama-2-like vocabulary: bytes, a few words, a space before the first word."""
    words = [
        "\u2581",
        "a",
        "b",
        "c",
        "ab",
        "\u2581a",
        "\u2581ab",
        "bc",
        "\u2581\u2581",
        "d",
        "é",
        "\u2581abc",
    ]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    scores = [0.0] * 259 + [-20.0, -21.0, -22.0, -23.0, -3.0, -2.0, -1.0, -4.0, -5.0, -24.0, -25.0, -0.5]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        **{f"tokenizer.ggml.{key}": value for key, value in more.items()},
    }


def with_template(tokenizer: Tokenizer, template: str | None, **named: str) -> Tokenizer:
    """The tokenizer with another chat template, and others by name."""
    return replace(tokenizer, templates=replace(tokenizer.templates, default=template, named=named))


def byte_folder(folder: Path, **changes: Any) -> Path:
    """Write a folder whose vocabulary has single bytes and a few words. changes: fields of tokenizer.json."""
    words = ["\u0120a", "ab", "caf", "\u0120\u0120"]
    vocab = {text: i for i, text in enumerate([*byte_alphabet(), *words])}
    merges = [["\u0120", "a"], ["a", "b"], ["c", "a"], ["ca", "f"], ["\u0120", "\u0120"]]
    vocab["ca"] = len(vocab)
    state = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(len(vocab), "<|endoftext|>"), _added(len(vocab) + 1, "<|im_end|>")],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        **changes,
    }
    (folder / "tokenizer.json").write_text(json.dumps(state), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}), encoding="utf-8")
    return folder


def _added(token_id: int, text: str, *, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token_id, "content": text, "special": special, **flags}
