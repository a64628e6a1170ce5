import resource
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from helpers import raw_gguf as raw
from helpers.tiny import TinyModel

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.kernels.formats import BLOCK
from foredraft.models.gguf_file import GGUFFile


def write(path: Path, content: bytes) -> Path:
    file = path / "model.gguf"
    file.write_bytes(content)
    return file


def refused(path: Path, content: bytes) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(UserError) as caught:
        GGUFFile(write(path, content))
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(str(path / "model.gguf") + ": ")
    return line.removeprefix(str(path / "model.gguf") + ": ")


def assert_like_the_gguf_package(path: Path) -> None:
    ours, theirs = GGUFFile(path), GGUFReader(path)
    fields = {name: field for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert list(ours.metadata) == list(fields)
    for name, field in fields.items():
        expected = field.contents()
        assert ours.metadata[name] == expected
        assert type(ours.metadata[name]) is type(expected)
    assert list(ours.tensors) == [tensor.name for tensor in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(int(length) for length in tensor.shape)[::-1]
        assert mine.format == tensor.tensor_type.name
        np.testing.assert_array_equal(mine.data, tensor.data.view(np.uint8).reshape(-1))


def test_smollm2_is_read_as_by_the_gguf_package(smollm2_path: Path) -> None:
    assert_like_the_gguf_package(smollm2_path)


def test_a_written_file_is_read_as_by_the_gguf_package(tmp_path: Path) -> None:
    formats = {"attn_q": "Q8_0", "attn_k": "F16", "attn_v": "BF16", "ffn_up": "Q5_1"}
    model = TinyModel()
    path = model.write_gguf(tmp_path / "model.gguf", format=lambda name: formats.get(name.split(".")[-2], "Q4_0"))
    assert_like_the_gguf_package(path)


def test_all_kinds_of_metadata(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -100)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 2**63 + 1)
    writer.add_int64("i64", -(2**62))
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "naïve 漢字 🙂")
    writer.add_array("texts", ["", "a", "é", "🙂" * 100])
    writer.add_array("numbers", [1, -2, 3])
    writer.add_array("reals", [0.5, -0.25])
    writer.add_array("flags", [True, False])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert_like_the_gguf_package(tmp_path / "model.gguf")
    metadata = GGUFFile(tmp_path / "model.gguf").metadata
    assert metadata["flags"] == [True, False]
    assert metadata["f32"] == float(np.float32(0.1))
    assert metadata["texts"] == ["", "a", "é", "🙂" * 100]


def test_text_that_is_not_utf8_keeps_its_bytes(tmp_path: Path) -> None:
    file = GGUFFile(write(tmp_path, raw.gguf([raw.key("bad", raw.STRING, raw.text(b"a\xff"))])))
    value = file.metadata["bad"]
    assert isinstance(value, str)
    assert value.encode("utf-8", "surrogateescape") == b"a\xff"


def test_version_2_and_other_alignments(tmp_path: Path) -> None:
    keys = [raw.u32("general.alignment", 64)]
    content = raw.gguf(keys, [raw.tensor("t", [3])], struct.pack("<3f", 1, 2, 3), version=2, alignment=64)
    tensor = GGUFFile(write(tmp_path, content)).tensors["t"]
    assert tensor.data.view(np.float32).tolist() == [1, 2, 3]


def test_hundreds_of_thousands_of_tokens_are_read_at_once(tmp_path: Path) -> None:
    num = 300_000
    content = raw.gguf([raw.array("tokens", raw.STRING, num, b"".join(raw.text(f"token{i}") for i in range(num)))])
    path = write(tmp_path, content)
    start = time.perf_counter()
    tokens = GGUFFile(path).metadata["tokens"]
    assert time.perf_counter() - start < 2.0
    assert isinstance(tokens, list)
    assert (len(tokens), tokens[-1]) == (num, f"token{num - 1}")


T = raw.tensor("t", [4])
DATA = bytes(16)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "random bytes": (np.random.default_rng(0).bytes(4096), "is not a GGUF file"),
    "a page instead of a file": (b"<!DOCTYPE html><html>", "is not a GGUF file"),
    "magic only": (b"GGUF", "the file ends inside the header"),
    "half a header": (raw.gguf()[:15], "the file ends inside the header"),
    "absurd number of tensors": (raw.gguf(num_tensors=2**63), "claims 9223372036854775808 tensors"),
    "more tensors than bytes": (raw.gguf(num_tensors=100_000), "claims 100000 tensors"),
    "absurd number of keys": (raw.gguf(num_keys=2**40), "claims 1099511627776 keys"),
    "fewer keys than claimed": (
        raw.gguf([raw.u32("a", 1)], data=bytes(64), num_keys=2),
        "metadata key 2 is empty",
    ),
    "key of absurd length": (
        raw.gguf([struct.pack("<Q", 2**62)], data=bytes(64)),
        "claims a length of 4611686018427387904",
    ),
    "text of absurd length": (
        raw.gguf([raw.key("a", raw.STRING, struct.pack("<Q", 2**40)), raw.u32("b", 1)]),
        "metadata key 'a' claims a length of 1099511627776",
    ),
    "text beyond the end": (
        raw.gguf([raw.key("a", raw.STRING, struct.pack("<Q", 1000)), raw.u32("b", 1)]),
        "the file ends inside metadata key 'a'",
    ),
    "list of absurd length": (
        raw.gguf([raw.array("a", raw.U32, 2**60, b""), raw.u32("b", 1)]),
        "metadata key 'a' claims 1152921504606846976 entries",
    ),
    "list of texts of absurd length": (
        raw.gguf([raw.array("a", raw.STRING, 2**60, b""), raw.u32("b", 1)]),
        "metadata key 'a' claims 1152921504606846976 entries",
    ),
    "list of a text beyond the end": (
        raw.gguf([raw.array("a", raw.STRING, 1, struct.pack("<Q", 2**50)), raw.u32("b", 1)]),
        "the file ends inside metadata key 'a'",
    ),
    "list of lists": (
        raw.gguf([raw.array("a", raw.ARRAY, 1, bytes(12))]),
        "is a list of the unsupported type 9",
    ),
    "unknown type of value": (raw.gguf([raw.key("a", 77, bytes(8))]), "has the unknown type 77"),
    "key twice": (raw.gguf([raw.u32("a", 1), raw.u32("a", 1)]), "metadata key 'a' occurs twice"),
    "tensor twice": (raw.gguf([], [T, T], DATA), "tensor 't' occurs twice"),
    "alignment zero": (raw.gguf([raw.u32("general.alignment", 0)]), "must be a power of two, it is '0'"),
    "alignment 24": (raw.gguf([raw.u32("general.alignment", 24)]), "must be a power of two, it is '24'"),
    "alignment of text": (raw.gguf([raw.string("general.alignment", "32")]), "must be a power of two"),
    "no dimensions": (raw.gguf([], [raw.tensor("t", [])], DATA), "claims 0 dimensions"),
    "too many dimensions": (raw.gguf([], [raw.tensor("t", [1] * 5)], DATA), "claims 5 dimensions"),
    "dimension of zero": (raw.gguf([], [raw.tensor("t", [0])], DATA), "claims the shape (0,)"),
    "absurd dimension": (raw.gguf([], [raw.tensor("t", [2**63])], DATA), "claims the shape"),
    "product of dimensions beyond 64 bits": (
        raw.gguf([], [raw.tensor("t", [2**40, 2**40, 2**40])], DATA),
        "before the end of tensor 't'",
    ),
    "row that is no whole number of blocks": (
        raw.gguf([], [raw.tensor("t", [33], type_id=8)], bytes(64)),
        "rows of 33 values do not divide into Q8_0 blocks of 32",
    ),
    "offset that is not aligned": (
        raw.gguf([], [raw.tensor("t", [4], offset=8)], bytes(64)),
        "not a multiple of 32",
    ),
    "offset beyond the end": (
        raw.gguf([], [raw.tensor("t", [4], offset=2**60)], DATA),
        "before the end of tensor 't'",
    ),
    "data cut short": (raw.gguf([], [T], bytes(15)), "the file ends 1 bytes before the end of tensor 't'"),
    "tensors that overlap": (
        raw.gguf([], [raw.tensor("a", [16]), raw.tensor("b", [4], offset=32)], bytes(128)),
        "tensors 'a' and 'b' overlap",
    ),
    "name of a tensor of absurd length": (
        raw.gguf([], [raw.text("x" * 5000)] * 2),
        "claims a length of 5000",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    assert message in refused(tmp_path, content)
    with pytest.raises(ModelFileError):
        GGUFFile(tmp_path / "model.gguf")


def test_every_truncation_of_a_real_file_is_refused(tmp_path: Path) -> None:
    whole = TinyModel(num_layers=1).write_gguf(tmp_path / "whole.gguf").read_bytes()
    for length in [*range(200), *range(200, len(whole), 997), len(whole) - 1]:
        refused(tmp_path, whole[:length])


@pytest.mark.parametrize(
    ("type_id", "name"),
    [(16, "IQ2_XXS"), (10, "Q2_K"), (20, "IQ4_NL"), (39, "MXFP4"), (26, "I32"), (4711, "type 4711")],
)
def test_other_quantisations_are_refused_by_name(tmp_path: Path, type_id: int, name: str) -> None:
    content = raw.gguf([], [raw.tensor("blk.0.attn_q.weight", [256], type_id=type_id)], bytes(1024))
    line = refused(tmp_path, content)
    assert f"tensor 'blk.0.attn_q.weight' is quantised as {name}" in line
    assert "Q4_K" in line
    with pytest.raises(UnsupportedModelError):
        GGUFFile(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (1, "GGUF version 1, which is obsolete"),
        (4, "GGUF version 4"),
        (0x03000000, "big-endian"),
        (0, "GGUF version 0"),
    ],
)
def test_other_versions_are_refused(tmp_path: Path, version: int, message: str) -> None:
    assert message in refused(tmp_path, raw.gguf(version=version))


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        GGUFFile(tmp_path / "nothing.gguf")
    with pytest.raises(ModelFileError, match="is a folder"):
        GGUFFile(tmp_path)
    with pytest.raises(ModelFileError, match="is not a regular file"):
        GGUFFile("/dev/null")
    with pytest.raises(ModelFileError, match="cannot be read"):
        GGUFFile(tmp_path / ("x" * 300))


def test_absurd_claims_cost_neither_time_nor_memory(tmp_path: Path) -> None:
    # 64 MB of zeros behind a header that claims as much of everything as the checks let through.
    content = raw.gguf([raw.u32("a", 1)], num_keys=65_536, num_tensors=131_072) + bytes(1 << 26)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(tmp_path, content)
    assert time.perf_counter() - start < 2.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def split(path: Path) -> list[Path]:
    """A model in three parts, as llama.cpp's gguf-split and the gguf package name them."""
    writer = GGUFWriter(path / "model.gguf", "llama", split_max_tensors=2)
    for name in "abcde":
        writer.add_tensor(name, np.full(4, ord(name), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return [path / f"model-{index:05d}-of-00003.gguf" for index in (1, 2, 3)]


def test_a_split_model_is_read_whole(tmp_path: Path) -> None:
    file = GGUFFile(split(tmp_path)[0])
    assert {name: tensor.data.view(np.float32)[0] for name, tensor in file.tensors.items()} == {
        name: ord(name) for name in "abcde"
    }


def rename(paths: list[Path]) -> Path:
    return paths[0].rename(paths[0].with_name("other.gguf"))


def lose(paths: list[Path]) -> Path:
    paths[1].unlink()
    return paths[0]


def mix(paths: list[Path]) -> Path:
    paths[1].write_bytes(paths[2].read_bytes())
    return paths[0]


def cut(paths: list[Path]) -> Path:
    paths[2].write_bytes(paths[2].read_bytes()[:-20])
    return paths[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda paths: paths[1], "is part 2 of 3; open the first part, model-00001-of-00003.gguf"),
        (rename, "is part 1 of 3, so its name must end in -00001-of-00003.gguf"),
        (lose, "model-00002-of-00003.gguf: no such file"),
        (mix, "model-00002-of-00003.gguf: is not part 2 of 3"),
        (cut, "model-00003-of-00003.gguf: the file ends"),
    ],
)
def test_split_models_that_are_not_whole(tmp_path: Path, change: Callable[[list[Path]], Path], message: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        GGUFFile(change(split(tmp_path)))
    assert message in str(caught.value)


def test_wrong_numbers_of_parts(tmp_path: Path) -> None:
    part: Any = raw.u32("split.count", 2)
    assert "'split.no' is missing or wrong" in refused(tmp_path, raw.gguf([part]))
    many = [raw.u32("split.count", 2**31), raw.u32("split.no", 0)]
    assert "'split.count' is missing or wrong" in refused(tmp_path, raw.gguf(many))


def test_gguf_type_names_agree_with_the_gguf_package(tmp_path: Path) -> None:
    for kind in gguf.GGMLQuantizationType:
        content = raw.gguf([], [raw.tensor("t", [256], type_id=int(kind))], bytes(2048))
        if kind.name in BLOCK:
            assert GGUFFile(write(tmp_path, content)).tensors["t"].format == kind.name
        else:
            assert f"quantised as {kind.name}," in refused(tmp_path, content)
