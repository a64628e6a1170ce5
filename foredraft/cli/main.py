"""The `foredraft` command: its subcommands, and what becomes of every error.

Exit codes: 0 done; 2 the user's input is at fault, with one line on stderr that says what and what to do;
1 a fault of ours; 130 stopped by Ctrl-C; 141 the reader of our output went away.
"""

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

import foredraft
from foredraft.cli.bench import bench
from foredraft.cli.chat import chat
from foredraft.cli.check import check
from foredraft.cli.console import note
from foredraft.cli.generate import generate
from foredraft.cli.inspect import inspect
from foredraft.cli.names import PeerNames
from foredraft.cli.pull import pull
from foredraft.cli.serve import serve
from foredraft.cli.tokenize import detokenize, tokenize
from foredraft.cli.tune import tune
from foredraft.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

app = typer.Typer(
    name="foredraft",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(cls=PeerNames)(pull)
app.command(cls=PeerNames)(generate)
app.command(cls=PeerNames)(chat)
app.command(cls=PeerNames)(serve)
app.command(cls=PeerNames)(inspect)
app.command(cls=PeerNames)(tune)
app.command(cls=PeerNames)(check)
app.command(cls=PeerNames)(tokenize)
app.command(cls=PeerNames)(detokenize)
app.add_typer(bench)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"foredraft {foredraft.__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Language models that answer faster without changing a word."""
    _print_version(wanted=version)
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (`arguments` default: those of the process) and return the exit code."""
    if getattr(sys, "stderr", None) is None:  # closed, and `print` would turn to stdout instead
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    try:
        if getattr(sys, "stdout", None) is None:
            raise UserError("standard output is closed; send it to a file or to /dev/null if it is not wanted")
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except UserError as error:
        _complain(str(error))
        return 2
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:  # nobody reads any more
        _drop_stdout()
        return 141
    except Exception as error:
        line = _usage_line(error) or _full_line(error)
        if line is not None:
            _complain(line)
            return 2
        if os.environ.get("FOREDRAFT_DEBUG", "0") not in ("", "0"):
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        _complain(f"internal error: {what}; please report it (FOREDRAFT_DEBUG=1 shows the traceback)")
        return 1


def _run(arguments: list[str]) -> int:
    # Not `app(...)`: it turns Ctrl-C and broken pipes into outcomes of its own.
    command = get_command(app)
    try:
        with command.make_context("foredraft", arguments) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    return 0


def _usage_line(error: Exception) -> str | None:
    """Return the line for a mistake in the arguments, None for any other error.

    Such errors are known by what they offer, because their class moves between versions of typer and click.
    """
    if not hasattr(error, "format_message"):
        return None
    message = str(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "foredraft")
    return f"{message}; see `{command} --help`"


def _full_line(error: Exception) -> str | None:
    """Return the line for a standard output that cannot be written, None for any other error.

    Only what is written outside of `console.write` comes here, such as the help; errors about files name them.
    """
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _FULL:
        return None
    _drop_stdout()
    return f"cannot write the output: {error.strerror}"


def _drop_stdout() -> None:
    """Keep the interpreter from complaining about standard output while it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    line = " ".join(message.split())
    note(f"foredraft: {line}")


if __name__ == "__main__":
    sys.exit(main())
