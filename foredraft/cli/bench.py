"""`foredraft bench`: what the kernels reach on this machine, and what others reach on the same file."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from foredraft.cli import options
from foredraft.cli.console import PullDisplay, note, write
from foredraft.cli.names import PeerNames
from foredraft.errors import OptionError
from foredraft.files import user_path

bench = typer.Typer(
    name="bench",
    help="Measure what this machine can do, and what of it is reached.",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_SIZES = "1,2,3,4,5,6,8,12,16,24,32"


@bench.callback()
def group(context: typer.Context) -> None:
    """Measure what this machine can do, and what of it is reached."""
    if context.invoked_subcommand is None:
        write(context.get_help() + "\n")


@bench.command(cls=PeerNames)
def kernels(
    model: options.Model = "smollm2-135m",
    threads: options.Threads = None,
    rounds: Annotated[
        int, typer.Option(metavar="N", help="Rounds, ours and the peer's in turn; figures are their medians.")
    ] = 5,
    repeats: Annotated[
        int, typer.Option(metavar="N", help="Forward passes of each size in a round; their median counts.")
    ] = 5,
    sizes: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of tokens of a forward pass, with commas; 1 among them.")
    ] = _SIZES,
    contexts: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Cached tokens before a forward pass (default: 0,1024,4096 where they fit)."),
    ] = None,
    peer_dir: Annotated[
        Path | None,
        typer.Option(
            parser=user_path,
            metavar="DIR",
            help="Folder with llama-bench and llama-batched-bench, to measure beside ours.",
        ),
    ] = None,
    as_json: options.JsonForTables = False,
    output: options.Output = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure forward passes, prompts, decoding, memory and start-up.

    Takes minutes for a large model. Leave the machine alone meanwhile: other work spoils the figures.
    """
    from foredraft.bench.kernels import KernelPlan
    from foredraft.files import check_writable
    from foredraft.kernels.choose import available_cores
    from foredraft.models import store

    options.at_least_1("--threads", threads)
    plan = KernelPlan(sizes=_numbers("--sizes", sizes), num_rounds=rounds, repeats=repeats)
    if contexts is not None:
        plan = replace(plan, contexts=_numbers("--contexts", contexts))
    if output is not None:
        check_writable(output)
    with PullDisplay(shown=not quiet) as display:
        path = store.resolve(model, progress=display.for_model(model))
    from foredraft.bench.command import KernelBench

    wanted = KernelBench(
        model=path,
        num_threads=threads or available_cores(),
        plan=plan,
        peer_folder=peer_dir,
        contexts_given=contexts is not None,
    )
    result = wanted.run(note=_silent if quiet else note)
    _give(result, as_json=as_json, output=output)


def _give(result: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    from foredraft.bench.report import report
    from foredraft.files import write_whole

    text = json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n"
    if output is not None:
        write_whole(output, text)
    write(text if as_json else report(result))


def _silent(line: str) -> None:
    """Say nothing."""


def _numbers(option: str, text: str) -> tuple[int, ...]:
    """A comma-separated list of integers, in rising order and without repetitions."""
    try:
        found = {int(part) for part in text.split(",")}
    except ValueError:
        raise OptionError(f"{option} must be integers with commas between them, such as 1,2,4, got {text!r}") from None
    return tuple(sorted(found))
