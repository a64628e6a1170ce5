"""A small and strict reader of GGUF files (versions 2 and 3, little endian).

Source of the format: docs/gguf.md and src/gguf.cpp of ggml. Every count, length and offset is checked
against the size of the file before it is used, so a damaged file costs neither memory nor time, and its
fault is told in one line. Weights stay in the memory-mapped file.
"""

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.errors import ModelFileError, UnsupportedModelError
from foredraft.kernels.formats import BLOCK, num_bytes
from foredraft.models.mapping import map_file, shown
from foredraft.models.mistaken import beginning
from foredraft.models.tensor_info import TensorInfo

_TYPE_NAMES = dict(
    enumerate(
        [
            "F32",
            "F16",
            "Q4_0",
            "Q4_1",
            "type 4",
            "type 5",
            "Q5_0",
            "Q5_1",
            "Q8_0",
            "Q8_1",
            "Q2_K",
            "Q3_K",
            "Q4_K",
            "Q5_K",
            "Q6_K",
            "Q8_K",
            "IQ2_XXS",
            "IQ2_XS",
            "IQ3_XXS",
            "IQ1_S",
            "IQ4_NL",
            "IQ3_S",
            "IQ2_S",
            "IQ4_XS",
            "I8",
            "I16",
            "I32",
            "I64",
            "F64",
            "IQ1_M",
            "BF16",
        ]
    )
)
_TYPE_NAMES |= {34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0"}
"""ggml_type -> name, from ggml.h."""

_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
"""gguf_type -> layout of one value, from gguf.h."""
_STRING, _ARRAY, _BOOL = 8, 9, 7

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")

# Bounds far above any real model (the largest vocabularies hold under a million tokens), so that even a huge
# file with a hostile header is refused quickly.
_MAX_KEYS = 1 << 16
_MAX_TENSORS = 1 << 17
_MAX_ARRAY = 1 << 22
_MAX_KEY = 1 << 16
_MAX_TENSOR_NAME = 256
_MAX_STRING = 1 << 26
_MAX_DIMENSIONS = 4


class GGUFFile:
    """A GGUF file, or the first of several into which a model is split.

    Attributes:
        path: the file.
        metadata: key -> str, int, float, bool, or a list of those. Text that is not UTF-8 keeps its bytes as
            surrogate escapes.
        tensors: name -> TensorInfo, of all parts.

    Raises ModelFileError when the file is damaged and UnsupportedModelError when it holds a tensor in a
    number format that foredraft does not know.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        part = _read_part(self.path)
        self.metadata = part.metadata
        self.tensors = part.tensors
        if "split.count" in self.metadata:
            self._add_other_parts()

    def _add_other_parts(self) -> None:
        count, number = (
            _split_key(self.path, self.metadata, "count"),
            _split_key(self.path, self.metadata, "no"),
        )
        if count <= 1:
            return
        ending = f"-{number + 1:05d}-of-{count:05d}.gguf"
        if not self.path.name.endswith(ending):
            raise ModelFileError(f"{self.path}: is part {number + 1} of {count}, so its name must end in {ending}")
        stem = self.path.name.removesuffix(ending)
        names = [f"{stem}-{index + 1:05d}-of-{count:05d}.gguf" for index in range(count)]
        if number != 0:
            raise ModelFileError(f"{self.path}: is part {number + 1} of {count}; open the first part, {names[0]}")
        for index in range(1, count):
            path = self.path.with_name(names[index])
            part = _read_part(path)
            found = (_split_key(path, part.metadata, "no"), _split_key(path, part.metadata, "count"))
            if found != (index, count):
                raise ModelFileError(f"{path}: is not part {index + 1} of {count} of {self.path.name}")
            for name, tensor in part.tensors.items():
                if name in self.tensors:
                    raise ModelFileError(f"{path}: tensor {shown(name)} is also in another part")
                self.tensors[name] = tensor
        total = self.metadata.get("split.tensors.count", len(self.tensors))
        if total != len(self.tensors):
            raise ModelFileError(f"{self.path}: its parts hold {len(self.tensors)} tensors, not {total} as it says")


@dataclass(frozen=True)
class _Part:
    metadata: dict[str, object]
    tensors: dict[str, TensorInfo]


def _split_key(path: Path, metadata: dict[str, object], name: str) -> int:
    value = metadata.get(f"split.{name}")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 100_000:
        raise ModelFileError(f"{path}: metadata key 'split.{name}' is missing or wrong ({shown(str(value))})")
    return value


class _Cursor:
    """Reads values one after another; every read is checked against the end of the file."""

    def __init__(self, path: Path, buffer: mmap.mmap) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.position = 0

    def fail(self, what: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {what}")

    def need(self, num: int, what: str) -> int:
        """Step over `num` bytes and return where they start."""
        start = self.position
        if num > self.size - start:
            raise self.fail(f"the file ends inside {what}; it is truncated or damaged")
        self.position = start + num
        return start

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self.buffer, self.need(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self.buffer, self.need(8, what))[0])

    def string(self, what: str, limit: int = _MAX_STRING) -> str:
        length = self.u64(what)
        if length > limit:
            raise self.fail(f"{what} claims a length of {length} bytes; the file is damaged")
        start = self.need(length, what)
        return self.buffer[start : start + length].decode("utf-8", "surrogateescape")

    def strings(self, num: int, what: str) -> list[str]:
        """`num` strings; a tight loop, because vocabularies hold hundreds of thousands."""
        buffer, size, position = self.buffer, self.size, self.position
        unpack: Callable[[mmap.mmap, int], tuple[int]] = _U64.unpack_from
        out: list[str] = []
        append = out.append
        for _ in range(num):
            if position + 8 > size:
                raise self.fail(f"the file ends inside {what}; it is truncated or damaged")
            end = position + 8 + unpack(buffer, position)[0]
            if end > size:
                raise self.fail(f"the file ends inside {what}; it is truncated or damaged")
            append(buffer[position + 8 : end].decode("utf-8", "surrogateescape"))
            position = end
        self.position = position
        return out

    def value(self, kind: int, what: str) -> object:
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self.array(what)
        layout = _SCALARS.get(kind)
        if layout is None:
            raise self.fail(f"{what} has the unknown type {kind}; the file is damaged or newer than this reader")
        value: object = layout.unpack_from(self.buffer, self.need(layout.size, what))[0]
        return value

    def array(self, what: str) -> list[object]:
        kind, num = self.u32(what), self.u64(what)
        layout = _SCALARS.get(kind)
        if layout is None and kind != _STRING:
            raise self.fail(f"{what} is a list of the unsupported type {kind}; the file is damaged")
        item = layout.size if layout else 8
        if num > _MAX_ARRAY or num * item > self.size - self.position:
            raise self.fail(f"{what} claims {num} entries, more than the file can hold; it is truncated or damaged")
        if layout is None:
            return list[object](self.strings(num, what))
        dtype = np.dtype(layout.format)
        start = self.need(num * item, what)
        values = np.frombuffer(self.buffer, dtype=np.uint8 if kind == _BOOL else dtype, count=num, offset=start)
        return list[object]((values != 0).tolist() if kind == _BOOL else values.tolist())


def _read_part(path: Path) -> _Part:
    mapped, data = map_file(path)
    cursor = _Cursor(path, mapped)
    num_tensors, num_keys = _read_header(cursor)
    metadata: dict[str, object] = {}
    for index in range(num_keys):
        key = cursor.string(f"metadata key {index + 1} of {num_keys}", _MAX_KEY)
        if not key or key in metadata:
            raise cursor.fail(
                f"metadata key {shown(key)} occurs twice" if key else f"metadata key {index + 1} is empty"
            )
        what = f"metadata key {shown(key)}"
        metadata[key] = cursor.value(cursor.u32(what), what)
    alignment = metadata.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or not _is_alignment(alignment):
        raise cursor.fail(f"metadata key 'general.alignment' must be a power of two, it is {shown(str(alignment))}")
    entries: dict[str, _Entry] = {}
    for index in range(num_tensors):
        entry = _read_entry(cursor, f"the entry of tensor {index + 1} of {num_tensors}", alignment)
        if entry.name in entries:
            raise cursor.fail(f"tensor {shown(entry.name)} occurs twice")
        entries[entry.name] = entry
    start = (cursor.position + alignment - 1) // alignment * alignment
    _check_places(cursor, list(entries.values()), start)
    tensors = {
        entry.name: TensorInfo(
            entry.name,
            entry.shape,
            entry.format,
            data[start + entry.offset : start + entry.offset + entry.size],
        )
        for entry in entries.values()
    }
    return _Part(metadata, tensors)


def _is_alignment(value: int) -> bool:
    return 0 < value <= 1 << 20 and value & (value - 1) == 0


def _read_header(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; return the numbers of tensors and of metadata keys."""
    magic = cursor.buffer[:4]
    if magic != b"GGUF":
        if known := beginning(magic):
            raise cursor.fail(f"is not a GGUF file but {known}")
        raise cursor.fail("is not a GGUF file (it does not start with 'GGUF'); fetch it again or check its name")
    cursor.position = 4
    version = cursor.u32("the header")
    if version & 0xFFFF == 0 and version:
        raise UnsupportedModelError(f"{cursor.path}: is a big-endian GGUF file; only little-endian files can be read")
    if version == 1:
        raise UnsupportedModelError(f"{cursor.path}: is GGUF version 1, which is obsolete; convert the model anew")
    if version not in (2, 3):
        raise UnsupportedModelError(f"{cursor.path}: is GGUF version {version}; versions 2 and 3 can be read")
    num_tensors, num_keys = cursor.u64("the header"), cursor.u64("the header")
    remaining = cursor.size - cursor.position
    # The smallest entry of a tensor takes 32 bytes, the smallest key with a value 14.
    for num, what, least, limit in (
        (num_tensors, "tensors", 32, _MAX_TENSORS),
        (num_keys, "keys", 14, _MAX_KEYS),
    ):
        if num > limit or num * least > remaining:
            raise cursor.fail(f"its header claims {num} {what}, more than the file can hold; it is damaged")
    return num_tensors, num_keys


@dataclass(frozen=True)
class _Entry:
    name: str
    shape: tuple[int, ...]
    format: str
    offset: int
    size: int


def _read_entry(cursor: _Cursor, what: str, alignment: int) -> _Entry:
    name = cursor.string(what, _MAX_TENSOR_NAME)
    label = shown(name)
    num_dimensions = cursor.u32(what)
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.fail(f"tensor {label} claims {num_dimensions} dimensions; the file is damaged")
    shape = tuple(cursor.u64(what) for _ in range(num_dimensions))[::-1]
    type_id, offset = cursor.u32(what), cursor.u64(what)
    if any(not 1 <= length <= 1 << 48 for length in shape):
        raise cursor.fail(f"tensor {label} claims the shape {shape}; the file is damaged")
    format = _TYPE_NAMES.get(type_id, f"type {type_id}")
    if format not in BLOCK:
        raise UnsupportedModelError(
            f"{cursor.path}: tensor {label} is quantised as {format}, which is not supported; "
            f"use a file in one of {', '.join(BLOCK)}"
        )
    try:
        size = num_bytes(format, shape)
    except ValueError as error:
        raise cursor.fail(f"tensor {label}: {error}; the file is damaged") from None
    if offset % alignment:
        raise cursor.fail(f"tensor {label} starts at byte {offset}, which is not a multiple of {alignment}")
    return _Entry(name, shape, format, offset, size)


def _check_places(cursor: _Cursor, entries: list[_Entry], start: int) -> None:
    """No tensor reaches beyond the end of the file or into the next one."""
    end, before = 0, ""
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.offset < end:
            raise cursor.fail(f"tensors {shown(before)} and {shown(entry.name)} overlap; the file is damaged")
        end, before = entry.offset + entry.size, entry.name
        if start + end > cursor.size:
            missing = start + end - cursor.size
            raise cursor.fail(
                f"the file ends {missing} bytes before the end of tensor {shown(entry.name)}; "
                "it is truncated or damaged, fetch it again"
            )
