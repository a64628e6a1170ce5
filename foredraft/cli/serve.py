"""`foredraft serve`: models behind the APIs of OpenAI and Anthropic, and a page to talk to them."""

import importlib.util
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.cli import options
from foredraft.cli.console import PullDisplay, note
from foredraft.cli.serve_vllm import serve_with_vllm
from foredraft.cli.templates import chat_options, check_generation_config
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from foredraft.llm import LLM
    from foredraft.server import ModelPool, ServerOptions

DEFAULT_PORT = 8000
NEEDED = ("fastapi", "uvicorn", "prometheus_client")
Texts = list[str] | None


def serve(
    context: typer.Context,
    arguments: Annotated[Texts, typer.Argument(metavar="[-- ARGUMENTS]", help="For the other engine.")] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("-m", "--model", metavar="MODEL", help=f"{options.MODEL_HELP} Repeatable: several models."),
    ] = None,
    served_model_name: Annotated[
        Texts, typer.Option(metavar="NAME", help="What clients call the model; one for each --model.")
    ] = None,
    host: Annotated[str, typer.Option(metavar="HOST", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", help="0: any that is free.", min=0, max=65535)] = DEFAULT_PORT,
    api_key: Annotated[
        Texts,
        typer.Option(
            metavar="KEY",
            help="Answer only those who send this key; also $FOREDRAFT_API_KEY. Repeatable.",
            show_default=False,
        ),
    ] = None,
    allowed_origin: Annotated[
        Texts, typer.Option(metavar="ORIGIN", help="Let web pages of this origin use the server; *: all. Repeatable.")
    ] = None,
    allowed_host: Annotated[
        Texts, typer.Option(metavar="NAME", help="Be addressed by this name, too; *: by any. Repeatable.")
    ] = None,
    ssl_certfile: Annotated[
        Path | None, typer.Option(parser=user_path, metavar="FILE", help="Serve HTTPS with this certificate (PEM).")
    ] = None,
    ssl_keyfile: Annotated[
        Path | None, typer.Option(parser=user_path, metavar="FILE", help="Key of the certificate (PEM).")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Most memory of weights and caches of all models together, such as 8G; those that "
            "nobody uses make room for others (default: no limit).",
        ),
    ] = None,
    draft: options.Draft = None,
    num_draft_tokens: options.NumDraftTokens = None,
    draft_vocab: options.DraftVocab = None,
    draft_branches: options.DraftBranches = None,
    draft_memory: options.DraftMemory = None,
    acceptance: options.Acceptance = None,
    speculative_config: options.SpeculativeConfig = None,
    chat_template: options.ChatTemplate = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    generation_config: options.GenerationConfig = None,
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="Most tokens of an answer (default: as many as fit).", min=1)
    ] = None,
    max_sequences: Annotated[
        int | None, typer.Option(metavar="N", help="Most answers of one request, n times prompts (default: 64).")
    ] = None,
    max_queue: Annotated[
        int | None, typer.Option(metavar="N", help="Most requests at a time, waiting ones included (default: 256).")
    ] = None,
    max_body: Annotated[int | None, typer.Option(metavar="MIB", help="Most MiB of a request (default: 16).")] = None,
    request_log: Annotated[
        Path | None,
        typer.Option(parser=user_path, metavar="FILE", help="Append every request and its answer to this file."),
    ] = None,
    shutdown_timeout: Annotated[
        int, typer.Option(metavar="S", help="Seconds that answers have to end after Ctrl-C or SIGTERM.", min=0)
    ] = 30,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    kv_memory: options.KvMemory = None,
    max_running: options.MaxRunning = None,
    max_batched_tokens: options.MaxBatchedTokens = None,
    profile: options.Profile = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="foredraft|vllm",
            help="vllm: start an installed vLLM with these options, and what stands behind --.",
        ),
    ] = "foredraft",
    quiet: options.Quiet = False,
) -> None:
    """Serve models to programs and browsers.

    OpenAI's API is at /v1, Anthropic's at /v1/messages, a page to chat at /. By default only this machine reaches it.
    """
    check_generation_config(generation_config)
    if engine == "vllm":
        serve_with_vllm(context, _keys(api_key))
    if engine != "foredraft":
        raise OptionError(f"--engine must be foredraft or vllm, got {engine!r}")
    if arguments:
        raise OptionError(f"{arguments[0]!r} is no option: a model is given with --model")
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise OptionError(f"serve needs {missing[0]}, which is not installed: pip install 'foredraft[serve]'")
    references = model or ["smollm2-135m"]
    names = _names(references, served_model_name or [])
    if (ssl_certfile is None) != (ssl_keyfile is None):
        raise OptionError("--ssl-certfile and --ssl-keyfile go together: give both")
    engines = [
        options.EngineOptions(
            model=reference,
            draft=draft,
            num_draft_tokens=num_draft_tokens,
            draft_vocab=draft_vocab,
            draft_branches=draft_branches,
            draft_memory=draft_memory,
            acceptance=acceptance,
            speculative_config=speculative_config,
            threads=threads,
            context_length=context_length,
            kv_memory=kv_memory,
            max_running=max_running,
            max_batched_tokens=max_batched_tokens,
            profile=profile,
        )
        for reference in references
    ]
    from foredraft.server import ServerOptions

    template = chat_options(chat_template, chat_template_kwargs)
    limits = {"max_queue": max_queue, "max_body_mb": max_body, "max_sequences": max_sequences, "max_tokens": max_tokens}
    server_options = ServerOptions(
        api_keys=_keys(api_key),
        allowed_origins=allowed_origin or (),
        allowed_hosts=allowed_host or (),
        request_log=request_log,
        generation_config=generation_config,
        chat_template=template.get("chat_template"),
        chat_template_kwargs=dict(template.get("chat_template_kwargs") or {}),
        **{name: value for name, value in limits.items() if value is not None},
    )
    _run(
        lambda: _pool(engines, names, server_options, memory=memory, quiet=quiet),
        server_options,
        host=host,
        port=port,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        shutdown_timeout_s=shutdown_timeout,
        quiet=quiet,
    )


def _names(references: list[str], given: list[str]) -> list[str]:
    from foredraft.server.loading import default_name

    if given and len(given) != len(references):
        raise OptionError(f"give one --served-model-name for each of {len(references)} models, not {len(given)}")
    return given or [default_name(reference) for reference in references]


def _keys(given: list[str] | None) -> list[str]:
    environment = os.environ.get("FOREDRAFT_API_KEY", "").strip()
    return [*(given or ()), *([environment] if environment else [])]


def _pool(
    engines: "list[options.EngineOptions]",
    names: list[str],
    limits: "ServerOptions",
    *,
    memory: str | None,
    quiet: bool,
) -> "ModelPool":
    """The models, fetched where needed, none of them loaded yet."""
    from foredraft.models import store
    from foredraft.server.loading import Served, model_pool

    def served(engine: options.EngineOptions, name: str) -> "Served":
        with PullDisplay(shown=not quiet) as display:
            path = store.resolve(engine.model, progress=display.for_model(engine.model))

        def load(cache: int | None) -> "LLM":
            kv_memory = engine.kv_memory if cache is None else str(cache)
            return options.load(replace(engine, model=str(path), kv_memory=kv_memory), quiet=True)

        return Served(name=name, path=path, load=load)

    models = [served(engine, name) for engine, name in zip(engines, names, strict=True)]
    return model_pool(models, limits, memory=memory, kv_memory=engines[0].kv_memory)


def _run(
    make_pool: "Callable[[], ModelPool]",
    limits: "ServerOptions",
    *,
    host: str,
    port: int,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    shutdown_timeout_s: int,
    quiet: bool,
) -> None:
    from foredraft.server import create_app
    from foredraft.server.run import bind, is_local
    from foredraft.server.run import serve as run

    listening = bind(host, port)  # before what takes its time
    pool = make_pool()
    if not quiet:
        note(f"loading {pool.names[0]}")
    pool.load_first()
    app = create_app(pool, limits, local_only=is_local(host))
    scheme = "http" if ssl_certfile is None else "https"
    where = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    address = f"{scheme}://{where}:{listening.getsockname()[1]}"

    def started() -> None:
        if not quiet:
            note(_greeting(address, pool.names, with_key=bool(limits.api_keys)))

    run(
        app,
        listening,
        started=started,
        log_requests=not quiet,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        shutdown_timeout_s=shutdown_timeout_s,
    )


def _greeting(address: str, names: "Sequence[str]", *, with_key: bool) -> str:
    """What a newcomer needs: where the page is, and a command that gets an answer."""
    messages = [{"role": "user", "content": "Hello!"}]
    body = json.dumps({"model": names[0], "messages": messages, "max_tokens": 64, "temperature": 0})
    key = ' -H "Authorization: Bearer $FOREDRAFT_API_KEY"' if with_key else ""
    return (
        f"serving {', '.join(names)}; chat at {address}/ (Ctrl-C ends it)\n"
        f"curl {address}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'"
    )
