"""How is drafted, as vLLM's `--speculative-config` says it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foredraft.config import DraftConfig, check_integer
from foredraft.drafters import names_a_model
from foredraft.errors import OptionError
from foredraft.files import user_path
from foredraft.models.store import BUILT_IN
from foredraft.planner.profile import Profile
from foredraft.vllm import proposers

NUM_DRAFT_TOKENS = 5
"""Tokens to draft in every step where nothing is said: vLLM wants a number."""
_CLASSES = {"lookup": proposers.Lookup, "suffix": proposers.Suffix}
_HEADS = {"eagle3": "eagle3", "eagle": "eagle"}
"""What the architecture of a draft head has in its name, the more special first, to vLLM's method."""


def model_of(reference: str, option: str = "--model") -> str:
    """A safetensors folder or a hub id, as vLLM takes them. Raises OptionError for anything else."""
    path = user_path(reference)
    if reference in BUILT_IN or path.suffix == ".gguf" or (":" in reference and not path.exists()):
        raise OptionError(f"{option} {reference} is a GGUF file, which vLLM does not take: give a safetensors folder")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise OptionError(f"{option} {reference} has no config.json: give the folder of a model with safetensors")
        return str(path.absolute())
    if path.exists() or reference.startswith((".", "~", "/")) or reference.count("/") != 1:
        raise OptionError(f"{option}: no such folder: {reference!r}; give a safetensors folder or a hub id, org/name")
    return reference


def from_options(draft: Sequence[str], num_draft_tokens: int | None, memory: str | None) -> dict[str, Any] | None:
    """What --draft, --num-draft-tokens and --draft-memory ask for; None: nothing is drafted.

    Raises OptionError for what vLLM cannot do.
    """
    if num_draft_tokens is not None:
        check_integer("--num-draft-tokens", num_draft_tokens, least=1, most=64)
    if not draft:
        if num_draft_tokens is not None or memory is not None:
            raise OptionError("with --engine vllm nothing is drafted without --draft: name a drafter")
        return None
    if len(draft) > 1:
        raise OptionError(f"vLLM has one drafter, and --draft names {len(draft)}: name one of them")
    [name] = draft
    if name == "none":
        return None
    if memory is not None and (name != "suffix" or memory not in ("process", "none")):
        raise OptionError("with --engine vllm --draft-memory is process or none, and for --draft suffix alone")
    number = num_draft_tokens or NUM_DRAFT_TOKENS
    if name in _CLASSES:
        proposer = proposers.SuffixAlone if memory == "none" else _CLASSES[name]
        model = f"{proposer.__module__}.{proposer.__qualname__}"
        return {"method": "custom_class", "model": model, "num_speculative_tokens": number}
    if names_a_model(name):
        model = model_of(name, "--draft")
        return {**_method(Path(model)), "model": model, "num_speculative_tokens": number}
    raise OptionError(f"--draft {name} cannot draft in vLLM: give {', '.join(_CLASSES)}, none or a draft model")


def from_profile(path: Path) -> dict[str, Any] | None:
    """What a profile recommends. Raises OptionError where that is nothing vLLM could do, and as `Profile.read`."""
    config = Profile.read(path).recommended
    if config.is_plain:
        return None
    if config != DraftConfig(drafters=config.drafters, num_draft_tokens=config.num_draft_tokens or 1):
        raise OptionError(
            f"--profile {path} recommends {config.name}, which vLLM cannot do: `foredraft tune` also prints the best "
            "that it can; give this with --speculative-config"
        )
    return from_options(config.drafters, config.num_draft_tokens, None)


def from_json(text: str) -> dict[str, Any]:
    """The configuration as vLLM has it, which judges it. Raises OptionError for what is no JSON object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise OptionError(f"--speculative-config must be a JSON object as vLLM has it, got {text[:60]!r}")
    return values


def _method(folder: Path) -> dict[str, str]:
    """vLLM's method for a draft head; a draft model needs none, and vLLM knows others by their configuration."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
        names = " ".join(config.get("architectures") or ()).lower()
    except (OSError, ValueError, RecursionError, AttributeError, TypeError):
        return {}  # a hub id, or what vLLM will complain about
    return next(({"method": method} for part, method in _HEADS.items() if part in names), {})
