"""GGUF files put together byte by byte, so that any part can be wrong."""

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str | bytes) -> bytes:
    """A length and the text."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    """A metadata key with its value."""
    return text(name) + struct.pack("<I", kind) + value


def u32(name: str, value: int) -> bytes:
    """A metadata key with a number of 32 bits."""
    return key(name, U32, struct.pack("<I", value))


def string(name: str, value: str) -> bytes:
    """A metadata key with a text."""
    return key(name, STRING, text(value))


def array(name: str, kind: int, num: int, content: bytes) -> bytes:
    """A metadata key with a list that claims `num` entries."""
    return key(name, ARRAY, struct.pack("<IQ", kind, num) + content)


def tensor(name: str, dimensions: Sequence[int], type_id: int = 0, offset: int = 0) -> bytes:
    """The entry of a tensor; dimensions in the order of the file, fastest first."""
    shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + shape + struct.pack("<IQ", type_id, offset)


def gguf(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    num_keys: int | None = None,
    num_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole file."""
    counts = (
        len(tensors) if num_tensors is None else num_tensors,
        len(keys) if num_keys is None else num_keys,
    )
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data
