"""What is measured is what it says: on a tiny model, where values and not speeds can be checked."""

import sys
from pathlib import Path

import pytest
from helpers.tiny import TinyModel

from foredraft.bench.bandwidth import ReadBandwidth
from foredraft.bench.engine import OUTSIDE, MeasuredModel
from foredraft.bench.fresh import run_fresh, start_foredraft
from foredraft.errors import UserError


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(family="qwen2", seed=1).write_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def model(tiny: Path) -> MeasuredModel:
    return MeasuredModel(tiny, num_threads=1)


def test_the_weights_that_are_read(model: MeasuredModel) -> None:
    config = model.decoder.config
    shapes = {name: shape for name, shape in config.tensor_shapes().items() if len(shape) == 2}
    embedding = shapes.pop("token_embd.weight")
    if config.tied_embeddings:
        shapes["output.weight"] = embedding
    num_values = sum(rows * columns for rows, columns in shapes.values())
    assert model.num_weight_bytes >= 4 * num_values  # F32; rows may be filled up
    assert model.num_weight_bytes <= 4 * num_values * 1.5


def test_the_parts_of_a_round_add_up_to_it(model: MeasuredModel) -> None:
    plain, verify = model.round_costs(num_verified=4, num_rounds=3)
    assert (plain.num_tokens, verify.num_tokens) == (1, 4)
    for cost in (plain, verify):
        assert {"linear", "attention", OUTSIDE} <= set(cost.parts_s)
        assert all(seconds > 0 for seconds in cost.parts_s.values())
        assert sum(cost.parts_s.values()) == pytest.approx(cost.whole_s)


def test_speeds_are_positive_and_nothing_stays_in_the_cache(model: MeasuredModel) -> None:
    assert model.prompt_tokens_per_s(40) > 0
    assert model.decode_tokens_per_s(4) > 0
    assert model.forward_seconds(3, context=20) > 0
    model.round_costs(num_verified=4, num_rounds=3)
    pool = model.decoder.cache.pool
    assert (pool.num_used, pool.num_kept) == (0, 0)


def test_read_bandwidth() -> None:
    bandwidth = ReadBandwidth(num_threads=2, total_bytes=2**20)
    assert 1e7 < bandwidth.measure(num_passes=3) < 1e13
    bandwidth.close()


def test_a_fresh_process() -> None:
    code = "import sys; held = bytearray(64 * 2**20); print('out'); print('log', file=sys.stderr); sys.exit(3)"
    run = run_fresh([sys.executable, "-c", code])
    assert (run.returncode, run.output, run.errors) == (3, "out\n", "log\n")
    assert run.whole_s > 0
    assert run.peak_bytes > 64 * 2**20


def test_our_start(tiny: Path) -> None:
    start = start_foredraft(tiny, num_threads=1)
    assert 0 < start.ready_s < start.whole_s
    assert 10e6 < start.peak_bytes < 1e9


def test_the_memory_of_a_start_is_its_own(tiny: Path) -> None:
    held = bytearray(512 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    assert start_foredraft(tiny, num_threads=1).peak_bytes < 400e6


def test_a_start_that_fails(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"bad\.gguf"):
        start_foredraft(tmp_path / "bad.gguf", num_threads=1)
