"""Open a model file or folder: what it is, its tensors, and a check that nothing is missing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.models.config import ModelConfig
from foredraft.models.gguf_config import config_from_gguf
from foredraft.models.gguf_file import GGUFFile
from foredraft.models.tensor_info import TensorInfo

__all__ = ["ModelSource", "TensorInfo", "open_model"]


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


def open_model(path: str | Path) -> ModelSource:
    """Open a GGUF file or a folder with config.json and safetensors files.

    Raises ModelFileError when it is missing, damaged or inconsistent, UnsupportedModelError when it is sound but
    foredraft cannot run it.
    """
    path = Path(path)
    return _open_gguf(path)


def _open_gguf(path: Path) -> ModelSource:
    file = GGUFFile(path)
    config = config_from_gguf(file.metadata, file.tensors, path)
    tensors, unused = _choose(config, file.tensors, path)
    return ModelSource(path, "gguf", config, tensors, file.metadata, unused)


_LAYER_TENSOR = re.compile(r"blk\.\d+\.")
# Frequencies that old files carry and that follow from the configuration.
_HARMLESS = re.compile(r"blk\.\d+\.(attn_rot_embd|rope_freqs)\.|rope_freqs\.weight$")


def _choose(
    config: ModelConfig, found: Mapping[str, TensorInfo], path: Path
) -> tuple[dict[str, TensorInfo], tuple[str, ...]]:
    """The tensors the model needs, and the names of the others.

    A tensor of a layer that is not needed would change the answers if it were ignored, so it is an error.
    """
    chosen: dict[str, TensorInfo] = {}
    for name, shape in config.tensor_shapes().items():
        tensor = found.get(name)
        if tensor is None:
            raise ModelFileError(f"{path}: tensor {name!r} is missing")
        if tensor.shape != shape:
            raise ModelFileError(f"{path}: tensor {name!r} has shape {tensor.shape}, expected {shape}")
        chosen[name] = tensor
    unused = tuple(name for name in found if name not in chosen)
    for name in unused:
        if _LAYER_TENSOR.match(name) and not _HARMLESS.match(name):
            raise UnsupportedModelError(
                f"{path}: tensor {ascii(name)} is not part of a {config.architecture} model "
                f"with {config.num_layers} layers as foredraft knows it"
            )
    return chosen, tuple(name for name in unused if name != "rope_freqs.weight")
