"""Other forms of a loaded decoder, without some layers or with their hidden states: nothing is loaded twice."""

import mmap
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.engines import VOCAB_SIZE, native_kernels, table_decoder, tiny_decoder, tiny_file

from foredraft.kernels.native import NativeDecoder
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.models.load import exposing, load_decoder, load_part
from foredraft.models.source import open_model
from foredraft.testing import TableModel
from foredraft.tree import DraftTree


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


@pytest.mark.parametrize(("family", "format"), [("llama", "F32"), ("gemma3", "Q4_0"), ("qwen3", "Q8_0")])
def test_hidden_states_have_the_bits_of_the_plain_run(family: str, format: str) -> None:
    """Kind: what a drafter is told of a token depends on the pass: its tree, chunk, neighbours, or a cache hit."""
    whole = tiny_decoder(family, format)
    shown = exposing(whole, [1, 0])
    assert (shown.hidden_layers, shown.cache is whole.cache) == ((0, 1), True)
    prompt, tree = list(range(40)), DraftTree((50, 51, 52, 53, 54), (-1, 0, 0, 1, 2))
    one, other = shown.cache.open(), shown.cache.open()
    chunk = shown.forward([Entry(one, DraftTree.chain(prompt[0], tuple(prompt[1:])), "none")])
    of_prompt = {layer: np.array(states) for layer, states in chunk.hidden_of(0).items()}
    shown.commit(one, DraftTree.chain(prompt[0], tuple(prompt[1:])), range(1, 40))
    one.publish(prompt)
    other.reuse(prompt)
    entries = [
        Entry(one, tree),
        Entry(other, DraftTree.chain(32, tuple(range(33, 40))), "last"),
        Entry(shown.cache.open(), DraftTree.chain(7)),
    ]
    result = shown.forward(entries)
    found = [{layer: np.array(states) for layer, states in result.hidden_of(i).items()} for i in range(3)]
    logits = [np.array(rows) for rows in result.logits_NV]
    for node in range(tree.num_nodes):
        path = [tree.tokens[i] for i in (0, *tree.path(node))]
        rows, states = _one_by_one(tiny_decoder(family, format), [*prompt, *path])
        np.testing.assert_array_equal(logits[0][node], rows[-1])
        for layer in (0, 1):
            np.testing.assert_array_equal(of_prompt[layer], states[layer][:40])
            np.testing.assert_array_equal(found[0][layer][node], states[layer][-1])
            np.testing.assert_array_equal(found[1][layer], states[layer][32:40])
    assert found[2][0].shape == (1, whole.config.model_width)
    # Nodes that earlier passes have run have no rows.
    later = shown.forward([Entry(one, tree.restricted([0, 1, 2, 3]), num_ready=3)])
    np.testing.assert_array_equal(later.hidden_of(0)[1], found[0][1][3:4])
    [rows] = whole.forward([Entry(one, tree)]).logits_NV  # the decoder itself is as it was
    np.testing.assert_array_equal(rows, logits[0])
    assert whole.forward([Entry(one, tree)]).hidden_ND == {}


def _one_by_one(decoder: CachedDecoder, tokens: list[int]) -> tuple[list[np.ndarray], dict[int, np.ndarray]]:
    """Logits and hidden states after each token, run one at a time."""
    shown, blocks = exposing(decoder, [0, 1]), decoder.cache.open()
    logits, states = [], {0: [], 1: []}
    for token in tokens:
        result = shown.forward([Entry(blocks, DraftTree.chain(token))])
        blocks.advance(1)
        logits.append(np.array(result.logits_NV[0][0]))
        for layer, rows in result.hidden_of(0).items():
            states[layer].append(np.array(rows[0]))
    blocks.close()
    return logits, {layer: np.stack(rows) for layer, rows in states.items()}


def test_showing_hidden_states_loads_nothing_twice(smollm2_path: Path) -> None:
    whole = load_decoder(smollm2_path, kernels=native_kernels())
    before = _resident_bytes()
    shown = exposing(whole, [3, 29])
    assert _resident_bytes() - before < 24 << 20
    assert isinstance(whole.compiled, NativeDecoder)
    assert isinstance(shown.compiled, NativeDecoder)
    for address, (_, weight) in shown.compiled.packed.items():
        assert whole.compiled.packed[address][1] is weight
    assert exposing(shown, [29, 3, 29]) is shown
    assert exposing(whole, []) is whole


@pytest.mark.parametrize("layers", [[-1], [2], [0, 99]])
def test_layers_that_are_not_there(layers: list[int]) -> None:
    decoder = tiny_decoder()
    assert decoder.config.num_layers == 2
    with pytest.raises(ValueError, match="layers 0 to 1"):
        exposing(decoder, layers)


def test_a_table_has_no_parts() -> None:
    decoder, _ = table_decoder(TableModel())
    for make in (load_part, exposing):
        with pytest.raises(ValueError, match="loaded from a model"):
            make(decoder, [0])


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE
