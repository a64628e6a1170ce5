"""Whatever is passed to the compiled module, it answers with an exception and never crashes."""

from collections.abc import Callable

import numpy as np
import pytest
from helpers.native_decoder import BLOCK, HEAD_WIDTH, NUM_KV_HEADS, NUM_LAYERS, Cache, NativeDecoder, Rows, ints

from foredraft import _native
from foredraft.kernels.formats import BLOCK as FORMAT_BLOCKS
from foredraft.kernels.formats import dequantize, num_bytes

FORMATS = sorted(FORMAT_BLOCKS)
NAMES = (
    "tokens", "positions", "requests", "slots", "prefix_lengths", "tail_offsets", "tail_slots", "table_offsets",
    "block_tables", "selected_rows",
)  # fmt: skip


@pytest.fixture(scope="module")
def decoder() -> NativeDecoder:
    return NativeDecoder("", "Q4_0")


def arguments() -> dict[str, np.ndarray]:
    """Two rows of a prompt and a tree of two nodes, in a cache of four blocks."""
    rows = Rows([[0], [1, 2]])
    rows.add(5, 0, 0, 0, [])
    rows.add(6, 1, 0, 1, [])
    rows.add(7, 20, 1, 48, [48])
    rows.add(8, 21, 1, 49, [48, 49])
    cache = Cache(4, 1)
    return dict(zip(NAMES, rows.arrays(), strict=True)) | {"keys": cache.keys, "values": cache.values}


def changed(name: str, index: int, value: int) -> dict[str, np.ndarray]:
    args = arguments()
    args[name][index] = value
    return args


def test_good_arguments_run(decoder: NativeDecoder) -> None:
    decoder.program.run(**arguments())
    assert np.isfinite(decoder.program.result(decoder._logits)).all()


@pytest.mark.parametrize(
    ("name", "index", "value", "message"),
    [
        ("tokens", 1, -1, "token id -1 is outside the vocabulary"),
        ("tokens", 1, 61, "token id 61 is outside the vocabulary"),
        ("tokens", 1, 2**31 - 1, "outside the vocabulary"),
        ("positions", 0, -1, "prefix and tail"),
        ("positions", 0, 1, "prefix and tail"),
        ("positions", 3, 2**31 - 1, "prefix and tail"),
        ("requests", 0, -1, "request that is not in the batch"),
        ("requests", 0, 2, "request that is not in the batch"),
        ("slots", 0, -1, "slot is outside"),
        ("slots", 0, 64, "slot is outside"),
        ("prefix_lengths", 0, 2**31 - 1, "prefix and tail"),
        ("prefix_lengths", 3, -(2**31), "prefix and tail"),
        ("tail_offsets", 0, -1, "offsets of a batch"),
        ("tail_offsets", 3, 0, "prefix and tail"),
        ("tail_offsets", 3, 9, "offsets of a batch"),
        ("tail_offsets", 4, 4, "offsets of a batch"),
        ("tail_slots", 1, -1, "slot is outside"),
        ("tail_slots", 1, 64, "slot is outside"),
        ("table_offsets", 1, -1, "offsets of a batch"),
        ("table_offsets", 1, 3, "shorter than its row's prefix"),
        ("table_offsets", 2, 4, "offsets of a batch"),
        ("block_tables", 2, 4, "block is outside"),
        ("block_tables", 0, -1, "block is outside"),
        ("selected_rows", 0, -1, "selected row is outside"),
        ("selected_rows", 3, 4, "selected row is outside"),
    ],
)
def test_numbers_out_of_range(decoder: NativeDecoder, name: str, index: int, value: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decoder.program.run(**changed(name, index, value))


@pytest.mark.parametrize("name", NAMES[:6] + NAMES[7:8])
@pytest.mark.parametrize("change", [-1, 1])
def test_arrays_of_the_wrong_length(decoder: NativeDecoder, name: str, change: int) -> None:
    args = arguments()
    args[name] = np.resize(args[name], len(args[name]) + change)
    with pytest.raises(ValueError, match=r"entry per row|offsets of a batch|not in the batch"):
        decoder.program.run(**args)


def test_empty_batches(decoder: NativeDecoder) -> None:
    args = {name: ints([]) for name in NAMES} | {"tail_offsets": ints([0]), "table_offsets": ints([0, 0])}
    with pytest.raises(ValueError, match="at least one row"):
        decoder.program.run(**arguments() | args)
    with pytest.raises(ValueError, match="offsets"):
        decoder.program.run(**arguments() | args | {"table_offsets": ints([])})


@pytest.mark.parametrize("name", [*NAMES, "keys", "values"])
def test_arrays_are_never_converted(decoder: NativeDecoder, name: str) -> None:
    # A converted copy would swallow what is written to a cache, and cut wide ids down to other ones.
    for wrong in (np.int64, np.float32):
        with pytest.raises(TypeError):
            decoder.program.run(**arguments() | {name: arguments()[name].astype(wrong)})
    with pytest.raises(TypeError):
        decoder.program.run(**arguments() | {name: None})


def test_a_cache_that_cannot_be_written(decoder: NativeDecoder) -> None:
    args = arguments()
    args["values"].flags.writeable = False
    with pytest.raises(TypeError):
        decoder.program.run(**args)
    with pytest.raises(TypeError):
        decoder.program.run(**arguments() | {"keys": arguments()["keys"][:, ::2]})


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ((NUM_LAYERS - 1, 4, NUM_KV_HEADS, HEAD_WIDTH, BLOCK), None),
        ((NUM_LAYERS, 4, NUM_KV_HEADS - 1, HEAD_WIDTH, BLOCK), None),
        ((NUM_LAYERS, 4, NUM_KV_HEADS, BLOCK, HEAD_WIDTH), None),
        ((NUM_LAYERS, 4, NUM_KV_HEADS, HEAD_WIDTH, BLOCK - 1), None),
        ((NUM_LAYERS, 4, NUM_KV_HEADS, HEAD_WIDTH, BLOCK), (NUM_LAYERS, 3, NUM_KV_HEADS, BLOCK, HEAD_WIDTH)),
        ((NUM_LAYERS, 4, NUM_KV_HEADS, HEAD_WIDTH, BLOCK), (NUM_LAYERS, 4, NUM_KV_HEADS, HEAD_WIDTH, BLOCK)),
        ((NUM_LAYERS, 0, NUM_KV_HEADS, HEAD_WIDTH, BLOCK), None),
    ],
)
def test_caches_of_the_wrong_shape(
    decoder: NativeDecoder, keys: tuple[int, ...], values: tuple[int, ...] | None
) -> None:
    values = values or (*keys[:3], keys[4], keys[3])
    args = arguments() | {"keys": np.zeros(keys, np.uint16), "values": np.zeros(values, np.uint16)}
    with pytest.raises(ValueError, match=r"cache|shape"):
        decoder.program.run(**args)


def test_results_outlive_later_runs_and_the_program() -> None:
    decoder = NativeDecoder("", "Q8_0")
    decoder.program.run(**arguments())
    small = decoder.program.result(decoder._logits)
    kept = small.copy()
    args = arguments()
    args["selected_rows"] = ints([0, 1, 2, 3] * 500)  # more rows than fit the memory of the first run
    decoder.program.run(**args)
    large = decoder.program.result(decoder._logits)
    np.testing.assert_array_equal(np.tile(kept, (500, 1)), large)
    del decoder
    np.testing.assert_array_equal(kept, small)
    with pytest.raises(ValueError, match="read-only"):
        small[0, 0] = 1.0


def test_results_that_are_not_there(decoder: NativeDecoder) -> None:
    for buffer in (-1, 0, 10**6):
        with pytest.raises(ValueError, match="result: "):
            decoder.program.result(buffer)
    fresh = NativeDecoder("", "Q4_0")
    with pytest.raises(ValueError, match="nothing has been run"):
        fresh.program.result(fresh._logits)


def weight(pool: _native.ThreadPool) -> _native.Weight:
    return _native.pack("F32", 32, 32, np.zeros(4096, np.uint8), pool)


Attempt = Callable[[_native.Program, int, _native.Weight], object]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda p, x, w: p.embed("Q4_0", 4, 32, np.zeros(71, np.uint8), 1.0),
        lambda p, x, w: p.embed("Q9_9", 4, 32, np.zeros(72, np.uint8), 1.0),
        lambda p, x, w: p.embed("F32", 2**62, 32, np.zeros(0, np.uint8), 1.0),
        lambda p, x, w: p.rms_norm(x + 1, np.ones(32, np.float32), 1e-5, -1),
        lambda p, x, w: p.rms_norm(x, np.ones(0, np.float32), 1e-5, -1),
        lambda p, x, w: p.rms_norm(x, np.ones(33, np.float32), 1e-5, -1),
        lambda p, x, w: p.rms_norm(x, np.ones(32, np.float32), 1e-5, 5),
        lambda p, x, w: p.linear(x, []),
        lambda p, x, w: p.linear(-1, [(w, None, -1)]),
        lambda p, x, w: p.linear(x, [(w, np.ones(31, np.float32), -1)]),
        lambda p, x, w: p.linear(x, [(w, None, 7)]),
        lambda p, x, w: p.rope(x, 0, 0, False),
        lambda p, x, w: p.rope(x, 1, 0, False),
        lambda p, x, w: p.attention(x, x, x, 0, 2, 2, 8, 0, 1.0, 0.0),
        lambda p, x, w: p.attention(x, x, x, 0, 2, 0, 16, 0, 1.0, 0.0),
        lambda p, x, w: p.attention(x, x, x, -1, 2, 2, 16, 0, 1.0, 0.0),
        lambda p, x, w: p.attention(x, x, 4, 0, 2, 2, 16, 0, 1.0, 0.0),
        lambda p, x, w: p.gated(x, 9, False),
        lambda p, x, w: p.select(9),
        lambda p, x, w: p.keep(9),
        lambda p, x, w: (p.finish(), p.finish()),
        lambda p, x, w: (p.finish(), p.select(x)),
    ],
)
def test_recording_refuses_what_does_not_fit(attempt: Attempt) -> None:
    pool = _native.ThreadPool(1)
    program = _native.Program(pool, _native.select_kernels(""))
    x = program.embed("F32", 4, 32, np.zeros(512, np.uint8), 1.0)
    with pytest.raises(ValueError, match=r"^.+$"):
        attempt(program, x, weight(pool))


def test_missing_objects() -> None:
    pool, kernels = _native.ThreadPool(1), _native.select_kernels("")
    for make in (
        lambda: _native.Program(None, kernels),
        lambda: _native.Program(pool, None),
        lambda: _native.pack("F32", 1, 1, np.zeros(4, np.uint8), None),
        lambda: _native.pick(None, np.zeros(4, np.float32), 1.0, 0, 1.0, 0.0, 0, 0, 0, 1),
    ):
        with pytest.raises(TypeError):
            make()
    program = _native.Program(pool, kernels)
    x = program.embed("F32", 4, 32, np.zeros(512, np.uint8), 1.0)
    with pytest.raises((TypeError, ValueError)):
        program.linear(x, [(None, None, -1)])


@pytest.mark.parametrize(
    ("format", "outputs", "inputs", "size"),
    [
        ("Q4_0", 2, 32, 35),
        ("Q4_0", 2, 33, 36),
        ("Q4_0", 0, 32, 0),
        ("Q4_0", 1, 0, 0),
        ("Q4_K", 1, 32, 18),
        ("F32", 2**62, 4, 0),
        ("F32", 2**60, 4, 0),
        ("F32", 1, 2**62, 0),
        ("Q6_K", 2**63, 2**62, 420),
        ("q4_0", 1, 32, 18),
        ("", 1, 32, 18),
    ],
)
def test_weights_that_do_not_fit_their_data(format: str, outputs: int, inputs: int, size: int) -> None:
    with pytest.raises(ValueError, match=r"weight|format"):
        _native.pack(format, outputs, inputs, np.zeros(size, np.uint8), _native.ThreadPool(1))


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_of_the_embedding_are_those_of_the_reference(format: str) -> None:
    shape = (9, 512)
    data = np.random.default_rng(2).integers(0, 256, num_bytes(format, shape), dtype=np.uint8)
    out = np.empty(shape, np.float32)
    _native.dequantize(format, data, shape[1], out)
    expected = dequantize(data, format, shape)
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    good = ~np.isnan(expected)
    np.testing.assert_array_equal(out[good].view(np.uint32), expected[good].view(np.uint32))
    with pytest.raises(ValueError, match="size its shape asks for"):
        _native.dequantize(format, data[:-1], shape[1], out)
    with pytest.raises(ValueError, match=r"width|size"):
        _native.dequantize(format, data, shape[1] // 2, out)
    with pytest.raises(TypeError):
        _native.dequantize(format, data, shape[1], np.zeros(shape))


def test_moving_slots() -> None:
    cache = Cache(3, 4)
    keys, values = cache.keys.copy(), cache.values.copy()
    _native.move_slots(cache.keys, cache.values, ints([40, 17, 5]), ints([3, 17, 40]))
    for source, target in ((40, 3), (5, 40)):
        moved = cache.keys[:, target // BLOCK, :, :, target % BLOCK]
        np.testing.assert_array_equal(moved, keys[:, source // BLOCK, :, :, source % BLOCK])
        moved = cache.values[:, target // BLOCK, :, target % BLOCK]
        np.testing.assert_array_equal(moved, values[:, source // BLOCK, :, source % BLOCK])
    num_changed = int((cache.values != values).any(axis=(0, 2, 4)).sum())
    assert num_changed == 2
    for source, target in (([48], [0]), ([0], [48]), ([-1], [0]), ([0], [-1]), ([0, 1], [2])):
        with pytest.raises(ValueError, match="move_slots"):
            _native.move_slots(cache.keys, cache.values, ints(source), ints(target))
    with pytest.raises(ValueError, match="do not fit together"):
        _native.move_slots(cache.keys, cache.values[:, :2].copy(), ints([0]), ints([1]))
    with pytest.raises(TypeError):
        _native.move_slots(cache.keys[:, :, ::2], cache.values[:, :, ::2], ints([0]), ints([1]))


def test_instruction_sets() -> None:
    names = _native.available_kernels()
    assert names[-1] == "portable"
    assert _native.select_kernels("").name == names[0]
    for name in names:
        assert _native.select_kernels(name).name == name
    with pytest.raises(ValueError, match=r"unknown instruction set 'mmx'; choose from: .*portable"):
        _native.select_kernels("mmx")
