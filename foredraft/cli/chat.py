"""`foredraft chat`: a conversation in the terminal, or through a pipe."""

import contextlib
import re
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from foredraft.cli import options
from foredraft.cli.console import details, note, summary, write
from foredraft.cli.inputs import checked_argument
from foredraft.cli.sampling import AS_MANY_AS_FIT, NONE_GIVEN, SamplingFlags, takes_sampling
from foredraft.cli.templates import advised, chat_options, check_generation_config
from foredraft.errors import ContextLengthError, OptionError

if TYPE_CHECKING:
    from foredraft.inputs import ChatOptions
    from foredraft.llm import LLM, Chunk, Completion
    from foredraft.sampling import SamplingParams

DEFAULT_MAX_TOKENS = 1024
FOR_THE_MODEL = ("/think", "/no_think", "/nothink")
"""Commands that some models know themselves, and that are messages here."""
HELP = """\
/reset  forget the conversation      /stats  how fast the answers came, and why
/drop   forget the oldest turns, as many as make room; a message that did not fit is answered then
/exit   leave (as does Ctrl-D)       /help   this list
Ctrl-C stops an answer; what was said of it stays in the conversation."""


@takes_sampling
def chat(
    model: options.Model = "smollm2-135m",
    system: options.System = None,
    chat_template: options.ChatTemplate = None,
    chat_template_kwargs: options.ChatTemplateKwargs = None,
    draft: options.Draft = None,
    num_draft_tokens: options.NumDraftTokens = None,
    draft_vocab: options.DraftVocab = None,
    draft_branches: options.DraftBranches = None,
    draft_memory: options.DraftMemory = None,
    acceptance: options.Acceptance = None,
    speculative_config: options.SpeculativeConfig = None,
    max_tokens: options.MaxTokens = DEFAULT_MAX_TOKENS,
    sampling: SamplingFlags = NONE_GIVEN,
    generation_config: options.GenerationConfig = None,
    threads: options.Threads = None,
    context_length: options.ContextLength = None,
    kv_memory: options.KvMemory = None,
    max_batched_tokens: options.MaxBatchedTokens = None,
    trace: options.Trace = None,
    profile: options.Profile = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> None:
    """Talk with a model.

    It remembers the conversation; /help lists the commands. Also reads a pipe, one message a line.
    """
    if max_tokens != AS_MANY_AS_FIT:
        options.at_least_1("--max-tokens", max_tokens)
    sampling.params(defaults=check_generation_config(generation_config), max_tokens=max_tokens)
    template = chat_options(chat_template, chat_template_kwargs)
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
        max_batched_tokens=max_batched_tokens,
        trace=trace,
        profile=profile,
    )
    system = None if system is None else sampling.text("--system", system)
    llm = options.load(engine, quiet=quiet)
    if not llm.has_chat_template and "chat_template" not in template:
        raise OptionError("this model has no chat template; use `foredraft generate` to continue a text")
    params = sampling.params(defaults=advised(llm, generation_config, sampling, quiet=quiet), max_tokens=max_tokens)
    _converse(Conversation(llm, params, system, template, verbose=verbose, quiet=quiet))


class Conversation:
    """The messages so far, and what the answers cost."""

    def __init__(
        self,
        llm: "LLM",
        params: "SamplingParams",
        system: str | None,
        template: "ChatOptions",
        *,
        verbose: bool,
        quiet: bool,
    ) -> None:
        self._llm = llm
        self._params = params
        self._template = template
        self._refused: str | None = None
        self._start = [] if system is None else [{"role": "system", "content": system}]
        self._verbose, self._quiet = verbose, quiet
        self._totals = Totals()
        self.messages: list[dict[str, str]] = list(self._start)

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = list(self._start)
        self._refused = None

    def drop(self) -> None:
        """Forget the oldest turns: one, and as many as make room. Answer the message that did not fit, if there is one.

        There is room where an answer of --max-tokens fits, or half of the context is left, as llama.cpp leaves it.
        """
        text = self._refused
        waiting = [] if text is None else [{"role": "user", "content": text}]
        most = min(self._llm.context_length, self._llm.decoder.cache.num_positions)
        wanted = most - min(self._params.max_tokens or most, most // 2)
        kept, num_dropped = list(self.messages), 0
        while turns := [number for number, message in enumerate(kept) if message["role"] == "user"]:
            if num_dropped and self._num_tokens([*kept, *waiting]) <= wanted:
                break
            del kept[turns[0] : turns[1] if len(turns) > 1 else None]
            num_dropped += 1
        if waiting and not turns and self._num_tokens([*kept, *waiting]) >= most:
            note("(it does not fit into an empty conversation either: shorten the message)")
        elif not num_dropped:
            note("(nothing to forget yet)")
        else:
            self.messages = kept
            note(f"(forgot the oldest {num_dropped} turn{'' if num_dropped == 1 else 's'})")
            if text is not None:
                self.answer(text)

    def _num_tokens(self, messages: list[dict[str, str]]) -> int:
        return len(self._llm.tokenizer.encode_chat(messages, **self._template))

    def stats(self) -> str:
        """Return what is known of the speed of the answers, in one or two lines."""
        return self._totals.report()

    def answer(self, text: str) -> None:
        """Stream the answer to `text` and remember both; Ctrl-C ends the answer early.

        What does not fit into the context is refused with a line, and not remembered.
        """
        self.messages.append({"role": "user", "content": text})
        self._refused = None
        said: list[str] = []
        completion: Completion | None = None
        try:
            with (
                answer_interrupts() as interrupted,
                _closing(self._llm.stream(self.messages, self._params, **self._template)) as stream,
            ):
                for chunk in stream:
                    said.append(chunk.text)
                    write(chunk.text)
                    completion = chunk.completion or completion
                    if interrupted():
                        break
        except ContextLengthError as error:
            self._remember("".join(said))
            self._refused = text
            note(f"{error}; /drop forgets the oldest turns and answers, /reset starts a new conversation")
            return
        except KeyboardInterrupt:  # a second Ctrl-C, when the next token takes too long to come
            pass
        write("\n")
        self._remember("".join(said))
        self._report(completion)

    def _remember(self, said: str) -> None:
        if said:
            self.messages.append({"role": "assistant", "content": said})
        else:  # templates want questions and answers to alternate
            self.messages.pop()

    def _report(self, completion: "Completion | None") -> None:
        self._totals.add(completion)
        if completion is None:
            note("(stopped)")
            return
        if completion.finish_reason == "length":
            if self._params.max_tokens == completion.usage.completion_tokens:
                note(f"(cut off at --max-tokens {self._params.max_tokens})")
            else:
                note("(cut off: the context is full; /drop forgets the oldest turns, /reset all of them)")
        if not self._quiet and sys.stderr.isatty():
            note(f"[{summary(completion)}]")
            if self._verbose:
                note(f"[{details(completion)}]")


@dataclass
class Totals:
    """Sums over the answers of a conversation."""

    num_stopped: int = 0
    completions: list["Completion"] = field(default_factory=list)

    def add(self, completion: "Completion | None") -> None:
        """Count an answer; None: it was stopped."""
        if completion is None:
            self.num_stopped += 1
        else:
            self.completions.append(completion)

    def report(self) -> str:
        """Return the sums in a line, and the figures of the last completion in two."""
        stopped = f", {self.num_stopped} stopped" if self.num_stopped else ""
        if not self.completions:
            return f"no whole answer yet{stopped}"
        num_tokens = sum(c.usage.completion_tokens for c in self.completions)
        decode_s = sum(c.timings.decode_s for c in self.completions)
        num_rounds = sum(c.speculation.num_rounds for c in self.completions)
        speculations = [c.speculation for c in self.completions]
        num_emitted = sum((s.mean_acceptance_length or 0.0) * s.num_rounds for s in speculations)
        num = len(self.completions)
        figures = [f"{num} answer{'s' if num > 1 else ''}{stopped}", f"{num_tokens} tokens"]
        if decode_s > 0:
            figures.append(f"{num_tokens / decode_s:.1f} tokens/s")
        if speedup := self._speedup():
            figures.append(f"{speedup:.2f} times plain decoding")
        if num_rounds:
            figures.append(f"mean acceptance length {num_emitted / num_rounds:.2f}")
        last = self.completions[-1]
        return f"all:  {', '.join(figures)}\nlast: {summary(last)}\n      {details(last)}"

    def _speedup(self) -> float | None:
        """Over plain decoding, of all completions of which it is known: by the time that each would have taken."""
        known = [c for c in self.completions if c.speculation.speedup is not None and c.speculation.num_draft_tokens]
        took_s = sum(c.timings.decode_s for c in known)
        plain_s = sum(c.timings.decode_s * (c.speculation.speedup or 0.0) for c in known)
        return plain_s / took_s if took_s > 0 else None


@contextlib.contextmanager
def answer_interrupts() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a wish that the yielded function reports, a second into KeyboardInterrupt.

    An exception raised between any two instructions could leave the engine's cache half updated; a wish is
    granted where the engine hands out a chunk.
    """
    wished = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal wished
        if wished:
            raise KeyboardInterrupt
        wished = True

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: wished
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _closing(stream: "Iterator[Chunk]") -> "Iterator[Iterator[Chunk]]":
    """Close a generator that was left early now, not when it happens to be collected."""
    try:
        yield stream
    finally:
        close = getattr(stream, "close", None)
        if close is not None:
            close()


def _converse(conversation: Conversation) -> None:
    if getattr(sys, "stdin", None) is None:
        raise OptionError("standard input is closed; a chat reads its messages from there")
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if interactive:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (input() edits lines with it)
        note("/help lists the commands, /exit or Ctrl-D leaves")
    # Bytes that are not UTF-8 come as surrogates, so that they can be named in the complaint.
    encoding = "utf-8" if interactive else "utf-8-sig"  # which leaves out a byte order mark
    sys.stdin.reconfigure(encoding=encoding, errors="surrogateescape")  # type: ignore[union-attr]
    while True:
        try:
            line = input("> ") if interactive else _piped_line()
            if not _handle(conversation, line, interactive=interactive):
                return
        except EOFError:
            if interactive:
                note()
            return
        except KeyboardInterrupt:
            if not interactive:
                raise
            note("\n(/exit or Ctrl-D leaves)")


def _piped_line() -> str:
    """A line of standard input. Not by `input`, which writes to standard output as well, in vain where it is full."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def _handle(conversation: Conversation, line: str, *, interactive: bool) -> bool:
    """Do what one line asks for; return False when it asks to leave."""
    try:
        text = checked_argument("the message", line).strip()
    except OptionError as error:
        if not interactive:
            raise
        note(str(error))
        return True
    if re.match(r"/[A-Za-z]*(\s|$)", text) and text.split()[0] not in FOR_THE_MODEL:
        return _command(conversation, text)
    if text:
        conversation.answer(text)
    return True


def _command(conversation: Conversation, text: str) -> bool:
    command, _, rest = text.partition(" ")
    if command not in ("/drop", "/exit", "/help", "/reset", "/stats"):
        note(f"unknown command {command}; /help lists the commands")
    elif rest.strip():
        note(f"{command} takes nothing after it")
    elif command == "/exit":
        return False
    elif command == "/help":
        note(HELP)
    elif command == "/drop":
        conversation.drop()
    elif command == "/stats":
        note(conversation.stats())
    else:
        conversation.reset()
        note("(new conversation)")
    return True
