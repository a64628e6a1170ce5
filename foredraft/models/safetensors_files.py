"""A small and strict reader of model folders: config.json and safetensors files, whole or in shards.

Source of the format: the README of the safetensors library. It is: eight bytes with the length of the header,
the header in JSON (name -> dtype, shape, place of the data), the data. As in that library, the data of the
tensors must fill the rest of the file without holes or overlaps. Weights stay in the memory-mapped files.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.files import BYTE_ORDER_MARK
from foredraft.models.mapping import map_file, shown
from foredraft.models.mistaken import refuse_pointers, without_config, without_weights
from foredraft.models.tensor_info import TensorInfo

CONFIG = "config.json"
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_SIDE_FILES = ("*.json", "*.jinja", "tokenizer.model")

# F64 and the whole numbers occur beside the weights; a tensor that is needed must be in a format of
# formats.BLOCK.
_DTYPE_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}

_BYTE_ORDER_MARK = BYTE_ORDER_MARK.encode()
_MAX_HEADER = 1 << 26
_MAX_JSON = 1 << 26
_MAX_SHARDS = 10_000


class SafetensorsFolder:
    """A folder with a model as Hugging Face keeps it.

    Attributes:
        path: the folder.
        config: config.json as it stands.
        tensors: name in the file -> TensorInfo, of all shards. `format` is the dtype in the file, which for
            tensors that are not weights may be one that is not in `foredraft.kernels.formats.BLOCK`.

    Raises ModelFileError when something is missing or damaged, and UnsupportedModelError when there are
    weights of another kind only.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / CONFIG).exists():
            raise without_config(self.path)
        refuse_pointers(file for pattern in _SIDE_FILES for file in sorted(self.path.glob(pattern)))
        self.config = read_json(self.path / CONFIG)
        self.tensors: dict[str, TensorInfo] = {}
        if (self.path / WHOLE).exists():
            self.tensors = read_safetensors(self.path / WHOLE)
        elif (self.path / INDEX).exists():
            self._read_shards()
        else:
            raise without_weights(self.path)

    def _read_shards(self) -> None:
        index = self.path / INDEX
        places = read_json(index).get("weight_map")
        if not isinstance(places, dict) or not places or not all(_is_file_name(name) for name in places.values()):
            raise ModelFileError(f"{index}: 'weight_map' must map the names of tensors to the names of shards")
        shards = sorted(cast(dict[str, str], places).items(), key=lambda place: place[1])
        names = list(dict.fromkeys(shard for _, shard in shards))
        if len(names) > _MAX_SHARDS:
            raise ModelFileError(f"{index}: lists {len(names)} shards; the file is damaged")
        for name in names:
            shard = self.path / name
            if not shard.exists():
                raise ModelFileError(f"{self.path}: shard {shown(name)} is missing; fetch the model again")
            for tensor_name, tensor in read_safetensors(shard).items():
                if tensor_name in self.tensors:
                    raise ModelFileError(f"{shard}: tensor {shown(tensor_name)} is also in another shard")
                if places.get(tensor_name, name) != name:
                    raise ModelFileError(f"{shard}: tensor {shown(tensor_name)} is in another shard by {INDEX}")
                self.tensors[tensor_name] = tensor
        for tensor_name, name in shards:
            if tensor_name not in self.tensors:
                raise ModelFileError(f"{self.path / name}: tensor {shown(tensor_name)} of {INDEX} is missing")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and name == Path(name).name and name.endswith(".safetensors") and "\0" not in name


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file. Raises ModelFileError."""
    mapped, data = map_file(path)
    if data.size > _MAX_JSON:
        raise ModelFileError(f"{path}: is too large for a JSON file ({data.size} bytes)")
    return _parse_json(mapped[:].removeprefix(_BYTE_ORDER_MARK), path, "the file")


def _parse_json(text: bytes, path: Path, what: str) -> dict[str, object]:
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ModelFileError(f"{path}: {what} is nested too deeply; it is damaged") from None
    except ValueError as error:  # JSON, UTF-8, duplicate names and whole numbers of thousands of digits
        reason = str(error).splitlines()[0][:100]
        raise ModelFileError(f"{path}: {what} is not valid JSON ({reason}); it is damaged, fetch it again") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: {what} must be a JSON object")
    return value


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {ascii(twice)[:60]} occurs twice")
    return out


def read_safetensors(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file, under the names they have there. Raises ModelFileError."""
    mapped, data = map_file(path)
    if data.size < 8:
        raise ModelFileError(f"{path}: is not a safetensors file, it has only {data.size} bytes; fetch it again")
    length = int.from_bytes(mapped[:8], "little")
    if length > min(_MAX_HEADER, data.size - 8):
        raise ModelFileError(
            f"{path}: its header claims {length} bytes, more than the file can hold; it is truncated or damaged"
        )
    header = _parse_json(mapped[8 : 8 + length], path, "the header")
    content = data[8 + length :]
    entries = {name: _read_entry(name, entry, path) for name, entry in header.items() if name != "__metadata__"}
    _check_places(entries, content.size, path)
    return {name: tensor_of(name, entry, content) for name, entry in entries.items()}


_Entry = tuple[str, tuple[int, ...], int, int]


def tensor_of(name: str, entry: _Entry, content: NDArray[np.uint8]) -> TensorInfo:
    """The tensor that an entry (dtype, shape, start, end) of the header describes."""
    dtype, shape, start, end = entry
    return TensorInfo(name, shape, dtype, content[start:end])


def _read_entry(name: str, entry: object, path: Path) -> _Entry:
    label = shown(name)
    if not isinstance(entry, Mapping):
        raise ModelFileError(f"{path}: the entry of tensor {label} must be a JSON object; the file is damaged")
    dtype, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(place) or len(place) != 2:
        raise ModelFileError(f"{path}: the entry of tensor {label} lacks dtype, shape or data_offsets")
    if dtype not in _DTYPE_BYTES:
        raise UnsupportedModelError(f"{path}: tensor {label} has the unknown dtype {shown(dtype)}")
    size = math.prod(shape) * _DTYPE_BYTES[dtype] if len(shape) <= 8 else -1
    if place[1] - place[0] != size:
        raise ModelFileError(
            f"{path}: tensor {label} of shape {tuple(shape)[:8]} in {dtype} does not take the bytes "
            f"{place[0]} to {place[1]}; the file is damaged"
        )
    return dtype, tuple(shape), place[0], place[1]


def _are_sizes(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < 1 << 48 for size in value)


def _check_places(entries: Mapping[str, _Entry], size: int, path: Path) -> None:
    end = 0
    for name, (_, _, first, last) in sorted(entries.items(), key=lambda item: item[1][2:]):
        if first != end:
            raise ModelFileError(
                f"{path}: the data of tensor {shown(name)} starts at byte {first}, not {end}; the file is damaged"
            )
        end = last
    if end != size:
        what = "truncated or damaged, fetch it again" if end > size else "damaged"
        raise ModelFileError(f"{path}: its tensors take {end} bytes, but {size} are there; it is {what}")
