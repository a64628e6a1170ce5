"""vLLM's command line, from what `foredraft serve` is asked for."""

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from foredraft.cache.capacity import parse_memory
from foredraft.config import check_integer
from foredraft.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What vLLM is to serve, and how; None: left to vLLM. Raises OptionError for what is out of range.

    model: a folder or hub id, see `foredraft.vllm.speculation.model_of`. speculation: the value of
    `--speculative-config`. generation_config: "auto", "none" or a folder. kv_memory: a size, such as 8G.
    others: arguments for vLLM that are passed on as they are.
    """

    model: str
    name: str | None = None
    host: str
    port: int
    api_keys: Sequence[str] = ()
    allowed_origins: Sequence[str] = ()
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    speculation: Mapping[str, Any] | None = None
    chat_template: Path | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    generation_config: str | None = None
    max_tokens: int | None = None
    max_queue: int | None = None
    shutdown_timeout_s: int
    context_length: int | None = None
    kv_memory: str | None = None
    max_running: int | None = None
    max_batched_tokens: int | None = None
    quiet: bool = False
    others: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not self.port:
            raise OptionError("with --engine vllm --port cannot be 0: nothing would say which one it is")
        if len(self.api_keys) > 1:
            raise OptionError(
                "with --engine vllm give one --api-key: vLLM takes several on its command line only, where all users "
                "of the machine can read them; behind -- they are passed on to it"
            )
        if self.kv_memory is not None:
            parse_memory(self.kv_memory)
        least = {"max_tokens": 1, "max_queue": 1, "context_length": 2, "max_running": 1, "max_batched_tokens": 1}
        for name, number in least.items():
            if (value := getattr(self, name)) is not None:
                check_integer(f"--{name.replace('_', '-')}", value, least=number, most=2**31)


def arguments(options: ServeOptions) -> list[str]:
    """What stands behind `vllm`. Keys are not in it: other users of the machine can read it."""
    values = {
        "--served-model-name": options.name or _folder_name(options.model),
        "--host": options.host,
        "--port": options.port,
        "--allowed-origins": list(options.allowed_origins) or None,
        "--ssl-certfile": options.ssl_certfile,
        "--ssl-keyfile": options.ssl_keyfile,
        "--speculative-config": options.speculation,
        "--chat-template": options.chat_template,
        "--default-chat-template-kwargs": options.chat_template_kwargs or None,
        # vLLM would take the makers' advice unasked.
        "--generation-config": {None: "vllm", "none": "vllm"}.get(options.generation_config, options.generation_config),
        "--override-generation-config": options.max_tokens and {"max_new_tokens": options.max_tokens},
        "--max-num-queued-reqs": options.max_queue,
        "--shutdown-timeout": options.shutdown_timeout_s,
        "--max-model-len": options.context_length,
        "--kv-cache-memory-bytes": options.kv_memory and parse_memory(options.kv_memory),
        "--max-num-seqs": options.max_running,
        "--max-num-batched-tokens": options.max_batched_tokens,
        "--uvicorn-log-level": "warning" if options.quiet else None,
    }
    given = [part for name, value in values.items() if value is not None for part in (name, _written(value))]
    return ["serve", options.model, *given, *options.others]


def environment(options: ServeOptions) -> dict[str, str]:
    """The variables that vLLM is started with: ours, and what does not belong on a command line."""
    found = dict(os.environ)
    if options.api_keys:
        found["VLLM_API_KEY"] = options.api_keys[0]
    if options.quiet:
        found.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    return found


def find_vllm() -> list[str]:
    """What `vllm` is on this machine: that of this Python, or a command on the path. Raises OptionError for none."""
    here = importlib.util.find_spec("vllm")
    if here is not None and here.origin is not None:  # and no folder that happens to be called so
        # -P: not what lies in the folder that it is started in.
        return [sys.executable, "-P", "-m", "foredraft.vllm.start"]
    if (found := shutil.which("vllm")) is not None:
        return [found]
    raise OptionError("--engine vllm needs vLLM, which is not installed here: pip install vllm (see docs/server.md)")


def become_vllm(options: ServeOptions) -> NoReturn:
    """Run vLLM in place of this process, so that signals reach it and its exit code is ours.

    Raises OptionError where there is none, or where it cannot be started.
    """
    command = [*find_vllm(), *arguments(options)]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, environment(options))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"cannot start {command[0]}: {reason}") from error


def _folder_name(model: str) -> str | None:
    """What a folder is called, as our own server does; a hub id is its own name."""
    return Path(model).name if model.startswith("/") else None


def _written(value: object) -> str:
    return json.dumps(value) if isinstance(value, Mapping | list) else str(value)
