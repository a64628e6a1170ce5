"""The promise behind exact speculation: a row's logits have the same bits however it is run."""

import functools

import numpy as np
import pytest
from helpers.native_decoder import VOCABULARY, NativeDecoder, Request, run_one_by_one, run_together
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import _native
from foredraft.kernels.formats import BLOCK

ISAS = _native.available_kernels()
FORMATS = sorted(BLOCK)

decoder = functools.cache(NativeDecoder)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tokens = st.integers(0, VOCABULARY - 1)
    prefix = draw(st.lists(tokens, max_size=70))
    nodes = draw(st.lists(tokens, min_size=1, max_size=12))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, len(nodes))]
    return Request(tuple(prefix), tuple(nodes), tuple(parents))


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=150)
@given(
    batch=st.lists(requests(), min_size=1, max_size=8),
    format=st.sampled_from(FORMATS),
    precise=st.booleans(),
    chunk=st.sampled_from([1, 7, 64]),
    num_threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 1000),
)
def test_trees_of_a_batch_equal_one_token_at_a_time(
    isa: str, batch: list[Request], format: str, precise: bool, chunk: int, num_threads: int, seed: int
) -> None:
    alone = decoder(isa, format, num_threads=1, precise=precise)
    together = run_together(decoder(isa, format, num_threads=num_threads, precise=precise), batch, chunk, seed)
    for request, logits in zip(batch, together, strict=True):
        expected = run_one_by_one(alone, request, seed + 1)
        assert np.isfinite(expected).all()
        np.testing.assert_array_equal(logits.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("format", FORMATS)
def test_instruction_sets_agree_closely(format: str) -> None:
    # Each set is exact in itself; between two, only the order and number of roundings differ.
    request = Request(tuple(range(40)), (1, 2, 3, 4), (-1, 0, 0, 2))
    results = [run_one_by_one(decoder(isa, format), request, 1) for isa in ISAS]
    for other in results[1:]:
        # A rounding can move an activation to the next of its 255 levels, so the bound is that of a level.
        np.testing.assert_allclose(other, results[0], atol=0.02 * np.abs(results[0]).max())
