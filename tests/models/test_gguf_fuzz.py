"""Whatever happens to a GGUF file, opening it ends soon, in little memory, with a model or one clear line."""

import time
import tracemalloc
from pathlib import Path

import pytest
from helpers.tiny import LLAMA3, TinyModel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foredraft.errors import UserError
from foredraft.models.source import open_model

SETTINGS = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMBERS = st.sampled_from(
    [
        0,
        1,
        2,
        7,
        2**8,
        2**16 - 1,
        2**20,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**33,
        2**40,
        2**62,
        2**63 - 1,
        2**63,
        2**64 - 1,
    ]
)


class Whole(bytes):
    """The file that is damaged; its contents would drown a failure's report."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    model = TinyModel(family=request.param, num_layers=1, rope_scaling=LLAMA3 if request.param == "llama" else None)
    path = tmp_path_factory.mktemp("whole") / "model.gguf"
    return Whole(model.write_gguf(path, format="Q8_0").read_bytes())


def check(path: Path, content: bytes) -> None:
    file = path / "model.gguf"
    file.write_bytes(content)
    line: str | None = None
    tracemalloc.start()
    start = time.perf_counter()
    try:
        config = open_model(file).config
        for layer in range(config.num_layers):
            config.rope_of_layer(layer).inverse_frequencies()
    except UserError as error:
        line = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.perf_counter() - start < 2.0
    assert peak < 20 * len(content) + 1_000_000
    if line is not None:
        assert line.startswith(f"{file}: ")
        assert line.isprintable()
        assert len(line) < len(str(file)) + 400


def header_size(whole: Whole) -> int:
    """Where the weights start, about: all that the reader interprets lies before."""
    return min(len(whole), whole.rindex(b"output.weight") + 64)


# A place in the header, whatever its size.
PLACES = st.integers(0, 10**6)


@SETTINGS
@given(flips=st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes(tmp_path: Path, whole: Whole, flips: list[tuple[int, int]]) -> None:
    content = bytearray(whole)
    for place, value in flips:
        content[place % header_size(whole)] = value
    check(tmp_path, bytes(content))


@SETTINGS
@given(place=PLACES, size=st.sampled_from([4, 8]), number=NUMBERS)
def test_numbers_written_over(tmp_path: Path, whole: Whole, place: int, size: int, number: int) -> None:
    content = bytearray(whole)
    place %= header_size(whole) - 8
    content[place : place + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")
    check(tmp_path, bytes(content))


@SETTINGS
@given(places=st.tuples(PLACES, PLACES), kind=st.sampled_from(["cut out", "doubled", "truncated"]))
def test_cut_out_doubled_and_truncated(tmp_path: Path, whole: Whole, places: tuple[int, int], kind: str) -> None:
    first, last = sorted(place % header_size(whole) for place in places)
    if kind == "cut out":
        check(tmp_path, whole[:first] + whole[last:])
    elif kind == "doubled":
        check(tmp_path, whole[:last] + whole[first:])
    else:
        check(tmp_path, whole[:first])


@SETTINGS
@given(content=st.binary(max_size=300), counts=st.tuples(NUMBERS, NUMBERS), magic=st.booleans())
def test_random_bytes(tmp_path: Path, content: bytes, counts: tuple[int, int], magic: bool) -> None:
    head = b"GGUF\x03\0\0\0" + b"".join(count.to_bytes(8, "little") for count in counts) if magic else b""
    check(tmp_path, head + content)


def test_every_byte_of_the_counts_and_of_the_first_keys(tmp_path: Path, whole: Whole) -> None:
    for place in range(100):
        for value in (0, 1, 0xFF):
            check(tmp_path, whole[:place] + bytes([value]) + whole[place + 1 :])
