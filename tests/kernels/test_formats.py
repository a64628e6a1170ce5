import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from foredraft.kernels.formats import BLOCK, dequantize, num_bytes

FORMATS = sorted(BLOCK)


def oracle(data: np.ndarray, format: str, shape: tuple[int, ...]) -> np.ndarray:
    with np.errstate(all="ignore"):
        rows = data.reshape(-1, num_bytes(format, (shape[-1],)))
        return quants.dequantize(rows, GGMLQuantizationType[format]).reshape(shape)


def assert_same_bits(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype == np.float32
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    both = ~np.isnan(expected)
    np.testing.assert_array_equal(actual[both].view(np.uint32), expected[both].view(np.uint32))


@pytest.mark.parametrize("format", FORMATS)
def test_random_bytes_mean_what_ggml_says(format: str) -> None:
    # Random bytes reach every bit pattern of quants and scales: infinities, NaN and subnormal scales
    # included.
    shape = (37, 512)
    data = np.random.default_rng(7).integers(0, 256, num_bytes(format, shape), dtype=np.uint8)
    assert_same_bits(dequantize(data, format, shape), oracle(data, format, shape))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("scale", [0x0000, 0x8000, 0x0001, 0x03FF, 0x7BFF, 0xFBFF, 0x3C00])
def test_special_finite_scales(format: str, scale: int) -> None:
    # Zero, negative zero, subnormals and the largest float16, in every place where a block holds a float16.
    block_values, block_bytes = BLOCK[format]
    blocks = np.random.default_rng(scale).integers(0, 256, (64, block_bytes), dtype=np.uint8)
    half = np.frombuffer(scale.to_bytes(2, "little"), dtype=np.uint8)
    for place in {"Q6_K": [208], "Q4_0": [0], "Q5_0": [0], "Q8_0": [0]}.get(format, [0, 2]):
        if place + 2 <= block_bytes:
            blocks[:, place : place + 2] = half
    shape = (64, block_values)
    actual = dequantize(blocks.reshape(-1), format, shape)
    if format not in ("F32", "F16", "BF16"):
        assert np.isfinite(actual).all()
    assert_same_bits(actual, oracle(blocks.reshape(-1), format, shape))


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16", "F32"])
def test_quantised_values_come_back_close(format: str) -> None:
    values = np.random.default_rng(3).standard_normal((8, 256)).astype(np.float32)
    packed = quants.quantize(values, GGMLQuantizationType[format]).view(np.uint8).reshape(-1)
    back = dequantize(packed, format, values.shape)
    tolerance = {"Q4_0": 0.3, "Q4_1": 0.3, "Q5_0": 0.15, "Q5_1": 0.15, "Q8_0": 0.02}.get(format, 0.02)
    assert np.abs(back - values).max() < tolerance


def test_large_tensors_are_done_in_chunks_without_a_seam() -> None:
    shape = (70_000, 32)
    data = np.random.default_rng(5).integers(0, 256, num_bytes("Q8_0", shape), dtype=np.uint8)
    assert_same_bits(dequantize(data, "Q8_0", shape), oracle(data, "Q8_0", shape))


def test_read_only_data_and_a_new_result() -> None:
    data = np.arange(64, dtype=np.uint8)
    data.flags.writeable = False
    out = dequantize(data, "F32", (16,))
    assert out.flags.writeable
    assert not np.shares_memory(out, data)


@pytest.mark.parametrize(
    ("format", "shape", "message"),
    [
        ("IQ2_XXS", (256,), "unknown number format 'IQ2_XXS'"),
        ("Q4_0", (2, 48), "rows of 48 values do not divide into Q4_0 blocks of 32"),
        ("Q4_0", (2, 64), "needs 72 bytes"),
    ],
)
def test_what_does_not_fit_is_refused(format: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dequantize(np.zeros(17, dtype=np.uint8), format, shape)
