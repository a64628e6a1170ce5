"""The decoder's logits of tiny models agree with transformers' own, for every family and rope scaling."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from foredraft.models.load import load_decoder

from .cases import CASES, GGUF_CASES
from .tiny_gguf import write_gguf
from .weights import write_folder

KERNELS = ("reference", "native")

# The native operations keep keys and values in half precision, which random weights with their large scores feel most.
TOLERANCES = {"reference": 2e-5, "native": 5e-3}
# Where the weights are quantised, the native operations quantise the activations too. In models of two groups of 32 the
# errors hardly average out; real files are held to 2 %.
QUANTISED_TOLERANCE = 5e-2


def relative_error(actual: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def assert_logits(path: Path, name: str, kernels: str, tolerance: float) -> None:
    """The logits of a model written from a case differ from the expected ones by less than the tolerance."""
    case = CASES[name]
    logits_SV = load_decoder(path, kernels=kernels).logits(case["token_ids"])
    assert logits_SV.shape == (len(case["token_ids"]), case["config"]["transformers4"]["vocab_size"])
    assert logits_SV.dtype == np.float32
    expected = np.array(case["logits"], dtype=np.float32)
    error = relative_error(logits_SV[case["positions"]], expected)
    assert error < tolerance, f"relative error {error}"


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("style", ["transformers4", "transformers5"])
@pytest.mark.parametrize("name", CASES)
def test_folder(tmp_path: Path, name: str, style: str, kernels: str) -> None:
    path = write_folder(tmp_path / "model", CASES[name]["config"][style], CASES[name]["seed"])
    assert_logits(path, name, kernels, TOLERANCES[kernels])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_folder_of_half_precision_in_shards(tmp_path: Path, name: str, dtype: str, kernels: str) -> None:
    config, seed = CASES[name]["config"]["transformers5"], CASES[name]["seed"]
    path = write_folder(tmp_path / "model", config, seed, dtype=dtype, num_shards=3)
    assert_logits(path, name, kernels, TOLERANCES[kernels])


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("name", GGUF_CASES)
def test_gguf(tmp_path: Path, name: str, kernels: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", CASES[name]["config"]["transformers4"], CASES[name]["seed"])
    assert_logits(path, name, kernels, TOLERANCES[kernels])


@pytest.mark.parametrize("tensor_format", ["F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("name", ["llama", "qwen3-tied", "gemma3-linear"])
def test_gguf_formats_on_the_reference(tmp_path: Path, name: str, tensor_format: str) -> None:
    config, seed = CASES[name]["config"]["transformers4"], CASES[name]["seed"]
    path = write_gguf(tmp_path / "model.gguf", config, seed, tensor_format=tensor_format)
    assert_logits(path, name, "reference", TOLERANCES["reference"])


@pytest.mark.parametrize("tensor_format", ["F16", "BF16", "Q8_0"])
@pytest.mark.parametrize("name", ["llama", "qwen3-tied", "gemma3-linear"])
def test_gguf_formats_on_native(tmp_path: Path, name: str, tensor_format: str) -> None:
    config, seed = CASES[name]["config"]["transformers4"], CASES[name]["seed"]
    path = write_gguf(tmp_path / "model.gguf", config, seed, tensor_format=tensor_format)
    tolerance = QUANTISED_TOLERANCE if tensor_format == "Q8_0" else TOLERANCES["native"]
    assert_logits(path, name, "native", tolerance)
