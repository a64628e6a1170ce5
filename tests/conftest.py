"""What all tests share: the real model they run on, and how hypothesis behaves."""

import os
from pathlib import Path

import hypothesis
import pytest

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
