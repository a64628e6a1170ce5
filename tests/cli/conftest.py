"""How the tests of the command line run it: as a process, with the fake LLM or with the real one."""

from pathlib import Path

import pytest
from helpers.command_line import FAKE, REAL, Run, runner


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with files that pass for models: fake.gguf, draft.gguf and plain.gguf (no chat template)."""
    for name in ("fake.gguf", "draft.gguf", "plain.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    return tmp_path


@pytest.fixture
def fake(models: Path) -> Run:
    """Run `foredraft` with the fake LLM, in the folder `models`."""
    return runner(FAKE, models)


@pytest.fixture
def real(tmp_path: Path) -> Run:
    """Run the real `foredraft`."""
    return runner(REAL, tmp_path)
