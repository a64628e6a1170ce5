"""What all tests share: the real model they run on, and how hypothesis behaves."""

import importlib.util
import os
import signal
from pathlib import Path

import hypothesis
import pytest

import foredraft  # before any folder joins the import path, so that what is installed is what is tested

if importlib.util.find_spec("foredraft._native") is None:
    pytest.exit(
        f"{Path(foredraft.__file__).parent} has no compiled module: run the command `pytest`, not `python -m pytest`, "
        "where foredraft is installed (see CONTRIBUTING.md)",
        returncode=4,
    )

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So it is where a shell has started the tests in the background. Some of them send Ctrl-C to what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("local", deadline=None)
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct, Q4_1: from the folder $FOREDRAFT_MODELS, or pulled into the cache folder."""
    from foredraft.models.store import resolve

    kept = Path(os.environ.get("FOREDRAFT_MODELS", "")) / "smollm2-135m.gguf"
    if "FOREDRAFT_MODELS" in os.environ and kept.exists():
        return kept
    return resolve("smollm2-135m")
