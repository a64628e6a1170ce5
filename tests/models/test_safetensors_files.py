import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.tiny import TinyModel, encode, safetensors_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foredraft.errors import ModelFileError, UnsupportedModelError, UserError
from foredraft.models.safetensors_files import read_safetensors
from foredraft.models.source import open_model

INDEX = "model.safetensors.index.json"
SETTINGS = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: object = "F32", shape: object = (4,), places: object = (0, 16)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": places}


DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "the file is empty"),
    "seven bytes": (b"1234567", "has only 7 bytes"),
    "random bytes": (np.random.default_rng(1).bytes(4096), "more than the file can hold"),
    "absurd length of header": (
        struct.pack("<Q", 2**63) + b"{}",
        "its header claims 9223372036854775808 bytes",
    ),
    "header cut short": (file_of({"t": entry()}, bytes(16))[:40], "its header claims"),
    "not JSON": (file_of(b"{'t': 1}"), "is not valid JSON"),
    "not UTF-8": (file_of(b'{"\xff": 1}'), "is not valid JSON"),
    "not an object": (file_of([1, 2]), "must be a JSON object"),
    "nested deeply": (file_of(b"[" * 200_000), "nested too deeply"),
    "number of thousands of digits": (file_of(b'{"t": ' + b"9" * 5000 + b"}"), "is not valid JSON"),
    "name twice": (file_of(b'{"t": {}, "t": {}}'), "occurs twice"),
    "entry that is no object": (file_of({"t": 3}), "must be a JSON object"),
    "no dtype": (file_of({"t": {"shape": [4], "data_offsets": [0, 16]}}, bytes(16)), "lacks dtype"),
    "no shape": (file_of({"t": {"dtype": "F32", "data_offsets": [0, 16]}}, bytes(16)), "lacks dtype"),
    "one offset": (file_of({"t": entry(places=[0])}, bytes(16)), "lacks dtype"),
    "negative length": (file_of({"t": entry(shape=[-4])}, bytes(16)), "lacks dtype"),
    "length of true": (file_of({"t": entry(shape=[True])}, bytes(16)), "lacks dtype"),
    "absurd length": (file_of({"t": entry(shape=[2**62])}, bytes(16)), "lacks dtype"),
    "product beyond 64 bits": (
        file_of({"t": entry(shape=[2**40] * 3)}, bytes(16)),
        "does not take the bytes 0 to 16",
    ),
    "thousands of dimensions": (
        file_of({"t": entry(shape=[1] * 5000)}, bytes(16)),
        "does not take the bytes",
    ),
    "shape and bytes differ": (
        file_of({"t": entry(shape=[5])}, bytes(16)),
        "does not take the bytes 0 to 16",
    ),
    "places reversed": (file_of({"t": entry(places=[16, 0])}, bytes(16)), "does not take the bytes 16 to 0"),
    "hole": (file_of({"t": entry(places=[4, 20])}, bytes(20)), "starts at byte 4, not 0"),
    "overlap": (
        file_of({"a": entry(), "b": entry(places=[8, 24])}, bytes(24)),
        "'b' starts at byte 8, not 16",
    ),
    "data cut short": (
        file_of({"t": entry()}, bytes(15)),
        "take 16 bytes, but 15 are there; it is truncated",
    ),
    "data left over": (file_of({"t": entry()}, bytes(17)), "take 16 bytes, but 17 are there; it is damaged"),
    "unknown dtype": (file_of({"t": entry("F4")}, bytes(16)), "has the unknown dtype 'F4'"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_in_one_line(tmp_path: Path, name: str) -> None:
    content, message = DAMAGED[name]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_safetensors(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)
    assert str(caught.value).isprintable()


def test_scalars_empty_tensors_and_all_dtypes(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    header = {
        "__metadata__": {"format": "pt"},
        "scalar": entry("I64", [], [0, 8]),
        "none": entry("F16", [0, 3], [8, 8]),
        "flags": entry("BOOL", [3], [8, 11]),
    }
    file.write_bytes(file_of(header, bytes(11)))
    tensors = read_safetensors(file)
    assert {name: (tensor.format, tensor.shape) for name, tensor in tensors.items()} == {
        "scalar": ("I64", ()),
        "none": ("F16", (0, 3)),
        "flags": ("BOOL", (3,)),
    }


def folder(path: Path) -> Path:
    return TinyModel(num_layers=1).write_folder(path / "model")


def refused(path: Path, kind: type[UserError] = ModelFileError) -> str:
    with pytest.raises(kind) as caught:
        open_model(path)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_folders_that_are_no_models(tmp_path: Path) -> None:
    assert "is an empty folder" in refused(tmp_path)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    assert "name the file in it, such as m.gguf" in refused(tmp_path)


def test_config_that_is_missing_or_no_json(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text("{")
    assert "config.json: the file is not valid JSON" in refused(path)
    (path / "config.json").write_text("")
    assert "config.json: the file is empty" in refused(path)
    (path / "config.json").unlink()
    assert "config.json is missing" in refused(path)


def test_weights_that_are_missing(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "model.safetensors").unlink()
    assert "has neither model.safetensors nor model.safetensors.index.json" in refused(path)
    (path / "pytorch_model.bin").write_bytes(b"")
    assert "its weights are in pytorch_model.bin" in refused(path, UnsupportedModelError)


def test_one_file_of_a_folder(tmp_path: Path) -> None:
    path = folder(tmp_path)
    assert f"give the folder, {path}" in refused(path / "model.safetensors")
    assert f"give the folder, {path}" in refused(path / "config.json")


Index = dict[str, Any]


def edit_index(change: Callable[[Index], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        index = json.loads((path / INDEX).read_text())
        change(index)
        (path / INDEX).write_text(json.dumps(index))

    return edit


def drop_from_shard(path: Path) -> None:
    weights = TinyModel(num_layers=1).weights()
    names = list(weights)[1::3][1:]
    content = safetensors_bytes({name: weights[name] for name in names}, dtype="F32")
    (path / "model-00002-of-00003.safetensors").write_bytes(content)


def copy_shard(path: Path) -> None:
    content = (path / "model-00001-of-00003.safetensors").read_bytes()
    (path / "model-00002-of-00003.safetensors").write_bytes(content)


def place(name: object, shard: object) -> Callable[[Path], None]:
    return edit_index(lambda index: index["weight_map"].update({name: shard}))


FIRST, SECOND = "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: (path / SECOND).unlink(), f"shard '{SECOND}' is missing"),
        (drop_from_shard, f"of {INDEX} is missing"),
        (copy_shard, "is also in another shard"),
        (lambda path: (path / INDEX).write_text("[]"), "must be a JSON object"),
        (edit_index(lambda index: index.pop("weight_map")), "'weight_map' must map"),
        (place("x", "../model.safetensors"), "'weight_map' must map"),
        (place("x", 3), "'weight_map' must map"),
        (place("model.norm.weight", FIRST), "is in another shard"),
    ],
)
def test_shards(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    path = TinyModel(num_layers=1).write_folder(tmp_path / "model", num_shards=3)
    open_model(path)
    change(path)
    assert message in refused(path)


def with_weights(path: Path, change: Callable[[dict[str, Any]], object], dtype: str = "F32") -> Path:
    weights = dict(TinyModel(num_layers=1).weights())
    change(weights)
    (path / "model.safetensors").write_bytes(safetensors_bytes(weights, dtype=dtype))
    return path


def test_a_tensor_that_is_missing_or_of_a_wrong_shape(tmp_path: Path) -> None:
    path = folder(tmp_path)
    name = "model.layers.0.mlp.up_proj.weight"
    with_weights(path, lambda weights: weights.pop(name))
    assert f"tensor '{name}' is missing" in refused(path)
    with_weights(path, lambda weights: weights.update({name: weights[name].T}))
    assert f"tensor '{name}' has shape (64, 128), expected (128, 64)" in refused(path)


def test_a_layer_with_more_than_foredraft_knows_is_refused(tmp_path: Path) -> None:
    path = folder(tmp_path)
    extra = np.zeros((128, 64), dtype=np.float32)
    with_weights(path, lambda weights: weights.update({"model.layers.0.mlp.experts.0.weight": extra}))
    assert "is not part of a llama model" in refused(path, UnsupportedModelError)
    with_weights(path, lambda weights: weights.update({"model.layers.1.mlp.up_proj.weight": extra}))
    assert "it says that it has 1 layers, but it has a tensor" in refused(path)


def test_what_text_does_not_need_is_listed(tmp_path: Path) -> None:
    path = folder(tmp_path)
    names = ("vision_tower.embed.weight", "model.layers.0.self_attn.rotary_emb.inv_freq")
    with_weights(path, lambda weights: weights.update(dict.fromkeys(names, np.zeros(3, dtype=np.float32))))
    assert open_model(path).unused_tensors == names


def test_weights_in_other_dtypes(tmp_path: Path) -> None:
    path = folder(tmp_path)
    content = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(content.replace(b'"F32"', b'"I32"'))
    assert "is stored as I32, which is not supported" in refused(path, UnsupportedModelError)


@pytest.mark.parametrize(
    ("tensor", "method"),
    [
        ("model.layers.0.mlp.up_proj.qweight", "GPTQ or AWQ"),
        ("model.layers.0.mlp.up_proj.weight_scale_inv", "fp8"),
        ("model.layers.0.mlp.up_proj.weight_packed", "compressed-tensors"),
        ("model.layers.0.mlp.up_proj.weight.absmax", "bitsandbytes"),
    ],
)
def test_quantised_folders_are_known_by_their_tensors(tmp_path: Path, tensor: str, method: str) -> None:
    path = folder(tmp_path)
    with_weights(path, lambda weights: weights.update({tensor: np.zeros(3, dtype=np.float32)}))
    line = refused(path, UnsupportedModelError)
    assert f"its weights are quantised ({method}, tensor '{tensor}')" in line


def tie(path: Path, tied: bool | None) -> None:
    config = json.loads((path / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    (path / "config.json").write_text(json.dumps(config if tied is None else config | {"tie_word_embeddings": tied}))


def test_tied_and_untied_output(tmp_path: Path) -> None:
    path = folder(tmp_path)
    for said in (False, None, True):
        # A matrix that differs from the embedding counts more than what config.json says.
        tie(path, said)
        assert not open_model(path).config.tied_embeddings
    with_weights(path, lambda weights: weights.update({"lm_head.weight": weights["model.embed_tokens.weight"]}))
    tie(path, True)
    source = open_model(path)
    assert source.config.tied_embeddings
    assert source.unused_tensors == ("lm_head.weight",)
    tie(path, False)
    assert not open_model(path).config.tied_embeddings
    with_weights(path, lambda weights: weights.pop("lm_head.weight"))
    assert "tensor 'lm_head.weight' is missing" in refused(path)
    for said in (True, None):
        tie(path, said)
        source = open_model(path)
        assert source.config.tied_embeddings
        assert "output.weight" not in source.tensors


@pytest.mark.parametrize(
    ("prefix", "head"), [("language_model.model.", "language_model."), ("model.language_model.", "")]
)
def test_the_text_part_of_a_multimodal_model(tmp_path: Path, prefix: str, head: str) -> None:
    model = TinyModel(family="gemma3", num_layers=1)
    path = model.write_folder(tmp_path / "model")
    weights = {
        head + name if name.startswith("lm_head") else prefix + name.removeprefix("model."): values
        for name, values in model.weights().items()
    }
    weights["vision_tower.x"] = np.zeros(1, dtype=np.float32)
    (path / "model.safetensors").write_bytes(safetensors_bytes(weights, dtype="F32"))
    config = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": model.config(),
        "tie_word_embeddings": False,
        "vision_config": {},
    }
    plain = open_model(TinyModel(family="gemma3", num_layers=1).write_folder(tmp_path / "plain"))
    (path / "config.json").write_text(json.dumps(config))
    source = open_model(path)
    assert source.config == plain.config
    assert source.unused_tensors == ("vision_tower.x",)
    for name, tensor in plain.tensors.items():
        np.testing.assert_array_equal(source.tensors[name].data, tensor.data)


def test_two_names_of_one_tensor(tmp_path: Path) -> None:
    path = folder(tmp_path)
    name = "model.language_model.norm.weight"
    with_weights(path, lambda weights: weights.update({name: weights["model.norm.weight"]}))
    assert "are the same one" in refused(path)


def check(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    line: str | None = None
    tracemalloc.start()
    start = time.perf_counter()
    try:
        read_safetensors(file)
    except UserError as error:
        line = str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert time.perf_counter() - start < 2.0
    assert peak < 50 * len(content) + 1_000_000
    if line is not None:
        assert line.startswith(f"{file}: ")
        assert line.isprintable()
        assert len(line) < len(str(file)) + 400


HEADER = {"a": entry(), "b": entry("BF16", [2, 2], [16, 24]), "__metadata__": {"format": "pt"}}
WHOLE = file_of(HEADER, encode(np.arange(4, dtype=np.float32), "F32") + bytes(8))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@SETTINGS
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_fuzz_flipped_bytes(tmp_path: Path, flips: list[tuple[int, int]]) -> None:
    content = bytearray(WHOLE)
    for place, value in flips:
        content[place % len(content)] = value
    check(tmp_path / "model.safetensors", bytes(content))


@SETTINGS
@given(value=JSON, key=st.sampled_from(["dtype", "shape", "data_offsets"]))
def test_fuzz_any_json_in_an_entry(tmp_path: Path, value: object, key: str) -> None:
    content = file_of({"t": {**entry(), key: value}}, bytes(16))
    check(tmp_path / "model.safetensors", content)


@SETTINGS
@given(value=JSON)
def test_fuzz_any_json_as_header(tmp_path: Path, value: object) -> None:
    check(tmp_path / "model.safetensors", file_of(value, bytes(16)))


@SETTINGS
@given(content=st.binary(max_size=200), length=st.integers(0, 2**64 - 1))
def test_fuzz_random_bytes(tmp_path: Path, content: bytes, length: int) -> None:
    check(tmp_path / "model.safetensors", content)
    check(tmp_path / "model.safetensors", struct.pack("<Q", length) + content)


def test_every_truncation(tmp_path: Path) -> None:
    for length in range(len(WHOLE)):
        check(tmp_path / "model.safetensors", WHOLE[:length])
