"""Models of the Hugging Face hub, by way of its own client and its own cache folder.

The client already fetches each file whole or not at all. What is decided here is which files of a repository
make up the model, and what to tell the user when they cannot be had.
"""

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import huggingface_hub
from huggingface_hub import errors as hub_errors
from huggingface_hub.utils.tqdm import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

from foredraft.errors import DownloadError, ModelFileError, UserError
from foredraft.models.safetensors_files import read_json
from foredraft.models.store.cache import Progress, ProgressCallback

PREFERRED_QUANTISATION = "Q4_K_M"
HUB_TIMEOUT_S = 20.0

# What a safetensors folder needs besides its weights.
_SIDE_FILES = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab"
    r"|chat_template|.*\.safetensors\.index)\.json|tokenizer\.model|merges\.txt|chat_template\.jinja"
)
_SPLIT_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
_QUANTISATION = re.compile(r"(i?q\d|tq\d|b?f\d|mxfp\d)\w*", re.IGNORECASE)
_NOT_A_LANGUAGE_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)
# huggingface_hub has changed its HTTP client more than once; its own base error derives from the client's.
_NETWORK_ERRORS: tuple[type[Exception], ...] = (OSError, *hub_errors.HfHubHTTPError.__bases__)


@dataclass(frozen=True)
class Choice:
    """Which files of a repository make up the model: one GGUF file, or the files of a safetensors folder."""

    gguf: str | None = None
    folder_files: tuple[str, ...] = ()


def pull_from_hub(repo: str, wanted: str | None = None, *, progress: ProgressCallback | None = None) -> Path:
    """Return the GGUF file or safetensors folder of hub repository `repo`, fetching it if needed.

    `wanted` names a GGUF file of the repository or a quantisation. Without it, of several GGUF files the
    Q4_K_M one is taken, and a repository of safetensors gives a folder. What is in the hub's cache is used
    when the hub cannot be reached or `HF_HUB_OFFLINE` is set.

    Raises:
        DownloadError: the hub cannot be reached, or does not give us the repository.
        ModelFileError: the repository holds no such file, or no model that can be used.
    """
    if progress:
        progress(Progress("asking the hub"))
    with _progress_bars(shown=progress is not None):
        try:
            files = _list_files(repo)
        except hub_errors.HFValidationError as error:
            raise ModelFileError(f"{repo!r} is neither a file, a folder nor a name the hub allows") from error
        except _NETWORK_ERRORS as error:
            if _is_answer(error):
                raise _hub_error(repo, error) from error
            cached = _cached_snapshot(repo)
            if cached is None:
                raise _hub_error(repo, error) from error
            return _from_cache(repo, wanted, cached)
        choice = choose_files(repo, files, wanted)
        try:
            return _download(repo, choice)
        except _NETWORK_ERRORS as error:
            raise _hub_error(repo, error) from error


def choose_files(repo: str, files: Sequence[str], wanted: str | None) -> Choice:
    """Choose the files that make up the model, from the names of all files of repository `repo`.

    Raises:
        ModelFileError: there is no such file, no model, or no clear choice (the line lists the choices).
    """
    ggufs = sorted(f for f in files if f.endswith(".gguf") and not _NOT_A_LANGUAGE_MODEL.search(f))
    if wanted is not None:
        return Choice(gguf=_choose_gguf(repo, ggufs, wanted))
    preferred = [f for f in ggufs if _has_quantisation(f, PREFERRED_QUANTISATION)]
    for candidates in (preferred, ggufs):
        if len(candidates) == 1:
            return Choice(gguf=_whole(repo, candidates[0]))
    folder_files = _folder_files(files)
    if folder_files:
        return Choice(folder_files=folder_files)
    if ggufs:
        raise ModelFileError(f"{repo} holds several GGUF files; choose one as {repo}:FILE: {_listed(ggufs)}")
    if "adapter_config.json" in files:
        raise ModelFileError(
            f"{repo} holds a LoRA adapter, not a model; merge it into its base model first and give the result"
        )
    raise ModelFileError(
        f"{repo} holds no model foredraft can load: no .gguf file, no config.json with .safetensors files"
    )


def _choose_gguf(repo: str, ggufs: Sequence[str], wanted: str) -> str:
    exact = [f for f in ggufs if f == wanted] or [f for f in ggufs if PurePosixPath(f).name == wanted]
    found = exact or [f for f in ggufs if _has_quantisation(f, wanted)]
    if len(found) == 1:
        return _whole(repo, found[0])
    if not ggufs:
        raise ModelFileError(f"{repo} holds no GGUF file, so {wanted!r} cannot be chosen from it")
    if not found:
        raise ModelFileError(f"{repo} holds no GGUF file or quantisation {wanted!r}; it has {_listed(ggufs)}")
    if all(_SPLIT_PART.search(f) for f in found):
        _whole(repo, found[0])
    raise ModelFileError(f"{wanted!r} means several files of {repo}; name one of {_listed(found)}")


def _whole(repo: str, file: str) -> str:
    if _SPLIT_PART.search(file):
        raise ModelFileError(
            f"{file} of {repo} is one part of a split GGUF, which is not fetched from the hub; "
            "download all parts into one folder and give the path of the first"
        )
    return file


def _has_quantisation(file: str, quantisation: str) -> bool:
    if not _QUANTISATION.fullmatch(quantisation):
        return False
    name = PurePosixPath(file).name.removesuffix(".gguf")
    pattern = rf"(?:^|[-._]){re.escape(quantisation)}(?:$|[-.])"
    return re.search(pattern, name, re.IGNORECASE) is not None


def _folder_files(files: Sequence[str]) -> tuple[str, ...]:
    """Return the files of a model at the top of the repository, and its further chat templates; weights named model*
    win over others."""
    top = [f for f in files if "/" not in f]
    weights = [f for f in top if f.endswith(".safetensors") and not f.startswith("adapter_")]
    weights = [f for f in weights if f.startswith("model")] or weights
    if "config.json" not in top or not weights:
        return ()
    templates = {f for f in files if re.fullmatch(r"additional_chat_templates/[^/]+\.jinja", f)}
    return tuple(sorted({f for f in top if _SIDE_FILES.fullmatch(f)} | set(weights) | templates))


def _listed(names: Sequence[str], at_most: int = 8) -> str:
    return ", ".join(names[:at_most]) + (f" and {len(names) - at_most} more" if len(names) > at_most else "")


def _list_files(repo: str) -> list[str]:
    # Not list_repo_files: it tries for half a minute, and chats on stderr, when there is no network.
    information = huggingface_hub.HfApi().model_info(repo, timeout=HUB_TIMEOUT_S)
    return [file.rfilename for file in information.siblings or ()]


def _download(repo: str, choice: Choice) -> Path:
    if choice.gguf is not None:
        return Path(huggingface_hub.hf_hub_download(repo, choice.gguf))
    return Path(huggingface_hub.snapshot_download(repo, allow_patterns=list(choice.folder_files)))


def _cached_snapshot(repo: str) -> Path | None:
    """Return the newest copy of `repo` in the hub's cache folder, whole or not."""
    try:
        cache = huggingface_hub.scan_cache_dir()
    except (hub_errors.CacheNotFound, ValueError):
        return None
    for found in cache.repos:
        if found.repo_type == "model" and found.repo_id == repo:
            revisions = sorted(found.revisions, key=lambda r: ("main" in r.refs, r.last_modified))
            return revisions[-1].snapshot_path if revisions else None
    return None


def _from_cache(repo: str, wanted: str | None, snapshot: Path) -> Path:
    files = [p.relative_to(snapshot).as_posix() for p in snapshot.rglob("*") if p.is_file()]
    try:
        choice = choose_files(repo, files, wanted)
    except ModelFileError as error:
        raise DownloadError(f"the hub cannot be reached, and of the copy in its cache: {error}") from error
    if choice.gguf is not None:
        return snapshot / choice.gguf
    for file in choice.folder_files:
        if file.endswith(".safetensors.index.json"):
            shards = read_json(snapshot / file).get("weight_map")
            missing = sorted({str(shard) for shard in shards.values()} - set(files)) if isinstance(shards, dict) else []
            if missing:
                raise DownloadError(
                    f"the hub cannot be reached, and the copy of {repo} in its cache "
                    f"lacks {_listed(missing)}; try again with a network"
                )
    return snapshot


def _is_answer(error: BaseException) -> bool:
    """Whether the hub itself answered (no such repository, no access), rather than being out of reach."""
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in (408, 429)


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    return status if isinstance(status, int) else None


def _hub_error(repo: str, error: BaseException) -> UserError:
    if isinstance(error, hub_errors.GatedRepoError):
        return DownloadError(
            f"access to {repo} is restricted: ask for it on its page of the hub, then run `hf auth login`"
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError):
        return DownloadError(
            f"no model {repo!r}: no such local file or folder, and the hub has no such repository "
            "(or it is private: `hf auth login`)"
        )
    if isinstance(error, hub_errors.OfflineModeIsEnabled | hub_errors.LocalEntryNotFoundError) or _offline():
        return DownloadError(
            f"{repo} is not in the hub's cache and HF_HUB_OFFLINE is set; unset it, or give a local file"
            if _offline()
            else f"cannot fetch {repo}: the hub cannot be reached and it is not in the hub's cache"
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadError(
            f"cannot fetch {repo}: no space left on the disk of the hub's cache; "
            "free some, or set HF_HOME to a folder on another disk"
        )
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
        return DownloadError(
            f"cannot fetch {repo}: {error.strerror}: {error.filename}; set HF_HOME to a folder that can be written"
        )
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    status = f"HTTP {_status(error)}: " if _status(error) is not None else ""
    return DownloadError(
        f"cannot fetch {repo} from the hub, and there is no such local file or folder: {status}{reason}; "
        "check the name and the network"
    )


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}


@contextlib.contextmanager
def _progress_bars(*, shown: bool) -> Iterator[None]:
    """Let the hub's client draw its progress bars, or keep it quiet and put its setting back afterwards."""
    if shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
