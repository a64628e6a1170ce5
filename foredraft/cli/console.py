"""What the user sees: text on stdout, everything else on stderr."""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from foredraft.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from foredraft.engine import Speculation
    from foredraft.llm import Completion
    from foredraft.models.store import Progress


def write(text: str) -> None:
    """Put text on stdout at once, as UTF-8 whatever the locale.

    Raises:
        UserError: stdout cannot be written (a full disk). A reader that went away is BrokenPipeError.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stdout.close()
        raise UserError(f"cannot write the output: {error.strerror}") from error


def note(line: str = "") -> None:
    """Put one line on stderr. Where it cannot be written (a full disk, a reader that went away), work goes on."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process


def summary(completion: "Completion") -> str:
    """Return one line on how fast a completion came: `128 tokens, 187.3 tokens/s, 1.43 times plain decoding`.

    An acceptance rule that changes texts is always named.
    """
    from foredraft.accept import in_words

    num_tokens, speculation = completion.usage.completion_tokens, completion.speculation
    parts = [f"{num_tokens} token{'' if num_tokens == 1 else 's'}"]
    if completion.timings.tokens_per_s:
        parts.append(f"{completion.timings.tokens_per_s:.1f} tokens/s")
    if speculation.speedup is not None and speculation.num_draft_tokens:
        parts.append(f"{speculation.speedup:.2f} times plain decoding")
    if rule := in_words(speculation.acceptance, speculation.equality):
        parts.append(rule + _cost(speculation))
    return ", ".join(parts)


def details(completion: "Completion") -> str:
    """Return one line on how drafting went: mean acceptance length, acceptance rate, drafters, and why."""
    speculation = completion.speculation
    parts = []
    if speculation.mean_acceptance_length is not None:
        parts.append(f"mean acceptance length {speculation.mean_acceptance_length:.2f}")
    if speculation.acceptance_rate is not None:
        parts.append(f"acceptance rate {speculation.acceptance_rate:.0%}")
    methods = [method for method in speculation.methods if method != "none"]
    parts.append(f"drafter {' + '.join(methods)}" if methods else "no drafter")
    reason = f" ({speculation.reason})" if speculation.reason else ""
    return ", ".join(parts) + reason


def _cost(speculation: "Speculation") -> str:
    if speculation.cost is None:
        return ""
    return f" ({speculation.cost.share_different:.1%} of the tokens are not the target's own)"


def rendered(show: "Callable[[Console], None]") -> str:
    """What `show` prints, for stdout: in colour on a terminal; elsewhere without, and 120 columns wide or $COLUMNS."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = None if terminal or os.environ.get("COLUMNS", "").isdigit() else 120
    text = io.StringIO()
    show(Console(file=text, force_terminal=terminal, width=width, highlight=False))
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


class PullDisplay:
    """The progress of pulls on stderr: bars on a terminal, a line for each step elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._steps: set[tuple[str, str]] = set()
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}

    def for_model(self, name: str) -> "Callable[[Progress], None] | None":
        """Return what to pass as `progress` when pulling model `name`."""
        return (lambda progress: self._show(name, progress)) if self._shown else None

    def _show(self, name: str, progress: "Progress") -> None:
        line = f"{name}: {progress.step}"
        if progress.total and sys.stderr.isatty():
            self._show_bar(line, progress)
        elif (name, progress.step) not in self._steps:
            self._steps.add((name, progress.step))
            size = f" ({progress.total / 1e6:.0f} MB)" if progress.total else ""
            note(f"{line}{size}")

    def _show_bar(self, line: str, progress: "Progress") -> None:
        if self._bars is None:
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, TextColumn
            from rich.progress import Progress as Bars

            columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn()
            self._bars = Bars(*columns, console=Console(stderr=True), transient=True)
            self._bars.start()
        if line not in self._tasks:
            self._tasks[line] = self._bars.add_task(line, total=progress.total)
        self._bars.update(self._tasks[line], completed=progress.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
