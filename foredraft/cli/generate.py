"""`foredraft generate`: one prompt in, its answer or continuation out, as it is produced."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.cli import options
from foredraft.cli.console import details, note, summary, write
from foredraft.cli.inputs import read_prompt
from foredraft.cli.sampling import NONE_GIVEN, SamplingFlags, takes_sampling
from foredraft.cli.templates import advised, check_generation_config, prompt_options
from foredraft.errors import OptionError, UserError

if TYPE_CHECKING:
    from foredraft.inputs import PromptOptions
    from foredraft.llm import LLM, Completion
    from foredraft.sampling import SamplingParams

Messages = list[dict[str, str]]


@takes_sampling
def generate(
    prompt: options.Prompt = None,
    model: options.Model = "smollm2-135m",
    prompt_file: options.PromptFile = None,
    system: options.System = None,
    raw: options.Raw = False,
    special: options.Special = False,
    chat_template: options.ChatTemplate = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of streaming the text.")
    ] = False,
    draft: options.Draft = None,
    num_draft_tokens: options.NumDraftTokens = None,
    draft_vocab: options.DraftVocab = None,
    draft_branches: options.DraftBranches = None,
    draft_memory: options.DraftMemory = None,
    acceptance: options.Acceptance = None,
    speculative_config: options.SpeculativeConfig = None,
    max_tokens: options.MaxTokens = None,
    sampling: SamplingFlags = NONE_GIVEN,
    generation_config: options.GenerationConfig = None,
    n: options.NumAnswers = None,
    best_of: options.BestOf = None,
    logprobs: options.Logprobs = None,
    prompt_logprobs: options.PromptLogprobs = None,
    echo: options.Echo = False,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    kv_memory: options.KvMemory = None,
    max_running: options.MaxRunning = None,
    max_batched_tokens: options.MaxBatchedTokens = None,
    trace: options.Trace = None,
    profile: options.Profile = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer or continue a prompt.

    The model's chat template is applied where it has one, unless --raw. The text goes to stdout while it is
    produced, everything else to stderr.
    """
    own: dict[str, Any] = {
        "max_tokens": max_tokens,
        "n": n,
        "best_of": best_of,
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
        "echo": echo,
    }
    params = sampling.params(defaults=check_generation_config(generation_config), **own)
    how = prompt_options(chat_template, chat_template_kwargs, raw=raw, special=special, system=system)
    if not as_json and (params.logprobs is not None or params.prompt_logprobs is not None):
        raise OptionError("--logprobs and --prompt-logprobs need --json, which is where they are printed")
    engine = options.EngineOptions(
        model=model,
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
        trace=trace,
        profile=profile,
    )
    text = read_prompt(prompt, prompt_file, raw=raw, escape=sampling.escape)
    system = None if system is None else sampling.text("--system", system)
    llm = options.load(engine, quiet=quiet)
    params = sampling.params(defaults=advised(llm, generation_config, sampling, quiet=quiet), **own)
    request = chat_or_text(llm, text, system, how, raw=raw)
    completion = _answer(llm, request, params, how, stream=not as_json)
    _report(completion, as_json=as_json, quiet=quiet, verbose=verbose)


def _one_by_one(completion: "Completion") -> str:
    """All answers, each under a line that counts them if there are several."""
    num = len(completion.choices)
    if num == 1:
        return f"{completion.text}\n"
    return "".join(f"--- answer {choice.index + 1} of {num} ---\n{choice.text}\n" for choice in completion.choices)


def _report(completion: "Completion", *, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Print what belongs behind an answer: the one JSON object instead of it, or a summary on stderr."""
    if as_json:
        write(json.dumps(completion.to_json_dict(), ensure_ascii=False, allow_nan=False) + "\n")
    elif not quiet:
        note(summary(completion))
        if verbose:
            note(details(completion))


def chat_or_text(llm: "LLM", text: str, system: str | None, how: "PromptOptions", *, raw: bool) -> str | Messages:
    """Return the chat messages, or the bare text for a model without a template or when `raw`."""
    if raw or not (llm.has_chat_template or "chat_template" in how):
        if system is not None:
            raise UserError("--system needs a chat template, and this model has none; put it into the prompt")
        if "chat_template_kwargs" in how:
            raise UserError("--chat-template-kwargs needs a chat template, and this model has none")
        return text
    messages = [{"role": "user", "content": text}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _answer(
    llm: "LLM", request: str | Messages, params: "SamplingParams", how: "PromptOptions", *, stream: bool
) -> "Completion":
    """Produce the whole answer, on stdout while it comes if `stream`, followed there by one line ending.

    Several answers cannot come at once in one terminal: they are printed when all are there.
    """
    if params.num_choices > 1:
        several = _all_at_once(llm, request, params, how)
        if stream:
            write(_one_by_one(several))
        return several
    completion = None
    for chunk in llm.stream(request, params, **how):
        if stream and chunk.text:
            write(chunk.text)
        completion = chunk.completion or completion
    if completion is None:
        raise RuntimeError("the stream ended without its completion")
    if stream:
        write("\n")
    return completion


def _all_at_once(llm: "LLM", request: str | Messages, params: "SamplingParams", how: "PromptOptions") -> "Completion":
    if isinstance(request, str):
        return llm.generate(request, params, parse_special=how.get("parse_special", False))[0]
    conversation: dict[str, Any] = {**how}
    return llm.chat(request, params, **conversation)
