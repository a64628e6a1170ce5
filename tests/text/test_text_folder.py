"""Tokenizers from Hugging Face folders agree with those from GGUF files."""

import json
from pathlib import Path
from typing import Any

import pytest
from text_samples import CHATML, read_data, small_metadata
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as RustTokenizer

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.text import Detokenizer, Tokenizer, first_difference, tokenizer_from_folder
from foredraft.text.traced import SAID, WRITTEN, Traced, joined, origins_of


def _write(folder: Path, rust: RustTokenizer, **files: Any) -> Path:
    rust.save(str(folder / "tokenizer.json"))
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    return folder


def _smollm2_folder(folder: Path, metadata: dict[str, Any]) -> Path:
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    rust = RustTokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges))
    rust.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    rust.decoder = decoders.ByteLevel()
    rust.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tokens[:17]])
    config = {
        "bos_token": "<|im_start|>",
        "eos_token": {"content": "<|im_end|>"},
        "chat_template": metadata["tokenizer.chat_template"],
    }
    return _write(folder, rust, tokenizer_config=config, generation_config={"eos_token_id": [2, 0]})


@pytest.fixture(scope="module")
def folder_smollm2(tmp_path_factory: pytest.TempPathFactory, smollm2_metadata: dict[str, object]) -> Tokenizer:
    return tokenizer_from_folder(_smollm2_folder(tmp_path_factory.mktemp("smollm2"), smollm2_metadata))


def test_folder_and_gguf_are_the_same_tokenizer(folder_smollm2: Tokenizer, smollm2: Tokenizer) -> None:
    assert first_difference(folder_smollm2, smollm2) is None
    assert folder_smollm2.fingerprint() == smollm2.fingerprint()
    assert folder_smollm2.eos_ids == smollm2.eos_ids
    assert folder_smollm2.eos_id == smollm2.eos_id == 2
    assert folder_smollm2.bos_id == smollm2.bos_id
    assert folder_smollm2.special_ids == smollm2.special_ids
    for text in read_data("strings.json"):
        for parse_special in (False, True):
            ids = smollm2.encode(text, parse_special=parse_special)
            assert folder_smollm2.encode(text, parse_special=parse_special) == ids
        assert folder_smollm2.decode(ids) == smollm2.decode(ids)
        messages = [{"role": "user", "content": text}]
        assert folder_smollm2.encode_chat(messages) == smollm2.encode_chat(messages)


def _sentencepiece_folder(folder: Path, *, scheme: str, post: bool = True) -> Path:
    words = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        "a",
        "b",
        "\u2581a",
        "ab",
    ]
    rust = RustTokenizer(
        models.BPE(
            {text: i for i, text in enumerate(words)},
            [("\u2581", "a"), ("a", "b")],
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    if scheme == "prepend":
        rust.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    else:
        rust.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", scheme, split=False)
    rust.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            *([] if scheme == "never" else [decoders.Strip(" ", 1, 0)]),
        ]
    )
    rust.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in words[:3]])
    if post:
        rust.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    config = {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": [{"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}</s>"}],
    }
    return _write(folder, rust, tokenizer_config=config)


@pytest.mark.parametrize("scheme", ["prepend", "first", "never"])
def test_sentencepiece_folder(tmp_path: Path, scheme: str) -> None:
    tokenizer = tokenizer_from_folder(_sentencepiece_folder(tmp_path, scheme=scheme))
    assert tokenizer.add_bos
    assert tokenizer.bos_id == 1
    assert tokenizer.eos_ids == {2}
    assert tokenizer.space_prefix == (scheme != "never")
    text = "a ab é</s>中"
    ids = tokenizer.encode(text)
    assert ids[0] == 1
    assert 2 not in ids
    assert tokenizer.decode(ids) == text
    detokenizer = Detokenizer(tokenizer)
    assert "".join([*map(detokenizer.push, ids), detokenizer.finish()]) == text
    chat = tokenizer.encode_chat([{"role": "user", "content": text}])
    assert chat[0] == 1
    assert chat[-1] == 2
    assert not {1, 2} & set(chat[1:-1])
    assert tokenizer.decode(chat[1:-1], at_start=False).removeprefix(" ") == text
    innocent = tokenizer.encode_chat([{"role": "user", "content": "a ab"}])
    assert innocent == tokenizer.encode("<s>a ab</s>", add_special=False, parse_special=True)


def _traced(tokenizer: Tokenizer, *parts: tuple[str, int]) -> list[int]:
    """The ids of a text whose parts are of the given origins."""
    text = joined("", [Traced(part, origin) for part, origin in parts])
    return tokenizer.encoder.encode_traced(text, origins_of(text))


def test_text_behind_a_special_token_gets_no_second_space(tmp_path: Path) -> None:
    """Kind: where some text only looks like a special token, the rest of a conversation gets other spaces."""
    tokenizer = tokenizer_from_folder(_sentencepiece_folder(tmp_path, scheme="first"))
    parsed = tokenizer.encode("</s>ab", parse_special=True, add_special=False)
    said = _traced(tokenizer, ("</s>ab", WRITTEN), ("<s>", SAID))
    assert said[: len(parsed)] == parsed
    assert tokenizer.decode(said[len(parsed) :]) == "<s>"


@pytest.mark.parametrize("side", ["lstrip", "rstrip"])
def test_added_tokens_that_swallow_spaces(tmp_path: Path, side: str) -> None:
    folder = _sentencepiece_folder(tmp_path, scheme="never")
    state = json.loads((folder / "tokenizer.json").read_text())
    state["added_tokens"][2][side] = True
    (folder / "tokenizer.json").write_text(json.dumps(state))
    tokenizer = tokenizer_from_folder(folder)
    parsed = tokenizer.encode("a  </s>  b", parse_special=True)
    assert _traced(tokenizer, ("<s>a  </s>  b", WRITTEN)) == parsed
    said = _traced(tokenizer, ("<s>a  </s>  b", WRITTEN), ("<s>", SAID))
    assert said[: len(parsed)] == parsed
    assert 1 not in said[len(parsed) :]


def test_bos_from_the_configuration(tmp_path: Path) -> None:
    folder = _sentencepiece_folder(tmp_path, scheme="never", post=False)
    assert not tokenizer_from_folder(folder).add_bos
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "add_bos_token": True}))
    assert tokenizer_from_folder(folder).encode("a") == [
        1,
        *tokenizer_from_folder(folder).encode("a", add_special=False),
    ]


def test_chat_template_file_wins(tmp_path: Path) -> None:
    folder = _sentencepiece_folder(tmp_path, scheme="never")
    (folder / "chat_template.jinja").write_text(CHATML)
    assert tokenizer_from_folder(folder).chat_template == CHATML


def test_of_several_chat_templates_the_default_counts(tmp_path: Path) -> None:
    """Kind: a conversation is written in the form that is meant for tools."""
    folder = _sentencepiece_folder(tmp_path, scheme="never")
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    for templates, expected in [(named, "plain"), (named[:1], "tools"), ([], None)]:
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
        assert tokenizer_from_folder(folder).chat_template == expected


@pytest.mark.parametrize("name", ["generation_config", "config"])
@pytest.mark.parametrize("stated", [0, [0, 1]])
def test_ends_stand_in_any_of_the_files(tmp_path: Path, name: str, stated: int | list[int]) -> None:
    """Kind: an end that is given as a number, or in the other file, is missed, and answers go on behind it."""
    folder = _sentencepiece_folder(tmp_path, scheme="never")
    (folder / "tokenizer_config.json").unlink()
    (folder / f"{name}.json").write_text(json.dumps({"eos_token_id": stated}))
    tokenizer = tokenizer_from_folder(folder)
    assert tokenizer.eos_id == 0
    assert tokenizer.eos_ids == {2, *(stated if isinstance(stated, list) else [stated])}  # 2: a known text


def test_padded_table_is_no_difference(tmp_path: Path) -> None:
    """An embedding may have more rows than the folder has tokens; holes hold nothing."""
    metadata = small_metadata("qwen2.5-coder")
    tokens = metadata["tokenizer.ggml.tokens"]
    rust = RustTokenizer(models.BPE({text: i * 2 for i, text in enumerate(tokens[:50])}, []))
    rust.decoder = decoders.ByteLevel()
    tokenizer = tokenizer_from_folder(_write(tmp_path, rust))
    assert tokenizer.vocab_size == 99
    assert tokenizer.token_bytes(1) == b""


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("tokenizer.json", "{", "cannot be read"),
        ("tokenizer.json", "[]", "must hold a JSON object"),
        ("tokenizer.json", "{}", "cannot be read"),
        ("tokenizer.json", '{"model": 1}', "cannot be read"),
        ("tokenizer_config.json", "nonsense", "cannot be read"),
        ("tokenizer_config.json", '{"chat_template": 1}', "must be a text"),
        ("generation_config.json", "[" * 100000, "cannot be read"),
        ("config.json", "\udcff", "cannot be read"),
    ],
)
def test_damaged_folders_are_told_in_one_line(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    folder = _sentencepiece_folder(tmp_path, scheme="never")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ModelFileError, match=message) as caught:
        tokenizer_from_folder(folder)
    assert "\n" not in str(caught.value)


def test_wordpiece_is_refused(tmp_path: Path) -> None:
    rust = RustTokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    rust.decoder = decoders.WordPiece()
    with pytest.raises(UnsupportedModelError, match="WordPiece"):
        tokenizer_from_folder(_write(tmp_path, rust))


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="missing"):
        tokenizer_from_folder(tmp_path / "nowhere")
