"""`foredraft tune`: which drafting pays on this machine, for this model and these prompts?"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.cli import options
from foredraft.cli.console import PullDisplay, note, rendered, write
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from foredraft.llm import LLM
    from foredraft.planner.profile import Profile
    from foredraft.tune.run import Wanted


_WITH_REPLAY = {"replay", "output", "as_json", "quiet"}
_NOT_WITH_RECORD = {"replay", "minutes", "as_json", "html", "profile", "output"}


Draft = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DRAFTER",
        help="A model to try as well, or a method, which is tried instead of all. Repeatable.",
        show_default=False,
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        parser=user_path,
        metavar="FILE",
        help='Prompts: one a line, or .jsonl with "prompt" or "turns" (default: eight of our own).',
    ),
]
Raw = Annotated[bool, typer.Option("--raw", help="Continue the prompts as they stand, without the chat template.")]
MaxTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Tokens of each completion (default: 128, 32 with --quick).")
]
Minutes = Annotated[float, typer.Option(metavar="M", help="About how long it may take.")]
Quick = Annotated[bool, typer.Option("--quick", help="A few settings and prompts, once.")]
Html = Annotated[
    Path | None, typer.Option(parser=user_path, metavar="FILE", help="Also write a page with plots to this file.")
]
ProfileFile = Annotated[
    Path | None,
    typer.Option(
        parser=user_path,
        metavar="FILE",
        help="Write what was found out to this file, for --profile of generate and chat.",
    ),
]
Record = Annotated[
    Path | None,
    typer.Option(
        parser=user_path, metavar="FILE", help="Only record what all drafters propose, to this file, for --replay."
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        parser=user_path,
        metavar="FILE",
        help="Only say what other settings would have brought on a recording or trace.",
    ),
]


def tune(
    context: typer.Context,
    model: options.Model = "smollm2-135m",
    draft: Draft = None,
    prompts: Prompts = None,
    raw: Raw = False,
    max_tokens: MaxTokens = None,
    minutes: Minutes = 10.0,
    quick: Quick = False,
    as_json: options.JsonForTables = False,
    html: Html = None,
    profile: ProfileFile = None,
    output: options.Output = None,
    record: Record = None,
    replay: Replay = None,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure which drafting pays on this machine.

    Completes prompts without drafts, with fixed settings and with auto, side by side, and compares the speeds. All
    texts are compared, too. Exit code 0: all exact settings gave the same; 1: one did not.
    """
    from foredraft.files import check_writable

    for option, path in (("--output", output), ("--html", html), ("--profile", profile), ("--record", record)):
        if path is not None:
            check_writable(path, option)
    if replay is not None:
        options.refuse_others(context, _WITH_REPLAY, why="--replay is about what was recorded")
        _replay(replay, output, as_json=as_json)
        return
    if record is not None:
        given = {parameter.name for parameter in context.command.params if parameter.name is not None}
        options.refuse_others(context, given - _NOT_WITH_RECORD, why="--record only records")
    options.at_least_1("--max-tokens", max_tokens)
    if not minutes > 0:
        raise OptionError(f"--minutes must be above 0, got {minutes:g}")
    wanted = _wanted(
        draft or [], prompts, raw=raw, max_tokens=max_tokens, seconds=60.0 * minutes, quick=quick, quiet=quiet
    )
    engine = options.EngineOptions(model=model, draft=["none"], threads=threads, context_length=context_length)
    llm = options.load(engine, quiet=quiet)
    if record is not None:
        _record(llm, wanted, record, quiet=quiet)
        return
    report, found = _measure(llm, wanted, quiet=quiet)
    if profile is not None:
        found.write(profile)
    _give(report, output, html, as_json=as_json)
    if not all(figures["equal"] is not False for figures in report["settings"]):
        raise typer.Exit(1)


def _measure(llm: "LLM", wanted: "Wanted", *, quiet: bool) -> tuple[dict[str, Any], "Profile"]:
    from foredraft.tune.run import tune as measure

    progress = _Progress(shown=not quiet and sys.stderr.isatty())
    return measure(llm, wanted, announce=_silent if quiet else note, progress=progress)


def _give(report: dict[str, Any], output: Path | None, html: Path | None, *, as_json: bool) -> None:
    from foredraft.files import write_whole
    from foredraft.tune.page import page
    from foredraft.tune.report import show

    text = json.dumps(report, ensure_ascii=False, allow_nan=False) + "\n"
    if output is not None:
        write_whole(output, text)
    if html is not None:
        write_whole(html, page(report))
    write(text if as_json else rendered(lambda console: show(report, console)))


def _record(llm: "LLM", wanted: "Wanted", path: Path, *, quiet: bool) -> None:
    from foredraft.trace import TraceWriter
    from foredraft.tune.measure import Measuring

    sink = TraceWriter(path)
    measuring = Measuring(llm, wanted.models, max_tokens=wanted.num_tokens, raw=wanted.raw)
    measuring.record(wanted.methods, wanted.prompts, sink)
    sink.close()
    if not quiet:
        note(f"recorded {len(wanted.prompts)} completions in {path}")


def _replay(path: Path, output: Path | None, *, as_json: bool) -> None:
    from dataclasses import asdict

    from foredraft.files import write_whole
    from foredraft.trace import Trace
    from foredraft.tune.recorded import read
    from foredraft.tune.replay import replay_all
    from foredraft.tune.report import show_replay
    from foredraft.tune.settings import LENGTHS

    recorded = read(Trace.read(path))
    found = replay_all(recorded, LENGTHS[1])
    text = json.dumps({"settings": [asdict(one) for one in found]}, ensure_ascii=False, allow_nan=False) + "\n"
    if output is not None:
        write_whole(output, text)
    write(text if as_json else rendered(lambda console: show_replay(found, recorded, console)))


def _wanted(
    names: list[str],
    file: Path | None,
    *,
    raw: bool,
    max_tokens: int | None,
    seconds: float,
    quick: bool,
    quiet: bool,
) -> "Wanted":
    from foredraft.drafters import is_method, is_model_based, names_a_model
    from foredraft.models import store
    from foredraft.prompts import read_prompts
    from foredraft.tune.prompts import BUILT_IN
    from foredraft.tune.run import METHODS, Wanted

    if refused := [name for name in names if name in ("none", "auto")]:
        raise OptionError(f"--draft {refused[0]} is measured in any case; name a model, or a method")
    with PullDisplay(shown=not quiet) as display:
        models = [str(store.resolve(name, progress=display.for_model(name))) for name in names if names_a_model(name)]
    models += [name for name in names if is_method(name) and is_model_based(name)]
    methods = [name for name in names if is_method(name) and not is_model_based(name)]
    known = {*methods, *filter(is_model_based, names)}
    if unknown := [name for name in names if name not in known]:
        raise OptionError(f"unknown draft {unknown[0]!r}: name a model, or one of {', '.join(METHODS)}")
    return Wanted(
        methods=tuple(methods) or METHODS,
        models=tuple(models),
        prompts=BUILT_IN if file is None else tuple(read_prompts(file)),
        seconds=seconds,
        max_tokens=max_tokens,
        quick=quick,
        raw=raw,
        check_prompts=file is not None,
    )


def _silent(line: str) -> None:
    """Say nothing."""


class _Progress:
    """A line on the terminal that is written over."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown

    def __call__(self, done: int, planned: int) -> None:
        if self._shown:
            end = "\n" if done == planned else ""
            print(f"\r{done} of {planned} completions", end=end, file=sys.stderr, flush=True)
