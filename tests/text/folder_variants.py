"""Small model folders that differ in one thing each: what a folder may say about its tokens, and where."""

import json
from pathlib import Path
from typing import Any

from text_samples import CHATML, GEMMA

from foredraft.text.vocabulary import byte_alphabet

TEXTS = [
    "Hello ab caf",
    " a",
    "a  ab\n\n cab ",
    "café cafe\u0301 Å",
    "日本 😀",
    "x<|im_end|> y",
    "<s>a</s> ab",
    "a </think> b<tool_response>",
    "1234 don't",
    "",
    "Ａ①ﬁ",
    "\ta<|im_start|>",
    "a <mask> b",
    "foo<extra>ab <|pad|>",
    "A<|IM_END|>b",
]
_THINKING = (
    "{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}{%- endif %}{%- for m in messages %}{%- set content = m.content %}"
    "{%- if m.role == 'assistant' and content and '</think>' in content %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
    "{{- '<|im_start|>' + m.role + '\\n' }}{%- if content is string %}{{- content }}{%- endif %}"
    "{%- if m.tool_calls %}{%- for call in m.tool_calls %}{{- '\\n<tool_call>\\n' }}{{- call.function | tojson }}"
    "{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"
    "{%- endif %}"
)
_PARTS = (
    "{{ bos_token }}{% macro say(m) %}{% for part in m['content'] %}{% if part['type'] == 'text' %}"
    "{{ part['text'] | trim }}{% endif %}{% endfor %}{% endmacro %}{% for m in messages %}"
    "<|im_start|>{{ m['role'] }}:{% if m['content'] is string %}{{ m['content'] }}{% else %}{{ say(m) }}{% endif %}"
    "{% generation %}<|im_end|>{% endgeneration %}{% endfor %}{{ '<|im_start|>' if add_generation_prompt }}"
)
_INST = (
    "{% set ns = namespace(first=true) %}{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token if ns.first }}"
    "{% set ns.first = false %}{{ '[INST] ' ~ (m['content'] | trim) ~ ' [/INST]' }}{% elif m['role'] == 'assistant' %}"
    "{{ '%s%s' % (' ' + m['content'], eos_token) }}{% endif %}{% endfor %}"
)
_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": "é<b>"}}}
_TOOL = {"type": "function", "function": {"name": "f", "description": "é & <b>", "parameters": {"type": "object"}}}
_TURNS = [
    {"role": "user", "content": " ab é\n"},
    {"role": "assistant", "content": "<think>\na\n</think>\n\ncaf"},
    {"role": "user", "content": "1  2"},
]
CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one": ([{"role": "user", "content": " ab é\n"}], {"add_generation_prompt": True}),
    "turns": (_TURNS, {"add_generation_prompt": True}),
    "closed": (_TURNS[:2], {"add_generation_prompt": False}),
    "open": (_TURNS[:2], {"continue_final_message": True}),
    "open blank": ([_TURNS[0], {"role": "assistant", "content": "ab "}], {"continue_final_message": True}),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]}], {}),
    "calls": ([_TURNS[0], {"role": "assistant", "content": None, "tool_calls": [_CALL]}], {"tools": [_TOOL]}),
    "quiet": ([_TURNS[0]], {"add_generation_prompt": True, "chat_template_kwargs": {"enable_thinking": False}}),
}


def token(token_id: int, text: str, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens`."""
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": token_id, "content": text, **plain, **flags}


_BYTES = [*byte_alphabet(), "\u0120a", "ab", "ca", "caf", "\u0120\u0120"]
_ENDS = [token(261, "<|endoftext|>"), token(262, "<|im_start|>"), token(263, "<|im_end|>")]
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_SPLIT = {
    "type": "Split",
    "pattern": {"Regex": r"\p{N}|\p{L}+|\s+|[^\s\p{L}\p{N}]+"},
    "behavior": "Isolated",
    "invert": False,
}
_WORDS = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "\u2581",
    "a",
    "b",
    "c",
    "\u2581a",
    "ab",
    "\u2581\u2581",
]


def _byte_level(**changes: Any) -> dict[str, Any]:
    merges = [["\u0120", "a"], ["a", "b"], ["c", "a"], ["ca", "f"], ["\u0120", "\u0120"]]
    model = {"type": "BPE", "vocab": {text: i for i, text in enumerate(_BYTES)}, "merges": merges}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _ENDS,
        "normalizer": None,
        "pre_tokenizer": _BYTE_LEVEL,
        "post_processor": None,
        "decoder": {**_BYTE_LEVEL, "add_prefix_space": True},
        "model": model,
        **changes,
    }


def _sentencepiece(*, unigram: bool = False, strip: bool = True, **changes: Any) -> dict[str, Any]:
    steps = [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    end = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else []
    vocab = {text: i for i, text in enumerate(_WORDS)}
    merges = [["\u2581", "a"], ["a", "b"], ["\u2581", "\u2581"]]
    bpe = {
        "type": "BPE",
        "vocab": vocab,
        "merges": merges,
        "unk_token": "<unk>",
        "byte_fallback": True,
        "fuse_unk": True,
    }
    scores = [[text, 0.0 if i < 3 else -float(i % 7 + 2)] for i, text in enumerate(_WORDS)]
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return _byte_level(
        added_tokens=[token(0, "<unk>"), token(1, "<s>"), token(2, "</s>")],
        pre_tokenizer=None,
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, _SPACES]},
        post_processor=_template(single),
        decoder={"type": "Sequence", "decoders": [*steps, *end]},
        model={"type": "Unigram", "unk_id": 0, "vocab": scores, "byte_fallback": True} if unigram else bpe,
    ) | changes  # fmt: skip


_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}


def _template(single: list[dict[str, Any]]) -> dict[str, Any]:
    ids = {"<s>": 1, "</s>": 2, "<|endoftext|>": 261, "<|im_end|>": 263}
    named = {item["SpecialToken"]["id"] for item in single if "SpecialToken" in item}
    special = {text: {"id": text, "ids": [ids[text]], "tokens": [text]} for text in sorted(named)}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": special}


def _metaspace(scheme: str, *, split: bool) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split}


def _around(before: str | None, after: str | None) -> dict[str, Any]:
    item = lambda text: [] if text is None else [{"SpecialToken": {"id": text, "type_id": 0}}]  # noqa: E731
    return _template([*item(before), {"Sequence": {"id": "A", "type_id": 0}}, *item(after)])


def _of_normalizers() -> dict[str, dict[str, Any]]:
    kinds: dict[str, Any] = {name.lower(): {"type": name} for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")}
    kinds["nfc lowercase"] = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
    kinds["accents"] = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}
    kinds["strip"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    kinds["replace"] = {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "#"}
    return {f"normalizer {name}": {"tokenizer": _byte_level(normalizer=kind)} for name, kind in kinds.items()}


def _of_pre_tokenizers() -> dict[str, dict[str, Any]]:
    digits = {"type": "Digits", "individual_digits": True}
    plain = {**_BYTE_LEVEL, "use_regex": False}
    kinds: dict[str, Any] = {
        "prefix": {**_BYTE_LEVEL, "add_prefix_space": True},
        "no regex": plain,
        "digits": {"type": "Sequence", "pretokenizers": [digits, _BYTE_LEVEL]},
        "split": {"type": "Sequence", "pretokenizers": [_SPLIT, plain]},
    }
    made = {f"pre-tokenizer {name}": {"tokenizer": _byte_level(pre_tokenizer=kind)} for name, kind in kinds.items()}
    for scheme, split in (("always", True), ("first", False), ("first", True), ("never", False)):
        state = _sentencepiece(normalizer=None, pre_tokenizer=_metaspace(scheme, split=split), strip=scheme != "never")
        made[f"metaspace {scheme}{' split' * split}"] = {"tokenizer": state}
    return made | {
        "sentencepiece": {"tokenizer": _sentencepiece()},
        "unigram": {
            "tokenizer": _sentencepiece(
                unigram=True, normalizer=None, pre_tokenizer=_metaspace("always", split=True)
            )
        },
        "unigram nfkc": {
            "tokenizer": _sentencepiece(
                unigram=True, normalizer={"type": "NFKC"}, pre_tokenizer=_metaspace("first", split=True)
            )
        },
    }  # fmt: skip


def _of_added_tokens() -> dict[str, dict[str, Any]]:
    plain, few = _byte_level(), _byte_level(added_tokens=_ENDS[:2])
    flags = [dict.fromkeys([name], True) for name in ("lstrip", "rstrip", "single_word", "normalized")]
    made: dict[str, dict[str, Any]] = {
        f"flag {next(iter(flag))}": {"tokenizer": _byte_level(added_tokens=[*_ENDS, token(264, "<mask>", **flag)])}
        for flag in flags
    }
    think = [token(264, "</think>", special=False), token(265, "<tool_response>", special=False, normalized=True)]
    end = {str(entry["id"]): {k: v for k, v in entry.items() if k != "id"} for entry in _ENDS}
    made |= {
        "added not special": {"tokenizer": _byte_level(added_tokens=[*_ENDS, *think])},
        "added white space": {"tokenizer": _byte_level(added_tokens=[*_ENDS, token(264, "\n\n", special=False)])},
        "end only named": {"tokenizer": few, "tokenizer_config": {"eos_token": "<|im_end|>"}},
        "end only in decoder": {
            "tokenizer": few,
            "tokenizer_config": {"eos_token": "<|im_end|>", "added_tokens_decoder": end},
        },
        "decoder alone": {
            "tokenizer": _byte_level(added_tokens=[]),
            "tokenizer_config": {"eos_token": "<|im_end|>", "added_tokens_decoder": end},
        },
        "named as an object": {
            "tokenizer": few,
            "tokenizer_config": {"eos_token": {"content": "<|im_end|>", "lstrip": True, "__type": "AddedToken"}},
        },
        "special tokens map": {
            "tokenizer": few,
            "special_tokens_map": {"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|endoftext|>"},
        },
        "map and settings": {
            "tokenizer": plain,
            "special_tokens_map": {"eos_token": "<|endoftext|>"},
            "tokenizer_config": {"eos_token": "<|im_end|>"},
        },
        "map is older than decoder": {
            "tokenizer": plain,
            "special_tokens_map": {"eos_token": "<|endoftext|>", "mask_token": "<mask>"},
            "tokenizer_config": {"eos_token": "<|im_end|>", "added_tokens_decoder": end},
        },
        "added tokens file": {"tokenizer": plain, "added_tokens": {"<extra>": 264, "<mask>": 265}},
        "added and named": {
            "tokenizer": plain,
            "added_tokens": {"<extra>": 264},
            "special_tokens_map": {"additional_special_tokens": ["<extra>"], "pad_token": "<|pad|>"},
        },
        "additional": {"tokenizer": plain, "tokenizer_config": {"additional_special_tokens": ["<extra>", "<mask>"]}},
        "extra list": {"tokenizer": plain, "tokenizer_config": {"extra_special_tokens": ["<extra>"]}},
        "extra by name": {"tokenizer": plain, "tokenizer_config": {"extra_special_tokens": {"image_token": "<extra>"}}},
        "own name": {"tokenizer": plain, "tokenizer_config": {"image_token": "<extra>", "pad_token": "<|pad|>"}},
        "a word as a special token": {"tokenizer": plain, "tokenizer_config": {"sep_token": "caf"}},
    }
    return made


def _of_ends() -> dict[str, dict[str, Any]]:
    cut = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 20}, "direction": "Left", "pad_to_multiple_of": None, "pad_id": 261, "pad_type_id": 0}
    settings = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    both = {"add_bos_token": True, "add_eos_token": True}
    first = [
        {"type": "ByteLevel"} | {k: v for k, v in _BYTE_LEVEL.items() if k != "type"},
        _around("<|endoftext|>", None),
    ]
    return {
        "truncation": {"tokenizer": _byte_level(truncation=cut)},
        "padding": {"tokenizer": _byte_level(padding={**pad, "pad_token": "<|endoftext|>"})},
        "bos": {"tokenizer": _byte_level(post_processor=_around("<|endoftext|>", None)), "tokenizer_config": settings},
        "bos and eos": {
            "tokenizer": _byte_level(post_processor=_around("<|endoftext|>", "<|im_end|>")),
            "tokenizer_config": settings,
        },
        "bos of a sequence": {
            "tokenizer": _byte_level(post_processor={"type": "Sequence", "processors": first}),
            "tokenizer_config": settings,
        },
        "bos is not wanted": {
            "tokenizer": _byte_level(post_processor=_BYTE_LEVEL),
            "tokenizer_config": {**settings, "add_bos_token": False},
        },
        "flags alone": {"tokenizer": _byte_level(), "tokenizer_config": {**settings, **both}},
    }  # fmt: skip


def _of_templates() -> dict[str, dict[str, Any]]:
    state = _byte_level(
        added_tokens=[*_ENDS, token(264, "</think>", special=False), token(265, "<tool_call>", special=False)]
    )
    settings = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    named = [{"name": "tool_use", "template": _THINKING}, {"name": "default", "template": CHATML}]
    names = "{{ bos_token }}{{ pad_token }}{{ messages[0].content }}{{ unk_token }}{{ image_token }}"
    texts = {"chatml": CHATML, "thinking": _THINKING, "parts": _PARTS, "inst": _INST, "gemma": GEMMA, "names": names}
    made = {
        f"template {name}": {"tokenizer": state, "tokenizer_config": {**settings, "chat_template": text}}
        for name, text in texts.items()
    }
    return made | {
        "template inst sentencepiece": {
            "tokenizer": _sentencepiece(),
            "tokenizer_config": {"bos_token": "<s>", "eos_token": "</s>", "chat_template": _INST},
        },
        "templates by name": {"tokenizer": state, "tokenizer_config": {**settings, "chat_template": named}},
        "template file": {
            "tokenizer": state,
            "tokenizer_config": {**settings, "chat_template": _PARTS},
            "chat_template.jinja": CHATML,
        },
        "template files": {
            "tokenizer": state,
            "tokenizer_config": settings,
            "chat_template.jinja": CHATML,
            "additional_chat_templates/tool_use.jinja": _THINKING,
        },
    }  # fmt: skip


FOLDERS: dict[str, dict[str, Any]] = {
    "plain": {"tokenizer": _byte_level()},
    **_of_normalizers(),
    **_of_pre_tokenizers(),
    **_of_added_tokens(),
    **_of_ends(),
    **_of_templates(),
}


def write_folder(folder: Path, files: dict[str, Any]) -> Path:
    """Write the files of a variant: texts as they are, others as JSON."""
    for name, value in files.items():
        path = folder / (name if isinstance(value, str) else f"{name}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return folder
