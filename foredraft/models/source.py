"""Open a model file or folder: what it is, its tensors, and a check that nothing is missing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.files import user_path
from foredraft.kernels.formats import BLOCK
from foredraft.models.config import ModelConfig
from foredraft.models.folder_config import config_from_folder
from foredraft.models.gguf_config import config_from_gguf
from foredraft.models.gguf_file import GGUFFile
from foredraft.models.mapping import shown
from foredraft.models.mistaken import gguf_mistake, refuse_pointers
from foredraft.models.names import folder_name, text_model_name
from foredraft.models.safetensors_files import SafetensorsFolder
from foredraft.models.tensor_info import TensorInfo

__all__ = ["ModelSource", "TensorInfo", "open_model", "tokenizer_data"]


@dataclass(frozen=True, eq=False)
class ModelSource:
    """An opened model whose tensors are all there and have the right shapes.

    Attributes:
        path: the file or folder.
        kind: where it comes from.
        config: what the model is.
        tensors: the tensors it needs, under GGUF-style names, each with its bytes still in the file.
        tokenizer_data: what the tokenizer is made from: the metadata of a GGUF file, or the folder.
        unused_tensors: names, as the file has them, of tensors that text generation does not need.
    """

    path: Path
    kind: Literal["gguf", "safetensors"]
    config: ModelConfig
    tensors: Mapping[str, TensorInfo]
    tokenizer_data: Mapping[str, object] | Path
    unused_tensors: tuple[str, ...]

    @property
    def num_bytes(self) -> int:
        """Of the tensors, as the file has them."""
        return sum(tensor.data.nbytes for tensor in self.tensors.values())


def open_model(path: str | Path) -> ModelSource:
    """Open a GGUF file, or a folder with config.json and safetensors files.

    Raises ModelFileError when it is missing, damaged or inconsistent, UnsupportedModelError when it is sound
    but foredraft cannot run it.
    """
    path = user_path(path)
    try:
        if path.is_dir():
            return _open_folder(path)
        if path.name.endswith((".safetensors", ".json")) and path.exists():
            raise ModelFileError(f"{path}: is one file of a model folder; give the folder, {path.parent}")
        return _open_gguf(path)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None


def tokenizer_data(path: str | Path) -> Mapping[str, object] | Path:
    """What the tokenizer is made from, as in `ModelSource`, also of a model that cannot be run or has no weights.

    Raises ModelFileError when it is missing or damaged.
    """
    path = user_path(path)
    try:
        if not path.is_dir():
            return GGUFFile(path).metadata
        refuse_pointers(sorted(path.glob("*token*")))
        return path
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error})") from None


def _open_gguf(path: Path) -> ModelSource:
    file = GGUFFile(path)
    if mistake := gguf_mistake(file.metadata, file.tensors, path):
        raise mistake
    config = config_from_gguf(file.metadata, file.tensors, path)
    tensors = {name: _needed(name, shape, file.tensors, path) for name, shape in config.tensor_shapes().items()}
    unused = tuple(name for name in file.tensors if name not in tensors and name != "rope_freqs.weight")
    _refuse_ignored(unused, config, path)
    return ModelSource(path, "gguf", config, tensors, file.metadata, unused)


def _open_folder(path: Path) -> ModelSource:
    folder = SafetensorsFolder(path)
    config = config_from_folder(folder.config, path)
    _refuse_quantised(folder)
    found: dict[str, TensorInfo] = {}
    for name, tensor in folder.tensors.items():
        plain = text_model_name(name)
        if plain in found:
            raise ModelFileError(f"{path}: tensors {shown(found[plain].name)} and {shown(name)} are the same one")
        found[plain] = tensor
    config = replace(config, tied_embeddings=_is_tied(config, folder, found))
    tensors: dict[str, TensorInfo] = {}
    used: set[str] = set()
    for name, shape in config.tensor_shapes().items():
        plain = folder_name(name, config.architecture)
        tensor = _needed(plain, shape, found, path)
        tensors[name] = replace(tensor, name=name)
        used.add(plain)
    unused = {plain: tensor.name for plain, tensor in found.items() if plain not in used}
    _refuse_ignored(tuple(unused), config, path)
    return ModelSource(path, "safetensors", config, tensors, path, tuple(unused.values()))


def _is_tied(config: ModelConfig, folder: SafetensorsFolder, found: Mapping[str, TensorInfo]) -> bool:
    """Whether the embedding is the output matrix too.

    As in transformers, a matrix in the file that differs from the embedding counts more than what
    config.json says.
    """
    output, embedding = found.get("lm_head.weight"), found.get("model.embed_tokens.weight")
    if output is None or embedding is None:
        return config.tied_embeddings
    if not config.tied_embeddings or "tie_word_embeddings" not in folder.config:
        return False
    return output.format == embedding.format and np.array_equal(output.data, embedding.data)


def _needed(name: str, shape: tuple[int, ...], found: Mapping[str, TensorInfo], path: Path) -> TensorInfo:
    tensor = found.get(name)
    if tensor is None:
        raise ModelFileError(f"{path}: tensor {name!a} is missing")
    if tensor.shape != shape:
        raise ModelFileError(f"{path}: tensor {name!a} has shape {tensor.shape}, expected {shape}")
    if tensor.format not in BLOCK:
        raise UnsupportedModelError(f"{path}: tensor {name!a} is stored as {tensor.format}, which is not supported")
    return tensor


_OF_A_LAYER = re.compile(r"(blk|model\.layers)\.(\d{1,9})\.")
# Frequencies that old files carry and that follow from the configuration.
_HARMLESS = re.compile(r"(blk|model\.layers)\.\d+\.(attn_rot_embd\.|rope_freqs\.|self_attn\.rotary_emb\.inv_freq)")


def _refuse_ignored(unused: tuple[str, ...], config: ModelConfig, path: Path) -> None:
    """A tensor of a layer that is not needed would change the answers if it were ignored, so it is an
    error."""
    for name in unused:
        layer = _OF_A_LAYER.match(name)
        if layer is None or _HARMLESS.match(name):
            continue
        if int(layer.group(2)) >= config.num_layers:
            raise ModelFileError(
                f"{path}: it says that it has {config.num_layers} layers, but it has a tensor {shown(name)}"
            )
        raise UnsupportedModelError(
            f"{path}: tensor {shown(name)} is not part of a {config.architecture} model as foredraft knows it"
        )


_QUANTISED = {
    ".qweight": "GPTQ or AWQ",
    ".qzeros": "GPTQ or AWQ",
    ".weight_scale_inv": "fp8",
    ".weight_scale": "fp8 or int8",
    ".weight_packed": "compressed-tensors",
    ".absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
}


def _refuse_quantised(folder: SafetensorsFolder) -> None:
    """Weights quantised by a method that config.json does not name are known by what they bring along."""
    for name, tensor in folder.tensors.items():
        method = next((method for ending, method in _QUANTISED.items() if name.endswith(ending)), None)
        if method is None and name.endswith("_proj.weight") and tensor.format.startswith("F8"):
            method = "fp8"
        if method is not None:
            raise UnsupportedModelError(
                f"{folder.path}: its weights are quantised ({method}, tensor {shown(name)}), "
                "which is not supported; use the unquantised model or a GGUF file"
            )
