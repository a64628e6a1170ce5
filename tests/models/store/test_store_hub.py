"""Models of the hub: which files are taken, with the hub's real client against a server on localhost."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
from helpers import command_line
from helpers.hub_server import hub_server

from foredraft.errors import DownloadError, ModelFileError
from foredraft.models.store import Progress
from foredraft.models.store.hub import Choice, choose_files, pull_from_hub

QUANTISATIONS = ["m-F16.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf"]
FOLDER = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]


def _gguf(wanted: str | None, *files: str) -> str | None:
    return choose_files("org/name", files, wanted).gguf


def test_q4_k_m_is_preferred() -> None:
    assert _gguf(None, *QUANTISATIONS) == "m-Q4_K_M.gguf"


def test_the_only_gguf_is_taken() -> None:
    assert _gguf(None, "README.md", "m-Q6_K.gguf", "mmproj-m-F16.gguf") == "m-Q6_K.gguf"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("Q8_0", "m-Q8_0.gguf"),
        ("q4_k_s", "m-Q4_K_S.gguf"),
        ("m-F16.gguf", "m-F16.gguf"),
        ("f16", "m-F16.gguf"),
        ("Q4_0", "m-Q4_0.gguf"),
    ],
)
def test_a_quantisation_or_file_is_chosen_by_name(wanted: str, expected: str) -> None:
    assert _gguf(wanted, *QUANTISATIONS) == expected


def test_a_file_in_a_folder_of_the_repository() -> None:
    assert _gguf("b.gguf", "x/a.gguf", "x/b.gguf") == "x/b.gguf"
    assert _gguf("x/b.gguf", "x/b.gguf", "y/b.gguf") == "x/b.gguf"


@pytest.mark.parametrize("wanted", ["Q4", "Q4_K", "K_M", "Q5_K_M", "", "0", "missing.gguf"])
def test_what_is_not_there_is_answered_with_what_is(wanted: str) -> None:
    with pytest.raises(ModelFileError, match=r"holds no GGUF file or quantisation .* it has m-F16.gguf, m-Q4_0"):
        _gguf(wanted, *QUANTISATIONS)


def test_several_files_of_one_quantisation_need_a_choice() -> None:
    with pytest.raises(ModelFileError, match=r"means several files of org/name; name one of a-Q8_0.gguf, b-Q8_0"):
        _gguf("Q8_0", "a-Q8_0.gguf", "b-Q8_0.gguf")


def test_several_ggufs_without_a_preferred_one_need_a_choice() -> None:
    with pytest.raises(ModelFileError, match=r"several GGUF files; choose one as org/name:FILE: m-F16.gguf, m-Q8"):
        _gguf(None, "m-F16.gguf", "m-Q8_0.gguf")


@pytest.mark.parametrize("wanted", [None, "Q4_K_M", "m-Q4_K_M-00001-of-00002.gguf"])
def test_a_split_gguf_is_refused_with_the_way_out(wanted: str | None) -> None:
    files = ["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"]
    with pytest.raises(ModelFileError, match=r"split GGUF.* download all parts|several GGUF files"):
        _gguf(wanted, *files)


def test_a_folder_is_its_weights_and_what_belongs_to_them() -> None:
    extra = [
        "README.md",
        "model.onnx",
        "original/consolidated.safetensors",
        "consolidated.safetensors",
        "x.bin",
    ]
    assert choose_files("org/name", [*FOLDER, *extra], None) == Choice(folder_files=tuple(FOLDER))


def test_shards_come_with_their_index() -> None:
    files = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
             "model.safetensors.index.json", "tokenizer.model"]  # fmt: skip
    assert choose_files("org/name", files, None).folder_files == tuple(files)


@pytest.mark.parametrize("files", [[], ["README.md"], ["adapter_model.safetensors", "config.json"], FOLDER[1:]])
def test_a_repository_without_a_model(files: list[str]) -> None:
    with pytest.raises(ModelFileError, match=r"org/name holds no model foredraft can load"):
        choose_files("org/name", files, None)


def test_a_quantisation_of_a_repository_without_gguf() -> None:
    with pytest.raises(ModelFileError, match="org/name holds no GGUF file, so 'Q4_0' cannot be chosen"):
        choose_files("org/name", FOLDER, "Q4_0")


# The client itself, against a server. It reads its settings once, so each call has a process of its own.


@pytest.fixture(scope="module")
def hub() -> Iterator[tuple[str, list[str]]]:
    index = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    repositories = {
        "org/gguf": {"a-Q4_K_M.gguf": b"GGUF 4", "a-Q8_0.gguf": b"GGUF 8", "README.md": b"#"},
        "org/folder": {
            "config.json": b"{}",
            "tokenizer.json": b"{ }",
            "model.safetensors.index.json": index,
            "model-1.safetensors": b"one",
            "model-2.safetensors": b"two",
            "pytorch_model.bin": b"not this one",
        },
    }
    refusals = {
        "org/gated": (403, "GatedRepo"),
        "org/private": (401, "RepoNotFound"),
        "org/broken": (500, ""),
    }
    with hub_server(repositories, refusals) as served:
        yield served


def _pull(name: str, address: str, home: Path, **environment: str) -> str:
    """Resolve `name` in a process of its own: what it returned, or the error it raised."""
    code = (
        "import sys\nfrom foredraft.models import store\nfrom foredraft.errors import UserError\n"
        "try: print(store.resolve(sys.argv[1]))\n"
        "except UserError as error: print(type(error).__name__, error)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, name],
        env=command_line.environment(HF_ENDPOINT=address, HF_HOME=str(home), **environment),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert result.stderr == ""
    return result.stdout.removesuffix("\n")


def test_a_gguf_is_fetched_alone_and_then_kept(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    address, served = hub
    served.clear()
    path = Path(_pull("org/gguf", address, tmp_path))
    assert path.name == "a-Q4_K_M.gguf"
    assert path.read_bytes() == b"GGUF 4"
    assert served == ["a-Q4_K_M.gguf"]
    assert _pull("org/gguf:Q4_K_M", address, tmp_path) == str(path)
    assert _pull("org/gguf", address, tmp_path, HF_HUB_OFFLINE="1") == str(path)
    assert _pull("org/gguf", "http://127.0.0.1:9", tmp_path) == str(path), "the cache serves without a network"
    assert served == ["a-Q4_K_M.gguf"]
    assert Path(_pull("org/gguf:a-Q8_0.gguf", address, tmp_path)).read_bytes() == b"GGUF 8"


def test_a_folder_is_fetched_whole_and_without_what_is_not_needed(hub: tuple[str, list[str]], tmp_path: Path) -> None:
    address, served = hub
    served.clear()
    path = Path(_pull("org/folder", address, tmp_path))
    assert sorted(p.name for p in path.iterdir()) == sorted(served) == [
        "config.json", "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json",
        "tokenizer.json",
    ]  # fmt: skip
    assert (path / "model-2.safetensors").read_bytes() == b"two"
    assert _pull("org/folder", address, tmp_path, HF_HUB_OFFLINE="1") == str(path)
    (path / "model-2.safetensors").unlink()
    error = _pull("org/folder", address, tmp_path, HF_HUB_OFFLINE="1")
    assert error.startswith("DownloadError the hub cannot be reached, and the copy of org/folder in its cache lacks")
    assert "model-2.safetensors" in error


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "org/missing",
            "DownloadError no model 'org/missing': no such local file or folder, and the hub has no",
        ),
        ("org/private", "DownloadError no model 'org/private': "),
        ("org/gated", "DownloadError access to org/gated is restricted: ask for it"),
        ("org/broken", "DownloadError cannot fetch org/broken from the hub"),
        ("org/gguf:Q5_0", "ModelFileError org/gguf holds no GGUF file or quantisation 'Q5_0'"),
        (
            "org/na--me..x",
            "ModelFileError 'org/na--me..x' is neither a file, a folder nor a name the hub allows",
        ),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(hub: tuple[str, list[str]], tmp_path: Path, name: str, expected: str) -> None:
    output = _pull(name, hub[0], tmp_path)
    assert output.startswith(expected)
    assert "\n" not in output


def test_no_network_and_nothing_cached(tmp_path: Path) -> None:
    output = _pull("org/gguf", "http://127.0.0.1:9", tmp_path)
    assert output.startswith("DownloadError cannot fetch org/gguf from the hub, and there is no such local file")
    assert "check the name and the network" in output
    assert "\n" not in output


def test_offline_and_nothing_cached(tmp_path: Path) -> None:
    output = _pull("org/gguf", "http://127.0.0.1:9", tmp_path, HF_HUB_OFFLINE="1")
    assert output == (
        "DownloadError org/gguf is not in the hub's cache and HF_HUB_OFFLINE is set; unset it, or give a local file"
    )


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (errno.ENOSPC, "cannot fetch org/name: no space left on the disk of the hub's cache; .*HF_HOME"),
        (errno.EACCES, "cannot fetch org/name: Permission denied: /cache/file; set HF_HOME"),
    ],
)
def test_a_cache_of_the_hub_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, code: int, expected: str) -> None:
    def fail(repo: str, file: str) -> str:
        raise OSError(code, os.strerror(code), "/cache/file")

    monkeypatch.setattr("foredraft.models.store.hub._list_files", lambda repo: ["m.gguf"])
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    steps: list[Progress] = []
    with pytest.raises(DownloadError, match=expected):
        pull_from_hub("org/name", progress=steps.append)
    assert [progress.step for progress in steps] == ["asking the hub"]


def test_further_chat_templates_of_a_repository_are_fetched() -> None:
    """Kind: a model has a template for tools in a folder of its own, and it is missing here."""
    files = [*FOLDER, "additional_chat_templates/tool_use.jinja", "additional_chat_templates/deep/other.jinja"]
    found = choose_files("org/name", files, None).folder_files
    assert "additional_chat_templates/tool_use.jinja" in found
    assert len(found) == len(FOLDER) + 1
