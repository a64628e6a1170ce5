"""The documents' code runs as it would for a user who has the built-in model and two files of the same family."""

import os
import sys
from pathlib import Path

import pytest
from helpers.command_line import environment

# Like the command, but answers are kept short where the document does not say how long they may be.
_COMMAND = """#!/bin/sh
case " $* " in
  *" --max-tokens "*|*" --help "*) ;;
  " generate "*|" chat "*) set -- "$@" --max-tokens 12 ;;
esac
exec "{python}" -P -m foredraft.cli.main "$@"
"""


@pytest.fixture
def place(tmp_path: Path, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `target.gguf` and `draft.gguf`, the current one of the test; the model cache is filled."""
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).symlink_to(smollm2_path.resolve())
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "smollm2-135m.gguf").symlink_to(smollm2_path.resolve())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOREDRAFT_CACHE", str(cache))
    return tmp_path


@pytest.fixture
def user(place: Path) -> dict[str, str]:
    """The environment of a user's shell, in which `foredraft` is the one the tests import."""
    programs = place / "bin"
    programs.mkdir()
    command = programs / "foredraft"
    command.write_text(_COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    return environment(PATH=os.pathsep.join([str(programs), os.environ["PATH"]]), PYTHONWARNINGS="error")
