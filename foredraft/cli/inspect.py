"""`foredraft inspect`: what each round proposed, what was accepted, and why the rest was not."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.cli import options
from foredraft.cli.console import note, rendered, write
from foredraft.cli.generate import chat_or_text
from foredraft.cli.inputs import read_prompt
from foredraft.cli.sampling import NONE_GIVEN, SamplingFlags, takes_sampling
from foredraft.cli.templates import advised, check_generation_config, prompt_options
from foredraft.errors import OptionError
from foredraft.files import user_path

if TYPE_CHECKING:
    from foredraft.trace import Record, Sink, Trace

DEFAULT_MAX_TOKENS = 64
_WITH_FROM = {"from_", "html", "quiet"}


@takes_sampling
def inspect(
    context: typer.Context,
    prompt: options.Prompt = None,
    model: options.Model = "smollm2-135m",
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=user_path,
            metavar="FILE",
            help="Show a recorded trace instead of running a prompt.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(parser=user_path, metavar="FILE", help="Also write a page to click through to this file."),
    ] = None,
    jsonl: Annotated[
        Path | None, typer.Option(parser=user_path, metavar="FILE", help="Also write the trace to this file.")
    ] = None,
    prompt_file: options.PromptFile = None,
    system: options.System = None,
    raw: options.Raw = False,
    special: options.Special = False,
    chat_template: options.ChatTemplate = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    draft: options.Draft = None,
    num_draft_tokens: options.NumDraftTokens = None,
    draft_vocab: options.DraftVocab = None,
    draft_branches: options.DraftBranches = None,
    acceptance: options.Acceptance = None,
    speculative_config: options.SpeculativeConfig = None,
    max_tokens: options.MaxTokens = DEFAULT_MAX_TOKENS,
    sampling: SamplingFlags = NONE_GIVEN,
    generation_config: options.GenerationConfig = None,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    kv_memory: options.KvMemory = None,
    max_batched_tokens: options.MaxBatchedTokens = None,
    quiet: options.Quiet = False,
) -> None:
    """Show what each round proposed and what became of it.

    Runs the prompt as `generate` does, and shows for every round what was drafted, by whom and with which confidence,
    what was accepted, and how the target ranks the first token that was not.
    """
    from foredraft.files import check_writable
    from foredraft.trace import Trace

    if html is not None:
        check_writable(html, "--html")
    if from_ is not None:
        options.refuse_others(context, _WITH_FROM, why="--from shows a recorded trace")
        trace = _recorded(from_)
    else:
        sampling.params(defaults=check_generation_config(generation_config), max_tokens=max_tokens)
        how = prompt_options(chat_template, chat_template_kwargs, raw=raw, special=special, system=system)
        trace = Trace()
        engine = options.EngineOptions(
            model=model,
            draft=draft,
            num_draft_tokens=num_draft_tokens,
            draft_vocab=draft_vocab,
            draft_branches=draft_branches,
            acceptance=acceptance,
            speculative_config=speculative_config,
            threads=threads,
            context_length=context_length,
            kv_memory=kv_memory,
            max_batched_tokens=max_batched_tokens,
            trace=_sink(trace, jsonl),
        )
        text = read_prompt(prompt, prompt_file, raw=raw, escape=sampling.escape)
        system = None if system is None else sampling.text("--system", system)
        llm = options.load(engine, quiet=quiet)
        params = sampling.params(defaults=advised(llm, generation_config, sampling, quiet=quiet), max_tokens=max_tokens)
        for _ in llm.stream(chat_or_text(llm, text, system, how, raw=raw), params, **how):
            pass
    _give(trace, html, quiet=quiet)


def _recorded(path: Path) -> "Trace":
    from foredraft.trace import Trace

    trace = Trace.read(path)
    if not trace.sequences:
        raise OptionError(f"{path} holds no sequence: nothing was generated while it was written")
    return trace


def _sink(trace: "Trace", jsonl: Path | None) -> "Sink":
    from foredraft.trace import TraceWriter

    if jsonl is None:
        return trace
    writer = TraceWriter(jsonl)

    def both(record: "Record") -> None:
        writer(record)
        trace(record)

    return both


def _give(trace: "Trace", html: Path | None, *, quiet: bool) -> None:
    from foredraft.files import write_whole
    from foredraft.inspect import page, show

    write(rendered(lambda console: show(trace, console)))
    if html is not None:
        write_whole(html, page(trace))
        if not quiet:
            note(f"wrote {html}")
