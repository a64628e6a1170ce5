"""The recipe: which weights it reads, which results it gives, and what it refuses."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.engines import TableForward, native_kernels, tiny_file
from helpers.tiny import FAMILIES, TinyModel

from foredraft.errors import UnsupportedModelError
from foredraft.kernels.operations import Floats, Kernels
from foredraft.kernels.reference import ReferenceKernels
from foredraft.models.cached_decoder import CachedDecoder, Entry, lay_out
from foredraft.models.decoder import make_recipe, read_weights
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.tree import DraftTree


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_those_of_the_file(family: str, tmp_path: Path) -> None:
    """Folders and GGUF files store some of them differently, and stand for the same numbers."""
    model = TinyModel(family=family, num_layers=2)
    from_file = read_weights(open_model(model.write_gguf(tmp_path / "model.gguf")))
    from_folder = read_weights(open_model(model.write_folder(tmp_path / "folder")))
    np.testing.assert_array_equal(from_file.output_norm, from_folder.output_norm)
    np.testing.assert_array_equal(from_file.embedding.data, from_folder.embedding.data)
    for one, other in zip(from_file.layers, from_folder.layers, strict=True):
        for name in ("attention_norm", "ffn_norm", "query_norm", "key_norm", "post_attention_norm", "post_ffn_norm"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_array_equal(a, b)
                assert 0.5 < a.mean() < 1.5  # gemma's norms are stored as what is added to 1
        assert (one.query_norm is not None) == (family in ("qwen3", "gemma3"))
        assert (one.post_ffn_norm is not None) == (family == "gemma3")
        assert (one.query.bias is not None) == (family == "qwen2")
        np.testing.assert_array_equal(one.down.data, other.down.data)


def test_tied_embeddings_are_the_output(tmp_path: Path) -> None:
    tied = read_weights(open_model(TinyModel(tied=True).write_gguf(tmp_path / "tied.gguf")))
    assert tied.output is tied.embedding
    untied = read_weights(open_model(tiny_file()))
    assert untied.output.name == "output.weight"


def test_a_soft_cap_on_logits_is_refused() -> None:
    source = open_model(tiny_file())
    capped = SimpleNamespace(config=replace(source.config, logit_softcap=30.0), tensors=source.tensors, path="x.gguf")
    with pytest.raises(UnsupportedModelError, match=r"x\.gguf.*soft cap"):
        make_recipe(capped)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernels", [ReferenceKernels(), native_kernels(2)], ids=lambda kernels: kernels.name)
def test_hidden_states_of_named_layers(kernels: Kernels) -> None:
    """All rows of the layers asked for, and the logits of the selected rows only."""
    source = open_model(tiny_file("qwen3", num_layers=4))
    forward = kernels.compile(make_recipe(source, hidden_layers=[0, 3]))
    found: list[Mapping[str, Floats]] = []
    decoder = CachedDecoder(
        source.config,
        lambda batch, storage: found.append({k: np.array(v) for k, v in forward(batch, storage).items()}) or found[-1],
        kernels,
    )
    decoder.forward([Entry(decoder.cache.open(), DraftTree.chain(1, (2, 3)), "last")])
    assert set(found[0]) == {"logits", "hidden.0", "hidden.3"}
    assert found[0]["hidden.0"].shape == found[0]["hidden.3"].shape == (3, 64)
    assert found[0]["logits"].shape == (1, 288)
    plain = load_decoder(tiny_file("qwen3", num_layers=4), kernels=kernels).logits([1, 2, 3])
    np.testing.assert_allclose(found[0]["logits"][0], plain[2], rtol=1e-5, atol=1e-5)
    # The last layer's state is what the output norm and matrix are applied to.
    weights = read_weights(source)
    x = found[0]["hidden.3"][2].astype(np.float64)
    x = x / np.sqrt((x**2).mean() + source.config.norm_epsilon) * weights.output_norm
    matrix = weights.output.data.view(np.float32).reshape(weights.output.shape)
    np.testing.assert_allclose(found[0]["logits"][0], matrix @ x, rtol=1e-3, atol=1e-3)


def test_the_layout_of_trees() -> None:
    """Which rows reach their ancestors through the block table, and which through a list of slots."""
    config = open_model(tiny_file()).config
    decoder = CachedDecoder(config, TableForward(None), ReferenceKernels())  # type: ignore[arg-type]
    one, two = decoder.cache.open(), decoder.cache.open()
    one.reserve(20)
    one.advance(14)
    two.reserve(3)
    one.reserve(4)
    tree = DraftTree((5, 6, 7, 8), (-1, 0, 0, 2))
    batch = lay_out([Entry(one, tree), Entry(two, DraftTree.chain(1, (2, 3)), "last")])
    assert batch.num_rows == 7
    assert batch.tokens_N.tolist() == [5, 6, 7, 8, 1, 2, 3]
    assert batch.positions_N.tolist() == [14, 15, 15, 16, 0, 1, 2]
    assert batch.requests_N.tolist() == [0, 0, 0, 0, 1, 1, 1]
    first, second = one.blocks
    [third] = two.blocks
    assert batch.slots_N.tolist() == [
        *(first * 16 + place for place in (14, 15)),
        *(second * 16 + place for place in (0, 1)),
        *(third * 16 + place for place in (0, 1, 2)),
    ]
    assert batch.prefix_lengths_N.tolist() == [15, 16, 14, 14, 1, 2, 3]
    assert batch.tail_offsets.tolist() == [0, 0, 0, 2, 5, 5, 5, 5]
    root, right, below = first * 16 + 14, second * 16, second * 16 + 1
    assert batch.tail_slots.tolist() == [root, right, root, right, below]
    assert batch.table_offsets.tolist() == [0, 2, 3]
    assert batch.block_tables.tolist() == [first, second, third]
    assert batch.selected_rows.tolist() == [0, 1, 2, 3, 6]
