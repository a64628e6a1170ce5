"""Where model files come from: a path, a built-in name, or a repository of the Hugging Face hub."""

import difflib
import os
import re
from pathlib import Path

from foredraft.errors import ModelFileError
from foredraft.models.store.builtin import BUILT_IN, DEFAULT_MODEL, BuiltIn, pull_built_in
from foredraft.models.store.cache import Progress, ProgressCallback, cache_folder

__all__ = [
    "BUILT_IN",
    "DEFAULT_MODEL",
    "BuiltIn",
    "Progress",
    "ProgressCallback",
    "cache_folder",
    "is_model_reference",
    "resolve",
]

_HUB_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?::(?P<wanted>[\w.][\w./ +-]*))?", re.ASCII)
_FILE_SUFFIXES = (".gguf", ".safetensors", ".bin")


def resolve(name: str | os.PathLike[str], *, verify: bool = False, progress: ProgressCallback | None = None) -> Path:
    """Return the file or folder on this machine that holds model `name`, fetching it when needed.

    `name` is, tried in this order: a built-in name (`smollm2-135m`; a folder that happens to be called
    so is written `./smollm2-135m`), an existing file or folder, or a hub id: `org/name`,
    `org/name:Q4_K_M` (the GGUF file of that quantisation) or `org/name:file.gguf`. `verify` checks the
    whole content of a built-in model that is already here; `progress` is told what goes on.

    Raises:
        ModelFileError: no such file, or not a name of a model.
        DownloadError: the model cannot be fetched.
    """
    text = os.fspath(name)
    if text in BUILT_IN:
        return pull_built_in(BUILT_IN[text], verify=verify, progress=progress)
    path = _existing(text)
    if path is not None:
        return path
    hub = None if _looks_like_path(text) else _HUB_NAME.fullmatch(text)
    if hub is None:
        raise _no_such_model(text)
    from foredraft.models.store.hub import pull_from_hub  # the hub's client takes long to import

    return pull_from_hub(hub["repo"], hub["wanted"], progress=progress)


def is_model_reference(name: str) -> bool:
    """Whether `name` can only mean a model (built-in name, path, hub id), not the name of a method."""
    return name in BUILT_IN or "/" in name or name.endswith(_FILE_SUFFIXES) or _existing(name) is not None


def _existing(text: str) -> Path | None:
    if not text:
        return None
    try:
        path = Path(text).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # a name too long, a zero byte, an unknown ~user
        return None


def _looks_like_path(text: str) -> bool:
    repo = text.partition(":")[0]
    return text.startswith((".", "~", os.sep)) or repo.count("/") > 1 or "\\" in text or repo.endswith(_FILE_SUFFIXES)


def _no_such_model(text: str) -> ModelFileError:
    close = difflib.get_close_matches(Path(text).name.removesuffix(".gguf").lower(), BUILT_IN, n=1, cutoff=0.5)
    hint = f"; did you mean the built-in model {close[0]}?" if close else ""
    if _looks_like_path(text) or "/" in text:
        return ModelFileError(f"no such file or folder: {text!r}{hint}")
    known = ", ".join(BUILT_IN)
    return ModelFileError(
        f"no such model: {text!r} is neither a file, a folder nor a built-in model ({known})"
        + (hint or "; a model of the hub is written org/name")
    )
