"""What conversations and sampling take from files: chat templates, their variables, the makers' advice."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from foredraft.cli.console import note
from foredraft.cli.inputs import checked_argument, decoded
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from foredraft.cli.sampling import SamplingFlags
    from foredraft.inputs import ChatOptions, PromptOptions
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


def prompt_options(
    template: Path | None, variables: str | None, *, raw: bool, special: bool, system: str | None
) -> "PromptOptions":
    """As above, for a prompt that may be `raw`. Raises OptionError for options that contradict each other."""
    chat = chat_options(template, variables)
    if raw and system is not None:
        raise OptionError("--system needs the chat template, which --raw switches off; drop one of them")
    if raw and chat:
        raise OptionError("--raw switches the chat template off, for which its options mean nothing; drop one of them")
    if special and not raw:
        raise OptionError("--special needs --raw: the chat template writes its special tokens itself")
    return {"parse_special": True} if special else cast("PromptOptions", chat)


def _object(option: str, argument: str) -> dict[str, Any]:
    try:
        values = json.loads(checked_argument(option, argument))
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise OptionError(f'{option} must be a JSON object such as {{"enable_thinking": false}}, got {argument[:60]!r}')
    return values


def check_generation_config(value: str | None) -> dict[str, Any]:
    """What may be taken for advised before the model is there to ask: that it samples, where advice is asked for.

    Raises OptionError for what --generation-config cannot be.
    """
    if value in (None, "none"):
        return {}
    if value != "auto":
        from foredraft.models.generation_defaults import FILE

        if not (user_path(value) / FILE).is_file():
            raise OptionError(f"--generation-config must be auto, none or a folder with {FILE}, got {value!r}")
    return {"temperature": 1.0}


def advised(llm: "LLM", value: str | None, sampling: "SamplingFlags", *, quiet: bool) -> dict[str, Any]:
    """How to sample by the advice that was asked for, where no option says otherwise. Said in a line unless `quiet`."""
    if value in (None, "none"):
        return {}
    from foredraft.models.generation_defaults import generation_defaults

    defaults = llm.generation_defaults if value == "auto" else generation_defaults(user_path(value))
    taken = {name: number for name, number in defaults.sampling.items() if getattr(sampling, name) is None}
    if not quiet:
        said = ", ".join(f"{name} {number:g}" for name, number in taken.items())
        nothing = "options say otherwise" if defaults.sampling else "it advises nothing"
        left_out = f" (not done here: {', '.join(defaults.left_out)})" if defaults.left_out else ""
        note(f"sampling as {'the model' if value == 'auto' else value} advises: {said or nothing}{left_out}")
    return taken
