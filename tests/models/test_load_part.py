"""A decoder without some of its layers: what it computes, and that it loads nothing twice."""

import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.engines import VOCAB_SIZE, native_kernels, table_decoder, tiny_file

from foredraft.kernels.native import NativeDecoder
from foredraft.models.load import load_decoder, load_part
from foredraft.models.source import open_model
from foredraft.testing import TableModel


@pytest.mark.parametrize("kernels", ["native", "reference"])
@pytest.mark.parametrize(("family", "layers"), [("llama", (0, 2)), ("qwen2", (1,)), ("gemma3", (0, 1, 3, 5, 6))])
def test_the_layers_that_are_left_out_are_left_out(family: str, layers: tuple[int, ...], kernels: str) -> None:
    """A model that never had them, made of the same tensors, gives the same bits."""
    sizes = {"num_layers": 7} if family == "gemma3" else {"num_layers": 3}
    source = open_model(tiny_file(family, **sizes))
    whole = load_decoder(source, kernels=native_kernels() if kernels == "native" else kernels)
    tokens = np.random.default_rng(1).integers(VOCAB_SIZE, size=40).tolist()
    before = whole.logits(tokens)
    part = load_part(whole, layers)
    renamed = {
        name.replace(f"blk.{layer}.", f"blk.{place}."): tensor
        for place, layer in enumerate(layers)
        for name, tensor in source.tensors.items()
        if name.startswith(f"blk.{layer}.")
    } | {name: tensor for name, tensor in source.tensors.items() if not name.startswith("blk.")}
    windows = tuple(source.config.window_layers[layer] for layer in layers)
    config = replace(source.config, num_layers=len(layers), window_layers=windows)
    other = load_decoder(replace(source, config=config, tensors=renamed), kernels=whole.kernels)
    np.testing.assert_array_equal(part.logits(tokens), other.logits(tokens))
    np.testing.assert_array_equal(whole.logits(tokens), before)
    assert part.cache.storage.keys.shape[0] == len(layers)
    few = np.array([2, 5, 9], np.int32)
    np.testing.assert_allclose(
        load_part(whole, layers, token_ids=few).logits(tokens),
        part.logits(tokens)[:, few],
        rtol=0 if kernels == "native" else 1e-3,  # NumPy adds up in another order for another number of rows
    )


def test_matrices_are_shared(smollm2_path: Path) -> None:
    whole = load_decoder(smollm2_path, kernels=native_kernels())
    before = _resident_bytes()
    parts = [load_part(whole, range(0, 30, step)) for step in (1, 2, 3)]
    assert _resident_bytes() - before < 24 << 20
    assert isinstance(whole.compiled, NativeDecoder)
    for part in parts:
        assert isinstance(part.compiled, NativeDecoder)
        for address, (_, weight) in part.compiled.packed.items():
            assert whole.compiled.packed[address][1] is weight
    assert whole.compiled.num_weight_bytes > 60 << 20


def test_a_table_has_no_parts() -> None:
    decoder, _ = table_decoder(TableModel())
    with pytest.raises(ValueError, match="loaded from a model"):
        load_part(decoder, [0])


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
