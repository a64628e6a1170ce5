"""What people point at that is no model: one line says what it is and what to do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGUFWriter
from helpers.tiny import TinyModel

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.models.source import open_model
from foredraft.models.store.hub import choose_files

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 98362432\n"
CONFIG = json.dumps(TinyModel().config())


def refused(path: Path, kind: type[UserError] = UserError) -> str:
    with pytest.raises(kind) as error:
        open_model(path)
    line = str(error.value)
    assert line.startswith(f"{path}")
    assert "\n" not in line
    return line


FOLDERS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "adapter": (
        {"adapter_config.json": '{"base_model_name_or_path": "org/base"}', "adapter_model.safetensors": ""},
        ("is a LoRA adapter (for org/base), not a model", "merge it"),
    ),
    "adapter with a broken description": ({"adapter_config.json": "["}, ("is a LoRA adapter, not a model", "merge it")),
    "adapter with a config": (
        {"config.json": CONFIG, "adapter_config.json": "{}", "adapter_model.safetensors": ""},
        ("is a LoRA adapter, not a model",),
    ),
    "diffusers": ({"model_index.json": "{}", "unet/config.json": "{}"}, ("diffusers", "give a language model")),
    "gguf parts": (
        {"m-00002-of-00002.gguf": "", "m-00001-of-00002.gguf": "", "mmproj-m.gguf": "", "a-mmproj.gguf": ""},
        ("name the file in it, such as m-00001-of-00002.gguf",),
    ),
    "gguf beside a config": ({"config.json": CONFIG, "m.gguf": ""}, ("name one of them, such as m.gguf",)),
    "maker's form": ({"params.json": "{}", "consolidated.00.pth": ""}, ("params.json", "converted for transformers")),
    "cache of the hub": ({"snapshots/ab12/config.json": "{}", "refs/main": ""}, ("snapshots/ab12 the model folder?",)),
    "onnx": ({"config.json": CONFIG, "onnx/model.onnx": ""}, ("weights are in model.onnx; only safetensors",)),
    "onnx alone": ({"model.onnx": ""}, ("holds model.onnx and no config.json", "give a GGUF file or a model folder")),
    "tensorflow": ({"config.json": CONFIG, "tf_model.h5": ""}, ("weights are in tf_model.h5; only safetensors",)),
    "gptq of old": (
        {"config.json": CONFIG, "quantize_config.json": "{}", "gptq_model-4bit-128g.safetensors": ""},
        ("quantised (GPTQ or AWQ)", "use the unquantised model"),
    ),
    "awq": (
        {"config.json": json.dumps({**TinyModel().config(), "quantization_config": {"quant_method": "awq"}}),
         "model.safetensors": "\x02\0\0\0\0\0\0\0{}"},
        ("quantised by 'awq'", "use the unquantised model"),
    ),
    "parts without an index": (
        {"config.json": CONFIG, "model-00001-of-00002.safetensors": ""},
        ("has model-00001-of-00002.safetensors but neither", "fetch the model again"),
    ),
    "empty": ({}, ("is an empty folder; fetch the model into it",)),
    "anything": ({"readme.txt": ""}, ("config.json is missing, so this is not a model folder",)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_is_no_model(tmp_path: Path, name: str) -> None:
    """Kind: a folder of another kind is only said to lack a file, or to be damaged."""
    files, parts = FOLDERS[name]
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    line = refused(tmp_path)
    for part in parts:
        assert part in line


def _metadata(**values: str) -> Callable[[GGUFWriter], None]:
    def add(writer: GGUFWriter) -> None:
        for key, value in values.items():
            writer.add_string(key.replace("__", "."), value)

    return add


GGUFS: dict[str, tuple[str, Callable[[GGUFWriter], None], type[UserError], str]] = {
    "adapter": ("llama", _metadata(general__type="adapter", adapter__type="lora"), UnsupportedModelError, "is a LoRA"),
    "old adapter": ("llama", _metadata(adapter__type="lora"), UnsupportedModelError, "is a LoRA adapter"),
    "mmproj": ("clip", _metadata(general__type="mmproj"), UnsupportedModelError, "give the file of the language"),
    "old mmproj": ("clip", _metadata(), UnsupportedModelError, "(mmproj); give the file of the language model"),
    "imatrix": ("imatrix", _metadata(general__type="imatrix"), ModelFileError, "(imatrix); give the file of the model"),
    "control vector": ("controlvector", _metadata(), UnsupportedModelError, "is a control vector"),
    "vocabulary": ("llama", TinyModel().add_metadata, ModelFileError, "is a vocabulary only; give the file"),
}  # fmt: skip


@pytest.mark.parametrize("name", GGUFS)
def test_a_gguf_file_that_is_no_model(tmp_path: Path, name: str) -> None:
    """Kind: a GGUF file of another kind is only said to lack a key or a tensor."""
    architecture, add, kind, part = GGUFS[name]
    path = tmp_path / "file.gguf"
    writer = GGUFWriter(path, architecture)
    add(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert part in refused(path, kind)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]
)
def test_a_folder_whose_files_git_lfs_has_not_fetched(tmp_path: Path, name: str) -> None:
    """Kind: the pointer that git-lfs leaves is said to be a damaged file."""
    TinyModel().write_folder(tmp_path)
    (tmp_path / name).write_bytes(POINTER)
    assert f"{name}: is only a git-lfs pointer to the file; run `git lfs pull` in its folder" in refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (POINTER, "is only a git-lfs pointer to the file"),
        (b"PK\x03\x04" + bytes(60), "is not a GGUF file but a zip file, such as PyTorch writes"),
        (b"tjgg" + bytes(60), "is not a GGUF file but a file of a time before GGUF; convert the model anew"),
        (b"<!DOCTYPE html><html></html>", "is not a GGUF file but a web page"),
        (b"something else", "it does not start with 'GGUF'"),
    ],
)
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes, part: str) -> None:
    """Kind: a file of another kind is only said not to be GGUF."""
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert part in refused(path, ModelFileError)


def test_an_adapter_on_the_hub() -> None:
    """Kind: an adapter is only said to lack files."""
    with pytest.raises(ModelFileError, match="org/lora holds a LoRA adapter, not a model; merge it"):
        choose_files("org/lora", ["adapter_config.json", "adapter_model.safetensors"], None)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
def test_a_byte_order_mark_in_a_model_folder(tmp_path: Path, name: str) -> None:
    """Kind: a UTF-8 byte order mark makes a model folder damaged."""
    TinyModel().write_folder(tmp_path, num_shards=2)
    path = tmp_path / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert open_model(tmp_path).config.num_layers == 2


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: ~ in a path that no shell has seen is the name of a folder."""
    TinyModel().write_folder(tmp_path / "model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_model("~/model").path == tmp_path / "model"
