"""`foredraft pull`: put a model on this machine."""

from typing import Annotated

import typer

from foredraft.cli.console import PullDisplay, write
from foredraft.cli.options import Quiet


def pull(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="smollm2-135m, or a hub id: org/name, org/name:Q4_K_M, org/name:FILE.gguf."
        ),
    ],
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Read a built-in model that is already here and check its sha256."),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Fetch a model.

    It is fetched unless it is already here; the line on stdout is where it lies.
    """
    from foredraft.models import store

    with PullDisplay(shown=not quiet) as display:
        path = store.resolve(name, verify=verify, progress=display.for_model(name))
    write(f"{path}\n")
