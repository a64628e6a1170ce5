"""The front door: load a model, generate, chat, stream."""

import copy
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from foredraft import __version__
from foredraft.accept import COUPLED, AcceptanceRule, make_rule
from foredraft.drafters import Drafter, DraftOptions, first_with_grammar, make_drafter, make_drafters, with_grammar
from foredraft.engine import Chunk, Completion, Engine, Request, completion_of, requests_for, run_to_the_end, stream_of
from foredraft.errors import OptionError
from foredraft.kernels.choose import available_cores, choose_kernels
from foredraft.kernels.operations import Kernels
from foredraft.machine import processor_name
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import DEFAULT_MODEL, cache_folder, resolve
from foredraft.planner import (
    AutoPlanner,
    CalibrationStore,
    FixedPlanner,
    Learned,
    Planner,
    Profile,
    make_auto_planner,
)
from foredraft.planner.first_look import SAMPLE
from foredraft.sampling import SamplingParams
from foredraft.speculative_config import parse_speculative_config
from foredraft.text import load_tokenizer
from foredraft.trace import Header, Sink, TraceWriter
from foredraft.verify import Verifier

Messages = Sequence[Mapping[str, str]]
Draft = str | Path | Drafter
MAX_DRAFT_TOKENS = 64
MAX_DRAFT_BRANCHES = 16
MAX_VOCAB = 2**31 - 1
MAX_THREADS = 1024

__all__ = ["LLM", "Chunk", "Completion", "Messages", "SamplingParams"]


class LLM:
    """A model that answers, with speculation where a drafter is given.

    model: a .gguf file, a safetensors folder, a hub id or a built-in name.
    draft: "auto", "none", a method such as "suffix", a model as above, a drafter of your own (see docs/drafters.md), or
    a list of these.
    num_draft_tokens: tokens to draft in every round, 1 to 64; None: as many as pay.
    draft_vocab_size: how many frequent tokens a draft model chooses from; 0: all; None: all of a small vocabulary,
    32768 of one larger than 65536.
    num_draft_branches: most tokens that a draft model proposes after each, 1 to 16; 1, the default, for chains.
    draft_memory: texts of earlier requests that "suffix" drafts from: "process", those since the start; "none"; or a
    file in which they are kept from one start to the next.
    acceptance: which drafted tokens are kept: "coupled", the default, says what plain decoding says; "rejection",
    "block", "tree" and "traversal" do so in distribution; "typical" and "threshold" are lossy. See docs/acceptance.md.
    context_length: most tokens of a request; None: what the model was made for.
    threads: of the native kernels; None: all processors of this process.
    kernels: "native" or "reference".
    speculative_config: instead of draft and num_draft_tokens, the keys that vLLM takes; see `parse_speculative_config`.
    trace: a file to write what every round did, or a function that takes the records (see `foredraft.trace`).
    profile: a file that `foredraft tune` wrote for this model: what was learned of drafters, what passes cost, and the
    drafting that did best, which is used where none is asked for.

    Raises UserError subclasses for anything wrong with the model or the options.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        draft: Draft | Sequence[Draft] = "auto",
        num_draft_tokens: int | None = None,
        draft_vocab_size: int | None = None,
        num_draft_branches: int = 1,
        draft_memory: str | Path = "process",
        acceptance: str = "coupled",
        context_length: int | None = None,
        threads: int | None = None,
        kernels: str = "native",
        speculative_config: str | Mapping[str, object] | None = None,
        trace: str | Path | Sink | None = None,
        profile: str | Path | Profile | None = None,
    ) -> None:
        started = time.perf_counter()
        _check_kind("the model", model, str | Path, "a file, a folder or a name")
        _check_kind("--profile", profile, str | Path | Profile | None, "a file or a Profile")
        _check_kind("--speculative-config", speculative_config, str | Mapping | None, "JSON text or a mapping")
        self._profile = Profile.read(profile) if isinstance(profile, str | Path) else profile
        if speculative_config is not None:
            if draft != "auto" or num_draft_tokens is not None:
                raise OptionError("--speculative-config cannot be combined with --draft or --num-draft-tokens")
            asked = parse_speculative_config(speculative_config)
            draft, num_draft_tokens = asked.draft, asked.num_draft_tokens
        elif self._profile is not None and draft == "auto" and num_draft_tokens is None and num_draft_branches == 1:
            best = self._profile.recommended
            draft, num_draft_tokens, num_draft_branches = best.draft, best.num_draft_tokens, best.num_draft_branches
        drafting = _Drafting(draft, num_draft_tokens, draft_vocab_size, num_draft_branches, draft_memory, acceptance)
        if threads is not None:
            _check_integer("--threads", threads, least=1, most=MAX_THREADS)
        chosen = choose_kernels(kernels, threads=threads)
        source = open_model(resolve(model))
        self.name = source.path.name
        self.tokenizer = load_tokenizer(source.tokenizer_data)
        if self._profile is not None:
            self._profile.check(model=self.name, tokenizer=self.tokenizer.fingerprint())
        self.decoder = load_decoder(source, kernels=chosen)
        self._calibration_key = _calibration_key(source.path, chosen, threads or available_cores())
        self.num_threads = threads or available_cores()
        self._settings = {"threads": self.num_threads, "kernels": kernels}
        context = _context(context_length, source.config.context_length)
        self._draft_with(drafting, context, trace)
        self._load_s = time.perf_counter() - started

    def with_drafts(
        self,
        draft: Draft | Sequence[Draft] = "auto",
        *,
        num_draft_tokens: int | None = None,
        draft_vocab_size: int | None = None,
        num_draft_branches: int = 1,
        draft_memory: str | Path = "process",
        acceptance: str = "coupled",
        trace: str | Path | Sink | None = None,
        profile: Profile | None = None,
    ) -> Self:
        """The same model, which is not loaded again, with another way of drafting. Arguments and errors as above.

        profile: what to start from; None: that of the model. What it recommends is not asked for here.

        The two share the model's cache, so they must not run at the same time.
        """
        other = copy.copy(self)
        other._profile = profile or self._profile
        drafting = _Drafting(draft, num_draft_tokens, draft_vocab_size, num_draft_branches, draft_memory, acceptance)
        other._draft_with(drafting, self.context_length, trace)
        return other

    def _draft_with(self, drafting: "_Drafting", context_length: int, trace: str | Path | Sink | None) -> None:
        """Set up all that depends on how is drafted."""
        if not callable(trace):
            _check_kind("--trace", trace, str | Path | None, "a file, or a function that takes the records")
        self._rule = drafting.rule
        verifier = Verifier(self.decoder, min(self.tokenizer.vocab_size, self.decoder.config.vocab_size))
        self._planner = self._make_planner(drafting, verifier.vocab_size)
        self._engine = Engine(
            verifier,
            self._planner,
            self.tokenizer,
            context_length=context_length,
            rule=self._rule,
            trace=None if trace is None else self._opened(trace, drafting, context_length),
        )

    def _make_planner(self, drafting: "_Drafting", vocab_size: int) -> Planner:
        """A fixed plan where a number was asked for or nothing is drafted, else one that goes by what pays."""
        asked = drafting.drafts
        options = DraftOptions(
            self.tokenizer,
            self.decoder.kernels,
            drafting.vocab_size,
            memory=drafting.kept,
            num_branches=drafting.num_branches,
            decoder=self.decoder,
            draws_over=vocab_size if drafting.rule.needs_draws else None,
        )
        if drafting.num_draft_tokens is not None or asked == ["none"]:
            drafter, reason = make_drafter(asked, options)
            if asked != ["none"]:
                drafter = first_with_grammar(drafter)
            return FixedPlanner(drafter, drafting.num_draft_tokens or 0, reason=reason)
        store = CalibrationStore(cache_folder() / "calibration")
        drafters = with_grammar(make_drafters(asked, options))
        return make_auto_planner(
            drafters, self.decoder, store, self._calibration_key, lambda: self.tokenizer.encode(SAMPLE), self._profile
        )

    def _opened(self, trace: str | Path | Sink, drafting: "_Drafting", context_length: int) -> Sink:
        """Where the records of a trace go, the header already written."""
        sink = TraceWriter(trace) if isinstance(trace, str | Path) else trace
        settings = {
            "draft": [Path(one).name if isinstance(one, str) else one.name for one in drafting.drafts],
            "num_draft_tokens": drafting.num_draft_tokens,
            "context_length": context_length,
            "acceptance": self._rule.name,
        }
        sink(
            Header(
                foredraft=__version__,
                model=self.name,
                tokenizer=self.tokenizer.fingerprint(),
                drafters=self._planner.methods,
                settings=settings | self._settings,
                machine={"processor": processor_name(), "num_cores": available_cores()},
            )
        )
        return sink

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a conversation is written."""
        return self.tokenizer.chat_template is not None

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the drafters that may be asked."""
        return self._planner.methods

    @property
    def learned(self) -> Mapping[str, Learned]:
        """What was found out about drafters while answering, by their names; nothing where the plan is fixed."""
        return self._planner.learned if isinstance(self._planner, AutoPlanner) else {}

    @property
    def calibration_key(self) -> Mapping[str, object]:
        """What the times of forward passes depend on: the model's file, kernels, threads, processor."""
        return self._calibration_key

    def forget_texts(self) -> None:
        """Drop the prompts of answered requests, which later requests that begin alike need not read again."""
        self._engine.forget_texts()

    @property
    def context_length(self) -> int:
        """Most tokens of a request, prompt and answer together."""
        return self._engine.context_length

    def generate(self, prompts: str | Sequence[str], params: SamplingParams | None = None) -> list[Completion]:
        """Continue each prompt as it stands. Several prompts run together. Completions come in the order given.

        Raises OptionError for an empty prompt, ContextLengthError for one that does not fit.
        """
        params = SamplingParams() if params is None else params
        return self._run([self.tokenizer.encode(text) for text in _texts(prompts)], params)

    def chat(self, messages: Messages, params: SamplingParams | None = None) -> Completion:
        """Answer a conversation: messages with "role" and "content". Raises as `generate`, and without a template."""
        params = SamplingParams() if params is None else params
        [completion] = self._run([self._encode_chat(messages, params)], params)
        return completion

    def stream(self, prompt: str | Messages, params: SamplingParams | None = None) -> Iterator[Chunk]:
        """Answer a text or a conversation piece by piece. Closing the iterator ends the request.

        The pieces of an answer together are its text. Pieces of several answers (`n`) come as they are produced, each
        with its index; what `best_of` is to choose from cannot be streamed. Raises as `generate` and `chat`, before the
        first piece.
        """
        params = SamplingParams() if params is None else params
        if isinstance(prompt, str):
            [text] = _texts(prompt)
            ids = self.tokenizer.encode(text)
        else:
            ids = self._encode_chat(prompt, params)
        requests = requests_for(self._engine, ids, params)
        if len(requests) > params.n:
            raise OptionError("--best-of cannot be streamed: which answers are the best is known at the end")
        return stream_of(self._engine, requests, lambda: self._completion(requests))

    def _run(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        answers = [requests_for(self._engine, ids, params) for ids in prompts]
        run_to_the_end(self._engine, [request for several in answers for request in several])
        return [self._completion(several) for several in answers]

    def _completion(self, requests: Sequence[Request]) -> Completion:
        return completion_of(requests, methods=self._planner.methods, load_s=self._load_s, rule=self._rule)

    def _encode_chat(self, messages: Messages, params: SamplingParams) -> list[int]:
        if isinstance(params, SamplingParams) and params.echo:
            raise OptionError("--echo needs a plain text to continue (--raw): a conversation is not part of its answer")
        if not self.has_chat_template:
            raise OptionError("this model has no chat template: give a plain text to continue (--raw)")
        _check_messages(messages)
        return self.tokenizer.encode_chat(messages)


def _check_kind(what: str, value: object, kinds: Any, words: str) -> None:
    if not isinstance(value, kinds):
        raise OptionError(f"{what} must be {words}, got {repr(value)[:60]}")


def _check_integer(option: str, value: object, *, least: int, most: int, why: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise OptionError(f"{option} must be an integer from {least} to {most}{why}, got {value!r}")


@dataclass(frozen=True)
class _Drafting:
    """How is to be drafted, as `LLM` takes it. Raises OptionError before anything is loaded."""

    asked: Draft | Sequence[Draft]
    num_draft_tokens: int | None
    vocab_size: int | None
    num_branches: int
    memory: str | Path
    acceptance: str

    def __post_init__(self) -> None:
        if self.num_draft_tokens is not None:
            _check_integer("--num-draft-tokens", self.num_draft_tokens, least=1, most=MAX_DRAFT_TOKENS)
        _check_integer("--draft-branches", self.num_branches, least=1, most=MAX_DRAFT_BRANCHES)
        if self.vocab_size is not None:
            _check_integer("--draft-vocab", self.vocab_size, least=0, most=MAX_VOCAB, why=" (0: all tokens)")
        if not isinstance(self.memory, str | Path) or not str(self.memory):
            raise OptionError(f'--draft-memory must be "process", "none" or a file, got {self.memory!r}')
        if not isinstance(self.asked, Sequence) and not _is_draft(self.asked):
            raise OptionError(f"--draft must be a name, a drafter or a list of these, got {self.asked!r}")
        for one in self.drafts:
            if not _is_draft(one):
                raise OptionError(f"--draft must be a name, a drafter or a list of these, got {one!r}")
        self._check_rule()

    def _check_rule(self) -> None:
        rule = self.rule
        if rule != COUPLED and self.drafts == ["none"]:
            raise OptionError(f"--acceptance {rule.name} is about drafted tokens, and --draft none drafts none")
        if rule.needs_draws and self.num_draft_tokens is None:
            raise OptionError(
                f"--acceptance {rule.name} needs --num-draft-tokens: a length that is chosen by looking at what was "
                "drafted would bias the text"
            )
        if rule.name in ("rejection", "block") and self.num_branches > 1:
            raise OptionError(
                f"--acceptance {rule.name} judges chains, --draft-branches asks for trees: use --acceptance traversal"
            )

    @property
    def rule(self) -> AcceptanceRule:
        """Which drafted tokens are kept."""
        return make_rule(self.acceptance)

    @property
    def drafts(self) -> list[str | Drafter]:
        """The single names and drafters."""
        several = self.asked if isinstance(self.asked, Sequence) and not isinstance(self.asked, str) else [self.asked]
        return [str(one) if isinstance(one, Path) else one for one in several]

    @property
    def kept(self) -> Path | Literal["process", "none"]:
        """Where texts of earlier requests are kept, see `DraftOptions`."""
        if self.memory == "process":
            return "process"
        return "none" if self.memory == "none" else Path(self.memory).expanduser()


def _is_draft(one: object) -> bool:
    """Whether it may be one: what is missing of a drafter is said where it is made."""
    return isinstance(one, str | Path) or hasattr(one, "propose")


def _texts(prompts: str | Sequence[str]) -> Sequence[str]:
    texts = [prompts] if isinstance(prompts, str) else prompts
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise OptionError("prompts must be a text or a list of texts")
    if not all(texts):
        raise OptionError("the prompt is empty: give at least one character of text")
    return texts


def _check_messages(messages: object) -> None:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise OptionError("a conversation must be a list of at least one message")
    for message in messages:
        texts = [message.get(key) for key in ("role", "content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise OptionError(f"a message must have a role and a content, both texts, got {message!r}")


def _context(asked: int | None, longest: int) -> int:
    if asked is None:
        return longest
    _check_integer("--context-length", asked, least=2, most=longest, why=" (what the model was made for)")
    return asked


def _calibration_key(path: Path, kernels: Kernels, threads: int) -> dict[str, object]:
    """All that the time of a forward pass depends on, but for what else the machine does."""
    status = path.stat()
    return {
        "foredraft": __version__,
        "model": [str(path.resolve()), status.st_size, status.st_mtime_ns],
        "kernels": [kernels.name, getattr(kernels, "isa", "")],
        "threads": threads,
        "processor": processor_name(),
    }
