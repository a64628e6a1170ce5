"""What conversations and sampling take from files: chat templates, their variables, the makers' advice."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foredraft.cli.console import note
from foredraft.cli.inputs import checked_argument, decoded
from foredraft.errors import OptionError

if TYPE_CHECKING:
    from foredraft.inputs import ChatOptions
    from foredraft.llm import LLM


def chat_options(template: Path | None, variables: str | None) -> "ChatOptions":
    """What --chat-template and --chat-template-kwargs ask for. Raises OptionError for what cannot be read."""
    found: ChatOptions = {}
    if template is not None:
        try:
            found["chat_template"] = decoded(f"chat template {template}", template.read_bytes())
        except OSError as error:
            raise OptionError(f"cannot read the chat template {template}: {error.strerror}") from error
    if variables is not None:
        found["chat_template_kwargs"] = _object("--chat-template-kwargs", variables)
    return found


def _object(option: str, argument: str) -> dict[str, Any]:
    try:
        values = json.loads(checked_argument(option, argument))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise OptionError(f'{option} must be a JSON object such as {{"enable_thinking": false}}, got {argument[:60]!r}')
    return values


def check_generation_config(value: str | None) -> None:
    """Raise OptionError for what --generation-config cannot be."""
    if value not in (None, "auto", "none"):
        raise OptionError(f"--generation-config must be auto or none, got {value!r}")


def advised(llm: "LLM", value: str | None, *, quiet: bool) -> dict[str, Any]:
    """How the makers of a model advise to sample, where that was asked for; said in a line unless `quiet`."""
    if value != "auto":
        return {}
    defaults = llm.generation_defaults
    if not quiet:
        said = ", ".join(f"{name} {number:g}" for name, number in defaults.sampling.items())
        left_out = f" (not done here: {', '.join(defaults.left_out)})" if defaults.left_out else ""
        note(f"sampling as the model advises: {said or 'it advises nothing'}{left_out}")
    return dict(defaults.sampling)
