import os
from pathlib import Path

import pytest

from foredraft.models.gguf_file import GGUFFile
from foredraft.text import Tokenizer, tokenizer_from_gguf

REAL_FILES = {
    "qwen2.5-coder": "qwen2.5-coder-0.5b.gguf",
    "qwen2.5-coder-1.5b": "qwen2.5-coder-1.5b.gguf",
    "gemma3": "gemma3-270m.gguf",
}


def real_files() -> dict[str, Path]:
    """Further models of the comparison, as far as the folder $FOREDRAFT_MODELS has them."""
    folder = Path(os.environ.get("FOREDRAFT_MODELS", "/nonexistent"))
    return {name: folder / file for name, file in REAL_FILES.items() if (folder / file).exists()}


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, object]:
    return GGUFFile(smollm2_path).metadata


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, object]) -> Tokenizer:
    return tokenizer_from_gguf(smollm2_metadata)


@pytest.fixture(scope="session")
def real_tokenizers() -> dict[str, Tokenizer]:
    return {name: tokenizer_from_gguf(GGUFFile(path).metadata) for name, path in real_files().items()}
