"""`foredraft serve --engine vllm`: an installed vLLM behind the same options."""

import shlex
from typing import Any, NoReturn

import typer

from foredraft.cli import options
from foredraft.cli.console import note
from foredraft.cli.templates import chat_options
from foredraft.errors import OptionError

_SAME = (
    "host",
    "port",
    "ssl_certfile",
    "ssl_keyfile",
    "chat_template",
    "generation_config",
    "max_tokens",
    "max_queue",
    "context_length",
    "kv_memory",
    "max_running",
    "max_batched_tokens",
    "quiet",
)
"""Parameters that go on as they are."""
_SERVER = ("engine", "arguments", "model", "served_model_name", "api_key", "allowed_origin", "shutdown_timeout")
_SPECULATION = ("draft", "num_draft_tokens", "draft_memory", "speculative_config", "profile")


def serve_with_vllm(context: typer.Context, api_keys: list[str]) -> NoReturn:
    """Become vLLM, started with what the command line says. Raises OptionError for what means nothing to it."""
    options.refuse_others(
        context, {*_SAME, *_SERVER, *_SPECULATION, "chat_template_kwargs"}, why="--engine vllm starts vLLM"
    )
    given: dict[str, Any] = context.params
    from foredraft.vllm import command
    from foredraft.vllm.speculation import model_of

    models, names = given["model"] or [], given["served_model_name"] or []
    if len(models) != 1:
        raise OptionError(f"--engine vllm serves one model, a safetensors folder or a hub id: {len(models)} are given")
    if len(names) > 1:
        raise OptionError(f"give one --served-model-name for the model, not {len(names)}")
    if (given["ssl_certfile"] is None) != (given["ssl_keyfile"] is None):
        raise OptionError("--ssl-certfile and --ssl-keyfile go together: give both")
    template = chat_options(given["chat_template"], given["chat_template_kwargs"])
    wanted = command.ServeOptions(
        model=model_of(models[0]),
        name=names[0] if names else None,
        api_keys=api_keys,
        allowed_origins=given["allowed_origin"] or (),
        speculation=_speculation(given),
        chat_template_kwargs=template.get("chat_template_kwargs"),
        shutdown_timeout_s=given["shutdown_timeout"],
        others=given["arguments"] or (),
        **{name: given[name] for name in _SAME},
    )
    command.find_vllm()
    if not wanted.quiet:
        note(f"starting {shlex.join(['vllm', *command.arguments(wanted)])}")
    command.become_vllm(wanted)


def _speculation(given: dict[str, Any]) -> dict[str, Any] | None:
    """How is to be drafted. Raises OptionError where it is said twice."""
    from foredraft.vllm import speculation

    ways = {
        "--speculative-config": given["speculative_config"],
        "--profile": given["profile"],
        "--draft": given["draft"],
    }
    said = [name for name, value in ways.items() if value]
    if len(said) > 1:
        raise OptionError(f"{said[0]} cannot be combined with {said[1]}, where vLLM drafts: leave one of them out")
    if said and said[0] != "--draft" and (given["num_draft_tokens"] is not None or given["draft_memory"] is not None):
        raise OptionError(f"{said[0]} says all about drafting in vLLM: leave out --num-draft-tokens and --draft-memory")
    if given["speculative_config"] is not None:
        return speculation.from_json(given["speculative_config"])
    if given["profile"] is not None:
        return speculation.from_profile(given["profile"])
    return speculation.from_options(given["draft"] or (), given["num_draft_tokens"], given["draft_memory"])
