"""The seeded weights are the numbers that the expected logits were made from."""

import hashlib
import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

from .cases import CASES, GGUF_CASES
from .tiny_gguf import write_gguf
from .weights import encode, make_weights, write_folder

LLAMA = CASES["llama"]["config"]["transformers4"]


def test_recipe_gives_the_same_bytes_everywhere() -> None:
    digest = hashlib.sha256()
    for name, values in sorted(make_weights(LLAMA, CASES["llama"]["seed"]).items()):
        digest.update(name.encode() + encode(values, "F32"))
    assert digest.hexdigest() == "f2ca560d42e7878dc8f00b352da9be2a364b20ff9b2f68667d782ce7cd0b4c95"


def test_safetensors_library_reads_what_is_written(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, 1, dtype="F16")
    read = load_file(tmp_path / "model.safetensors")
    expected = make_weights(LLAMA, 1)
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name].astype(np.float32), expected[name]) for name in expected)


def test_shards_hold_every_tensor_once(tmp_path: Path) -> None:
    write_folder(tmp_path, LLAMA, 1, num_shards=3)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text(encoding="utf-8"))
    read = {name: load_file(tmp_path / shard)[name] for name, shard in index["weight_map"].items()}
    expected = make_weights(LLAMA, 1)
    assert sum(len(load_file(path)) for path in tmp_path.glob("*.safetensors")) == len(expected)
    assert all(np.array_equal(read[name], expected[name]) for name in expected)


@pytest.mark.parametrize("tensor_format", ["F16", "BF16", "Q8_0"])
def test_gguf_formats_stand_for_the_same_numbers(tmp_path: Path, tensor_format: str) -> None:
    exact = gguf.GGUFReader(write_gguf(tmp_path / "f32.gguf", LLAMA, 1))
    other = gguf.GGUFReader(write_gguf(tmp_path / "other.gguf", LLAMA, 1, tensor_format=tensor_format))
    for expected, tensor in zip(exact.tensors, other.tensors, strict=True):
        assert tensor.name == expected.name
        actual = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        wanted = gguf.quants.dequantize(expected.data, expected.tensor_type)
        assert np.array_equal(actual, wanted.reshape(actual.shape)), tensor.name


@pytest.mark.parametrize("name", GGUF_CASES)
def test_gguf_has_all_tensors(tmp_path: Path, name: str) -> None:
    config = CASES[name]["config"]["transformers4"]
    reader = gguf.GGUFReader(write_gguf(tmp_path / "model.gguf", config, CASES[name]["seed"]))
    names = {tensor.name for tensor in reader.tensors} - {"rope_freqs.weight"}
    assert len(names) == len(make_weights(config, CASES[name]["seed"]))
