"""Number formats of weights: their block sizes, and the plain NumPy meaning of every block.

`dequantize` is the reference that all kernels are tested against. The layouts and the order of the
floating-point operations are those of ggml (`block_*` in ggml-common.h and `dequantize_row_*` in
ggml-quants.c), so that the numbers are the same bit for bit.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

BLOCK: dict[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
"""Format -> (values per block, bytes per block). Blocks lie along the last axis of a tensor."""

_CHUNK_BLOCKS = 1 << 16


def num_bytes(format: str, shape: tuple[int, ...]) -> int:
    """Bytes that a tensor of `shape` (NumPy order) takes in `format`.

    Raises ValueError when the format is unknown or its blocks do not divide the last axis.
    """
    if format not in BLOCK:
        raise ValueError(f"unknown number format {format!r}")
    block_values, block_bytes = BLOCK[format]
    row = shape[-1] if shape else 1
    if row % block_values:
        raise ValueError(f"rows of {row} values do not divide into {format} blocks of {block_values}")
    return math.prod(shape) // block_values * block_bytes


def dequantize(data: Bytes, format: str, shape: tuple[int, ...]) -> Floats:
    """The values a tensor stands for.

    Args:
        data: the raw bytes, uint8, one-dimensional.
        format: a key of `BLOCK`.
        shape: the shape in NumPy order, the blocks along the last axis.

    Returns:
        float32 of `shape`, a new array. Raises ValueError when bytes, format and shape do not fit together.
    """
    expected = num_bytes(format, shape)
    if data.dtype != np.uint8 or data.ndim != 1 or data.size != expected:
        raise ValueError(f"{format} of shape {shape} needs {expected} bytes of uint8, got {data.shape} {data.dtype}")
    block_values, block_bytes = BLOCK[format]
    blocks = data.reshape(-1, block_bytes)
    out = np.empty((blocks.shape[0], block_values), dtype=np.float32)
    unpack = _UNPACK[format]
    # Extreme scales overflow to infinity, and infinity times zero is NaN, as in C: no cause for a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, blocks.shape[0], _CHUNK_BLOCKS):
            out[start : start + _CHUNK_BLOCKS] = unpack(blocks[start : start + _CHUNK_BLOCKS])
    return out.reshape(shape)


def _half(columns: Bytes) -> Floats:
    """Pairs of bytes as float16, widened: [n, 2] -> [n, 1]."""
    return np.ascontiguousarray(columns).view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """Low nibbles of a run of bytes, then its high nibbles: [n, m] -> [n, 2m]."""
    return np.concatenate([packed & np.uint8(0x0F), packed >> np.uint8(4)], axis=1)


def _bits(packed: Bytes) -> Bytes:
    """Single bits, lowest first: [n, m] -> [n, 8m]."""
    return np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little")


def _f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float32)


def _bf16(blocks: Bytes) -> Floats:
    halves = np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32)
    return (halves << np.uint32(16)).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 2:]).astype(np.int8) - np.int8(8)
    return _half(blocks[:, :2]) * quants.astype(np.float32)


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks[:, :2]) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks[:, 2:4])


def _q5_0(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 6:]) | (_bits(blocks[:, 2:6]) << np.uint8(4))
    return _half(blocks[:, :2]) * (quants.astype(np.int8) - np.int8(16)).astype(np.float32)


def _q5_1(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 8:]) | (_bits(blocks[:, 4:8]) << np.uint8(4))
    return _half(blocks[:, :2]) * quants.astype(np.float32) + _half(blocks[:, 2:4])


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks[:, :2]) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _scales_and_minima(packed: Bytes) -> tuple[Floats, Floats]:
    """The eight 6-bit scales and eight 6-bit minima of a Q4_K or Q5_K block: [n, 12] -> two of [n, 8].

    Bytes 0-3 and 4-7 hold scales and minima 0-3 in their low six bits; bytes 8-11 hold the low nibbles of
    scales and minima 4-7, whose two high bits are the top bits of bytes 0-7 (`get_scale_min_k4` in
    ggml-quants.c).
    """
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 0x3F, (high & 0x0F) | ((low >> 2) & 0x30)], axis=1)
    minima = np.concatenate([middle & 0x3F, (high >> 4) | ((middle >> 2) & 0x30)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _scale_sub_blocks(blocks: Bytes, quants: Bytes) -> Floats:
    """Apply the scales of a Q4_K or Q5_K block: quants [n, 8, 32] -> [n, 256]."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scale = (_half(blocks[:, 0:2]) * scales)[:, :, None]
    minimum = (_half(blocks[:, 2:4]) * minima)[:, :, None]
    values: Floats = scale * quants.astype(np.float32) - minimum
    return values.reshape(-1, 256)


def _q4_k(blocks: Bytes) -> Floats:
    quants = _nibbles(blocks[:, 16:].reshape(-1, 32))
    return _scale_sub_blocks(blocks, quants.reshape(-1, 8, 32))


def _q5_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    # Bit j of byte i is the high bit of value i of sub-block j.
    high = _bits(blocks[:, 16:48]).reshape(-1, 32, 8).transpose(0, 2, 1)
    return _scale_sub_blocks(blocks, low | (high << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    low = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 256)
    packed = blocks[:, 128:192].reshape(-1, 1, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8).reshape(1, 4, 1)
    high = ((packed >> shifts) & np.uint8(3)).reshape(-1, 256)
    quants = (low | (high << np.uint8(4))).astype(np.int8) - np.int8(32)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    scale = (_half(blocks[:, 208:210]) * scales)[:, :, None]
    values: Floats = scale * quants.reshape(-1, 16, 16).astype(np.float32)
    return values.reshape(-1, 256)


_UNPACK: dict[str, Callable[[Bytes], Floats]] = {
    "F32": _f32,
    "F16": _half,
    "BF16": _bf16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
