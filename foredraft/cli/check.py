"""`foredraft check`: is the text the same with speculation as without, on this model and this machine?"""

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.cli import options
from foredraft.cli.console import PullDisplay, note, rendered, write
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from foredraft.check import Plan
    from foredraft.llm import LLM

_SECONDS_PER_TOKEN = 1.3
"""What a compared token takes, in tokens of plain decoding: batches are faster, penalties and verification are not."""
_SECONDS_PER_SAMPLE = 2.5


Prompts = Annotated[
    Path | None,
    typer.Option(
        parser=user_path,
        metavar="FILE",
        help='Prompts: one a line, or .jsonl with "prompt" or "turns" (default: four of our own).',
    ),
]


def check(
    model: options.Model = "smollm2-135m",
    draft: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DRAFTER",
            help="A model: checked too. A method such as suffix: checked instead of all methods. Repeatable.",
            show_default=False,
        ),
    ] = None,
    prompts: Prompts = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only the most telling of the comparisons.")] = False,
    as_json: options.JsonForTables = False,
    output: options.Output = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            "--trace", parser=user_path, metavar="FOLDER", help="Write traces here, a file for each way of drafting."
        ),
    ] = None,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    quiet: options.Quiet = False,
) -> None:
    """Prove that speculation changes nothing.

    Completes prompts with and without it, over drafters, lengths, tree shapes, temperatures, options and batch sizes,
    and compares token ids, text, finish reason, log-probabilities and usage. Tests the rules that are equal in
    distribution. Exit code 0: all is equal; 1: something is not.
    """
    from foredraft.files import check_writable, write_whole

    if output is not None:
        check_writable(output)
    engine = options.EngineOptions(model=model, draft=["none"], threads=threads, context_length=context_length)
    if traces is not None:
        _make_folder(traces)
    texts = _texts(prompts)
    methods = _methods(draft or [], quiet=quiet)
    llm = options.load(engine, quiet=quiet)
    from foredraft.bench.machine import describe_machine
    from foredraft.check import make_plan, run
    from foredraft.check.report import show, to_json_dict

    for name in draft or ():
        llm.with_drafts(name, num_draft_tokens=1)  # which refuses what is unknown or does not fit
    if not draft:
        methods = [method for method in methods if _is_possible(llm, method)]
    plan = make_plan(methods, prompts=texts, quick=quick)
    if not quiet:
        note(_announcement(llm, plan))
    report = run(llm, plan, _Progress(shown=not quiet and sys.stderr.isatty()), traces=traces)
    text = json.dumps(
        to_json_dict(report, model=llm.name, machine=describe_machine()), ensure_ascii=False, allow_nan=False
    )
    if output is not None:
        write_whole(output, text + "\n")
    write(f"{text}\n" if as_json else rendered(lambda console: show(report, console)))
    if not report.holds:
        raise typer.Exit(1)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--trace: cannot make the folder {folder}: {error.strerror}") from error


def _texts(file: Path | None) -> tuple[str, ...]:
    from foredraft.check.prompts import BUILT_IN
    from foredraft.prompts import read_prompts

    return BUILT_IN if file is None else tuple(prompt.text for prompt in read_prompts(file))


def _methods(names: list[str], *, quiet: bool) -> list[tuple[str, ...]]:
    """What drafts, alone and together: the methods named, or all; the models named, fetched; and auto."""
    from foredraft.drafters import METHODS_WITHOUT_MODEL, names_a_model
    from foredraft.models import store

    if "none" in names:
        raise OptionError("--draft none is what all others are compared with; leave it out")
    with PullDisplay(shown=not quiet) as display:
        models = [str(store.resolve(name, progress=display.for_model(name))) for name in names if names_a_model(name)]
    methods = [name for name in names if not names_a_model(name)]
    alone = [(name,) for name in (*(methods or (*METHODS_WITHOUT_MODEL, "auto")), *models)]
    return list(dict.fromkeys([*alone, *([("auto", *models)] if models and not methods else [])]))


def _is_possible(llm: "LLM", method: tuple[str, ...]) -> bool:
    """Whether a way of drafting that nobody asked for can be had with this model. If not, it is left out, and told."""
    try:
        llm.with_drafts(method)
    except OptionError as error:
        note(f"{'+'.join(method)} is left out: {error}")
        return False
    return True


def _announcement(llm: "LLM", plan: "Plan") -> str:
    """What will be run, and about how long it takes."""
    from foredraft.check.distribution import planned_tests
    from foredraft.sampling import SamplingParams

    plain = llm.with_drafts("none")
    params = SamplingParams(max_tokens=plan.max_tokens, ignore_eos=True)
    started = time.perf_counter()
    plain.generate(plan.prompts[0], params)
    per_token = (time.perf_counter() - started) / plan.max_tokens
    num_tokens = len(plan.cells) * len(plan.prompts) * plan.max_tokens
    num_tests = sum(1 for _ in planned_tests(llm, plan))
    seconds = per_token * (_SECONDS_PER_TOKEN * num_tokens + _SECONDS_PER_SAMPLE * num_tests * plan.num_samples)
    names = dict.fromkeys(cell.drafters for cell in plan.cells)
    about = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"
    return (
        f"{len(plan.cells)} comparisons of {len(plan.prompts)} prompts with {', '.join(names)}, "
        f"and {num_tests} statistical tests: about {about}"
    )


class _Progress:
    """A line on the terminal that is written over."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._started = time.perf_counter()

    def __call__(self, done: int, of: int, what: str) -> None:
        """Show what comes next; at the end, nothing."""
        if not self._shown:
            return
        line = f"{done + 1} of {of}: {what}" if done < of else ""
        print(f"\r\x1b[K{line[:110]}", end="", file=sys.stderr, flush=True)
