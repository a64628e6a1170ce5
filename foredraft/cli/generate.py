"""`foredraft generate`: one prompt in, its answer or continuation out, as it is produced."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.cli import options
from foredraft.cli.console import note, summary, write
from foredraft.cli.inputs import checked_argument, read_prompt
from foredraft.errors import OptionError, UserError

if TYPE_CHECKING:
    from foredraft.llm import LLM, Completion
    from foredraft.sampling import SamplingParams

Messages = list[dict[str, str]]


def generate(
    prompt: Annotated[
        str | None, typer.Argument(metavar="PROMPT", help="The text to answer; - or none: standard input.")
    ] = None,
    model: options.Model = "smollm2-135m",
    prompt_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Read the prompt from this file.")] = None,
    system: options.System = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the prompt as it stands, without the chat template.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of streaming the text.")
    ] = False,
    draft: options.Draft = None,
    num_draft_tokens: options.NumDraftTokens = None,
    draft_vocab: options.DraftVocab = None,
    draft_branches: options.DraftBranches = None,
    speculative_config: options.SpeculativeConfig = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    min_p: options.MinP = None,
    seed: options.Seed = None,
    stop: options.Stop = None,
    ignore_eos: options.IgnoreEos = False,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    trace: options.Trace = None,
    quiet: options.Quiet = False,
) -> None:
    """Answer or continue a prompt.

    The model's chat template is applied where it has one, unless --raw. The text goes to stdout while it is
    produced, everything else to stderr.
    """
    params = options.sampling_params(
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        seed=seed,
        stop=stop,
        ignore_eos=ignore_eos,
    )
    engine = options.EngineOptions(
        model=model,
        draft=draft,
        num_draft_tokens=num_draft_tokens,
        draft_vocab=draft_vocab,
        draft_branches=draft_branches,
        speculative_config=speculative_config,
        threads=threads,
        context_length=context_length,
        trace=trace,
    )
    if raw and system is not None:
        raise OptionError("--system needs the chat template, which --raw switches off; drop one of them")
    text = read_prompt(prompt, prompt_file, raw=raw)
    llm = options.load(engine, quiet=quiet)
    completion = _answer(llm, chat_or_text(llm, text, system, raw=raw), params, stream=not as_json)
    _report(completion, as_json=as_json, quiet=quiet)


def _report(completion: "Completion", *, as_json: bool, quiet: bool) -> None:
    """Print what belongs behind an answer: the one JSON object instead of it, or a summary on stderr."""
    if as_json:
        write(json.dumps(completion.to_json_dict(), ensure_ascii=False, allow_nan=False) + "\n")
    elif not quiet:
        note(summary(completion))


def chat_or_text(llm: "LLM", text: str, system: str | None, *, raw: bool) -> str | Messages:
    """Return the chat messages, or the bare text for a model without a template or when `raw`."""
    if raw or not llm.has_chat_template:
        if system is not None:
            raise UserError("--system needs a chat template, and this model has none; put it into the prompt")
        return text
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": checked_argument("--system", system)})
    return messages


def _answer(llm: "LLM", request: str | Messages, params: "SamplingParams", *, stream: bool) -> "Completion":
    """Produce the whole answer, on stdout while it comes if `stream`, followed there by one line ending."""
    completion = None
    for chunk in llm.stream(request, params):
        if stream and chunk.text:
            write(chunk.text)
        completion = chunk.completion or completion
    if completion is None:
        raise RuntimeError("the stream ended without its completion")
    if stream:
        write("\n")
    return completion
