"""Quantise weights for tests: gguf's own methods where it has them, simple ones for Q4_K, Q5_K and Q6_K.

The simple ones choose scales by the extremes of each sub-block, which is cruder than llama.cpp does it, but
the blocks are as valid as any.
"""

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, quants

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def quantise(values: Floats, format: str) -> Bytes:
    """Pack values of shape [..., columns] into rows of blocks, uint8 of shape [..., bytes a row]."""
    if format in ("Q4_K", "Q5_K", "Q6_K"):
        blocks = values.astype(np.float32).reshape(-1, 256)
        packed = _q6_k(blocks) if format == "Q6_K" else _q4_k_or_q5_k(blocks, 5 if format == "Q5_K" else 4)
        return packed.reshape(*values.shape[:-1], -1)
    packed = quants.quantize(np.ascontiguousarray(values, dtype=np.float32), GGMLQuantizationType[format])
    return np.ascontiguousarray(packed).view(np.uint8)


def _half(values: Floats) -> tuple[Bytes, Floats]:
    """Values [n, 1] as the bytes of float16, and what those stand for."""
    halves = values.astype(np.float16)
    return halves.view(np.uint8), halves.astype(np.float32)


def _divide(values: Floats, by: Floats) -> Floats:
    return np.divide(values, by, out=np.zeros(np.broadcast_shapes(values.shape, by.shape), np.float32), where=by != 0)


def _q4_k_or_q5_k(blocks: Floats, bits: int) -> Bytes:
    parts = blocks.reshape(-1, 8, 32)
    lowest = np.minimum(parts.min(axis=2), 0)
    scales = (np.maximum(parts.max(axis=2), 0) - lowest) / (2**bits - 1)
    d_bytes, d = _half(scales.max(axis=1, keepdims=True) / 63)
    m_bytes, m = _half(-lowest.min(axis=1, keepdims=True) / 63)
    sub_scales = np.clip(np.rint(_divide(scales, d)), 0, 63).astype(np.uint8)
    sub_minima = np.clip(np.rint(_divide(-lowest, m)), 0, 63).astype(np.uint8)
    shifted = parts + (m * sub_minima)[:, :, None]
    q = np.clip(np.rint(_divide(shifted, (d * sub_scales)[:, :, None])), 0, 2**bits - 1).astype(np.uint8)
    packed_scales = np.concatenate(
        [
            sub_scales[:, :4] | ((sub_scales[:, 4:] >> 4) << 6),
            sub_minima[:, :4] | ((sub_minima[:, 4:] >> 4) << 6),
            (sub_scales[:, 4:] & 15) | ((sub_minima[:, 4:] & 15) << 4),
        ],
        axis=1,
    )
    pairs = (q & 15).reshape(-1, 4, 2, 32)
    low = (pairs[:, :, 0] | (pairs[:, :, 1] << 4)).reshape(-1, 128)
    high = [np.packbits((q >> 4).transpose(0, 2, 1), axis=2, bitorder="little").reshape(-1, 32)] * (bits == 5)
    return np.concatenate([d_bytes, m_bytes, packed_scales, *high, low], axis=1)


def _q6_k(blocks: Floats) -> Bytes:
    parts = blocks.reshape(-1, 16, 16)
    scales = np.abs(parts).max(axis=2) / 31
    d_bytes, d = _half(scales.max(axis=1, keepdims=True) / 127)
    sub_scales = np.clip(np.rint(_divide(scales, d)), -128, 127).astype(np.int8)
    steps = (d * sub_scales.astype(np.float32))[:, :, None]
    q = (np.clip(np.rint(_divide(parts, steps)), -32, 31) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    nibbles = (q & 15).reshape(-1, 2, 2, 64)
    low = (nibbles[:, :, 0] | (nibbles[:, :, 1] << 4)).reshape(-1, 128)
    top = q >> 4
    high = (top[:, :, 0] | (top[:, :, 1] << 2) | (top[:, :, 2] << 4) | (top[:, :, 3] << 6)).reshape(-1, 64)
    return np.concatenate([low, high, sub_scales.view(np.uint8), d_bytes], axis=1)
