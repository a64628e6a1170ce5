"""What people point at that is not a whole model in a form that can be read: what it is, and what to do instead."""

import json
from collections.abc import Iterable, Mapping, Sized
from pathlib import Path

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.files import read_text

_POINTER = b"version https://git-lfs.github.com/spec/"
_BEGINNINGS = {
    b"PK\x03\x04": "a zip file, such as PyTorch writes",
    b"tjgg": "a file of a time before GGUF; convert the model anew",
    b"fmgg": "a file of a time before GGUF; convert the model anew",
    b"lmgg": "a file of a time before GGUF; convert the model anew",
    b"<!DO": "a web page",
    b"<!do": "a web page",
    b"<htm": "a web page",
}
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx", "onnx/*.onnx")
_MERGE = "merge it into its base model first (merge_and_unload in peft) and give the result"


def refuse_pointer(path: Path, beginning: bytes) -> None:
    """Raise ModelFileError where a file begins as what git keeps in place of a large file that was not fetched."""
    if beginning.startswith(_POINTER):
        raise ModelFileError(f"{path}: is only a git-lfs pointer to the file; run `git lfs pull` in its folder")


def refuse_pointers(files: Iterable[Path]) -> None:
    """Raise ModelFileError, as `refuse_pointer`, for the first of these files that is one. Missing files are none."""
    for path in files:
        if path.is_file():
            with path.open("rb") as file:
                refuse_pointer(path, file.read(len(_POINTER)))


def beginning(magic: bytes) -> str:
    """What a file is that begins so (the first four bytes) and is no GGUF file; empty where that is not known."""
    return _BEGINNINGS.get(magic, "")


def gguf_mistake(metadata: Mapping[str, object], tensors: Sized, path: Path) -> UserError | None:
    """The error for a GGUF file that holds something else than a model, None for what may be one."""
    kind, architecture = metadata.get("general.type"), metadata.get("general.architecture")
    if kind == "adapter" or "adapter.type" in metadata:
        return UnsupportedModelError(
            f"{path}: is a LoRA adapter, not a model; merge it into its base model first (llama-export-lora does) "
            "and give the result"
        )
    if kind == "mmproj" or architecture == "clip":
        return UnsupportedModelError(
            f"{path}: is the part of a model that looks at pictures or listens (mmproj); give the file of the language "
            "model that belongs to it"
        )
    if kind == "imatrix":
        return ModelFileError(f"{path}: holds what was measured for quantising (imatrix); give the file of the model")
    if architecture == "controlvector":
        return UnsupportedModelError(f"{path}: is a control vector, which cannot be applied; give the file of a model")
    if not len(tensors) and "tokenizer.ggml.tokens" in metadata:
        return ModelFileError(f"{path}: has no tensors, so it is a vocabulary only; give the file of the whole model")
    return None


def without_config(path: Path) -> UserError:
    """The error for a folder that has no config.json."""
    if (path / "adapter_config.json").exists():
        return UnsupportedModelError(f"{path}: is a LoRA adapter{_base(path)}, not a model; {_MERGE}")
    if (path / "model_index.json").exists():
        return UnsupportedModelError(
            f"{path}: is a diffusers model (model_index.json), which makes pictures; give a language model"
        )
    if file := _language_model(path):
        return ModelFileError(f"{path}: is a folder without config.json; name the file in it, such as {file}")
    if (path / "params.json").exists():
        return UnsupportedModelError(
            f"{path}: is a model in its maker's own form (params.json); give the one converted for transformers"
        )
    if inner := _inner_model(path):
        return ModelFileError(f"{path}: config.json is missing; is {path / inner} the model folder?")
    if other := _other_format(path):
        return UnsupportedModelError(f"{path}: holds {other} and no config.json; give a GGUF file or a model folder")
    if not any(path.iterdir()):
        return ModelFileError(f"{path}: is an empty folder; fetch the model into it, or name another")
    return ModelFileError(
        f"{path}: config.json is missing, so this is not a model folder; give a folder with config.json and "
        "model.safetensors"
    )


def without_weights(path: Path) -> UserError:
    """The error for a folder with a config.json but without weights under a name that is known."""
    if (path / "adapter_config.json").exists():
        return UnsupportedModelError(f"{path}: is a LoRA adapter{_base(path)}, not a model; {_MERGE}")
    if any((path / name).exists() for name in ("quantize_config.json", "quant_config.json")):
        return UnsupportedModelError(
            f"{path}: its weights are quantised (GPTQ or AWQ), which is not supported; use the unquantised model or a "
            "GGUF file"
        )
    if file := _language_model(path):
        return ModelFileError(f"{path}: its weights are in GGUF files; name one of them, such as {file}")
    if found := sorted(file.name for file in path.glob("*.safetensors")):
        return ModelFileError(
            f"{path}: has {found[0]} but neither model.safetensors nor model.safetensors.index.json, which says what "
            "is where; fetch the model again"
        )
    if other := _other_format(path):
        return UnsupportedModelError(
            f"{path}: its weights are in {other}; only safetensors can be read, convert the model"
        )
    return ModelFileError(
        f"{path}: has neither model.safetensors nor model.safetensors.index.json; fetch the model again"
    )


def _base(path: Path) -> str:
    """Which model an adapter was made for, in brackets, where it says so."""
    try:
        base = json.loads(read_text(path / "adapter_config.json"))["base_model_name_or_path"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f" (for {base})" if isinstance(base, str) and base.isprintable() and 0 < len(base) <= 100 else ""


def _language_model(path: Path) -> str:
    """The name of a GGUF file to give: no part of a multimodal model, and of several parts the first."""
    files = sorted(file.name for file in path.glob("*.gguf"))
    return next((name for name in files if "mmproj" not in name.lower()), files[0] if files else "")


def _inner_model(path: Path) -> str:
    """A folder in this one that has a config.json, such as a snapshot in the cache of the hub; empty: none."""
    for pattern in ("*/config.json", "snapshots/*/config.json"):
        if found := sorted(path.glob(pattern)):
            return str(found[0].parent.relative_to(path))
    return ""


def _other_format(path: Path) -> str:
    return next((file.name for pattern in _OTHER_FORMATS for file in sorted(path.glob(pattern))), "")
