"""foredraft: language models that answer faster without changing a word."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["LLM", "Chunk", "Completion", "SamplingParams", "__version__"]

if TYPE_CHECKING:
    from foredraft.engine import Completion
    from foredraft.llm import LLM, Chunk
    from foredraft.sampling import SamplingParams

_HOMES = {
    "LLM": "foredraft.llm",
    "Chunk": "foredraft.llm",
    "Completion": "foredraft.engine",
    "SamplingParams": "foredraft.sampling",
}


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for, so that `foredraft --help` need not wait for them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
