"""The front door: load a model, generate, chat, stream."""

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, Unpack

from foredraft import __version__
from foredraft.config import DraftConfig, as_config
from foredraft.drafters import Drafter
from foredraft.engine import Chunk, Completion, Output, Submission, completion_of, outputs_for
from foredraft.engine.clients import arriving, completed, completions, pieces
from foredraft.errors import OptionError
from foredraft.inputs import ChatOptions, Messages, Prompt, PromptOptions, as_prompts, is_conversation, tokens_of
from foredraft.kernels.choose import available_cores
from foredraft.loaded import EngineLoad, EngineOptions, LoadedModel
from foredraft.machine import processor_name
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.generation_defaults import GenerationDefaults
from foredraft.models.store import DEFAULT_MODEL
from foredraft.planner import AutoPlanner, Learned, Profile
from foredraft.sampling import SamplingParams
from foredraft.speculative_config import parse_speculative_config
from foredraft.text import Tokenizer
from foredraft.trace import Header, Sink, TraceWriter

Draft = str | Path | Drafter | DraftConfig

__all__ = ["LLM", "Chunk", "Completion", "DraftConfig", "Messages", "Prompt", "SamplingParams"]


class LLM:
    """A model that answers, with speculation where a drafter is given. May be used from several threads at once.

    model: a .gguf file, a safetensors folder, a hub id or a built-in name.
    draft: "auto", "none", a method such as "suffix", a model as above, a drafter of your own (see docs/drafters.md), a
    list of these; or a `DraftConfig`, instead of it and the five options that follow.
    num_draft_tokens, draft_vocab_size, num_draft_branches, draft_memory, acceptance: see `DraftConfig`.
    context_length: most tokens of a sequence; None: what the model was made for.
    threads: of the native kernels; None: all processors of this process. kernels: "native" or "reference".
    max_running: most sequences that are worked on at a time. max_batched_tokens: of one forward pass.
    kv_memory: size of the cache of keys and values, in bytes or as a text such as "2G"; None: by the free memory.
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
        max_running: int = EngineOptions.max_running,
        max_batched_tokens: int = EngineOptions.max_batched_tokens,
        kv_memory: int | str | None = None,
        speculative_config: str | Mapping[str, object] | None = None,
        trace: str | Path | Sink | None = None,
        profile: str | Path | Profile | None = None,
    ) -> None:
        _check_kind("the model", model, str | Path, "a file, a folder or a name")
        _check_kind("--profile", profile, str | Path | Profile | None, "a file or a Profile")
        _check_kind("--speculative-config", speculative_config, str | Mapping | None, "JSON text or a mapping")
        self._profile = Profile.read(profile) if isinstance(profile, str | Path) else profile
        config = as_config(draft, num_draft_tokens, draft_vocab_size, num_draft_branches, draft_memory, acceptance)
        if speculative_config is not None:
            if draft != "auto" or num_draft_tokens is not None:
                raise OptionError("--speculative-config cannot be combined with --draft or --num-draft-tokens")
            config = parse_speculative_config(speculative_config, config)
        elif self._profile is not None and config == DraftConfig(memory=draft_memory, acceptance=acceptance):
            config = self._profile.recommended_for(config)
        options = EngineOptions(
            context_length=context_length,
            threads=threads,
            kernels=kernels,
            max_running=max_running,
            max_batched_tokens=max_batched_tokens,
            kv_memory=kv_memory,
        )
        self._loaded = LoadedModel(model, options, self._profile)
        self._draft_with(config, trace)

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

        Both may run at the same time, step by step in turn; closing one closes the other.
        """
        other = copy.copy(self)
        other._profile = profile or self._profile
        other._draft_with(
            as_config(draft, num_draft_tokens, draft_vocab_size, num_draft_branches, draft_memory, acceptance), trace
        )
        return other

    def _draft_with(self, config: DraftConfig, trace: str | Path | Sink | None) -> None:
        """Set up all that depends on how is drafted."""
        if not callable(trace):
            _check_kind("--trace", trace, str | Path | None, "a file, or a function that takes the records")
        self.draft_config = config
        sink = TraceWriter(trace) if isinstance(trace, str | Path) else trace
        self._engine, self._planner = self._loaded.engine(
            config, context_length=self._loaded.context_length, profile=self._profile, trace=sink
        )
        if sink is not None:
            self._write_header(sink)

    def _write_header(self, sink: Sink) -> None:
        config = self.draft_config
        settings = {
            "draft": [Path(one).name if isinstance(one, str) else one.name for one in config.drafters],
            "num_draft_tokens": config.num_draft_tokens,
            "context_length": self.context_length,
            "acceptance": config.rule.name,
        }
        sink(
            Header(
                foredraft=__version__,
                model=self.name,
                tokenizer=self.tokenizer.fingerprint(),
                drafters=self._planner.names,
                settings=settings | self._loaded.settings,
                machine={"processor": processor_name(), "num_cores": available_cores()},
            )
        )

    @property
    def name(self) -> str:
        """Of the model's file or folder."""
        return self._loaded.name

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self._loaded.tokenizer

    @property
    def decoder(self) -> CachedDecoder:
        """The model itself. To run it by hand, keep the engine from doing so meanwhile: `exclusive`."""
        return self._loaded.decoder

    @property
    def num_threads(self) -> int:
        """Of the kernels."""
        return self._loaded.num_threads

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a conversation is written."""
        return self.tokenizer.chat_template is not None

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the drafters that may be asked."""
        return self._planner.names

    @property
    def learned(self) -> Mapping[str, Learned]:
        """What was found out about drafters so far, by their names; nothing where the plan is fixed."""
        return self._planner.learned if isinstance(self._planner, AutoPlanner) else {}

    @property
    def generation_defaults(self) -> GenerationDefaults:
        """How the makers of the model advise to sample (generation_config.json). Nothing of it is used by itself."""
        return self._loaded.generation_defaults

    def get_default_sampling_params(self, **given: Any) -> SamplingParams:
        """The makers' advice as parameters. given: fields that are to be something else."""
        return SamplingParams(**{**self.generation_defaults.sampling, **given})

    @property
    def calibration_key(self) -> Mapping[str, object]:
        """What the times of forward passes depend on: the model's file, kernels, threads, processor."""
        return self._loaded.calibration_key

    @property
    def context_length(self) -> int:
        """Most tokens of a sequence, prompt and output together."""
        return self._loaded.context_length

    @property
    def load(self) -> EngineLoad:
        """What all engines of the model, those `with_drafts` included, are doing at the moment."""
        return self._loaded.load

    @property
    def num_bytes(self) -> int:
        """Memory that the model takes, weights and cache, about; draft models besides are not counted."""
        return self._loaded.num_bytes

    def exclusive(self) -> Any:
        """A context in which the engine makes no step, except by this thread: for measurements on the model itself."""
        return self._loaded.loop.exclusive()

    def reset_prefix_cache(self) -> None:
        """Drop what is cached of completed prompts, which later ones that begin alike would not compute again."""
        with self.exclusive():
            self._engine.reset_prefix_cache()

    def close(self) -> None:
        """End what runs, also of others made `with_drafts`, and the thread that ran it. May be repeated."""
        self._loaded.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise OptionError("a loaded model cannot be pickled or copied: load it where it is wanted, or use with_drafts")

    def __copy__(self) -> Self:
        """For `with_drafts`: the loaded model is shared."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        parse_special: bool = False,
    ) -> list[Completion]:
        """Continue each prompt as it stands. Several prompts run together. Completions come in the order given.

        prompts: texts, lists of token ids, or mappings with "prompt" or "prompt_token_ids"; one of these, or a list.
        params: for all, or one for each prompt. parse_special: read special tokens that stand in a text as what they
        are, for hand-written chat formats and fill-in-the-middle; otherwise they are plain text.

        Raises OptionError for an empty prompt, ContextLengthError for one that does not fit.
        """
        given = as_prompts(prompts)
        tokens = [tokens_of(prompt, self.tokenizer, parse_special=parse_special) for prompt in given]
        several = _one_for_each(params, len(tokens))
        return self._run([outputs_for(self._engine, *pair) for pair in zip(tokens, several, strict=True)])

    def chat(
        self, messages: Messages, params: SamplingParams | None = None, **options: Unpack[ChatOptions]
    ) -> Completion:
        """Answer a conversation: messages with "role" and "content". Raises as `generate`, and without a template.

        options: `tools`, `chat_template`, `chat_template_kwargs`, `continue_final_message` and what else
        `Tokenizer.encode_chat` takes.
        """
        params = SamplingParams() if params is None else params
        [completion] = self._run([outputs_for(self._engine, self._encode_chat(messages, params, options), params)])
        return completion

    def stream(
        self, prompt: Prompt | Messages, params: SamplingParams | None = None, **options: Unpack[PromptOptions]
    ) -> Iterator[Chunk]:
        """Answer a prompt or a conversation piece by piece. Closing the iterator ends it.

        The pieces of a completion together are its text. Pieces of several completions (`n`) come as they are produced,
        each with its index; what `best_of` is to choose from cannot be streamed. Raises as `generate` and `chat`,
        before the first piece.
        """
        return pieces(self._loaded.loop, self._engine, self._submitted(prompt, params, options, streams=True))

    def astream(
        self, prompt: Prompt | Messages, params: SamplingParams | None = None, **options: Unpack[PromptOptions]
    ) -> AsyncGenerator[Chunk]:
        """As `stream`, for asyncio: the event loop is not kept waiting."""
        return arriving(self._loaded.loop, self._engine, self._submitted(prompt, params, options, streams=True))

    async def acomplete(
        self, prompt: Prompt | Messages, params: SamplingParams | None = None, **options: Unpack[PromptOptions]
    ) -> Completion:
        """As `generate` of one prompt, or `chat`, for asyncio. Cancelling the task that waits ends the completion."""
        submission = await asyncio.to_thread(self._submitted, prompt, params, options, streams=False)
        return await completed(self._loaded.loop, self._engine, submission)

    def stepwise(
        self, prompt: Prompt | Messages, params: SamplingParams | None = None, **options: Unpack[PromptOptions]
    ) -> Iterator[Chunk]:
        """As `stream`, but a step is made only when the next piece is asked for, in the thread that asks.

        For measurements. This object must do nothing else meanwhile; others `with_drafts` may.
        """
        submission = self._submitted(prompt, params, options, streams=True)
        return self._by_hand(submission)

    def _by_hand(self, submission: Submission) -> Iterator[Chunk]:
        with self.exclusive():
            for output in submission.outputs:
                self._engine.add(output)
        try:
            while not submission.is_over:
                with self.exclusive():
                    self._engine.step()
                    events = list(submission.news())
                for event in events:
                    if isinstance(event, Exception):
                        raise event
                    yield event
        finally:
            with contextlib.suppress(OptionError), self.exclusive():  # a closed model runs nothing
                for output in submission.outputs:
                    self._engine.cancel(output)

    def _submitted(
        self, prompt: Prompt | Messages, params: SamplingParams | None, options: PromptOptions, *, streams: bool
    ) -> Submission:
        params = SamplingParams() if params is None else params
        parse_special = options.pop("parse_special", False)
        if is_conversation(prompt):
            if parse_special:
                raise OptionError("special tokens are read in plain texts only (--raw): a template writes its own")
            ids = self._encode_chat(prompt, params, options)  # type: ignore[arg-type]
        else:
            if options:
                raise OptionError(f"{', '.join(options)}: for conversations only, and this is a plain text")
            several = as_prompts(prompt)
            if len(several) != 1:
                raise OptionError("this takes one prompt: begin one for each, or generate them together")
            ids = tokens_of(several[0], self.tokenizer, parse_special=parse_special)
        outputs = outputs_for(self._engine, ids, params)
        if streams and len(outputs) > params.n:
            raise OptionError("--best-of cannot be streamed: which completions are the best is known at the end")
        return self._submission(outputs, streams=streams)

    def _run(self, several: Sequence[Sequence[Output]]) -> list[Completion]:
        return completions(
            self._loaded.loop, self._engine, [self._submission(outputs, streams=False) for outputs in several]
        )

    def _submission(self, outputs: Sequence[Output], *, streams: bool) -> Submission:
        return Submission(outputs, self._completes(outputs), streams=streams)

    def _completes(self, outputs: Sequence[Output]) -> Callable[[], Completion]:
        methods, load_s, rule = self._planner.names, self._loaded.load_s, self.draft_config.rule
        return lambda: completion_of(outputs, methods=methods, load_s=load_s, rule=rule)

    def _encode_chat(self, messages: Messages, params: SamplingParams, options: ChatOptions) -> list[int]:
        if isinstance(params, SamplingParams) and params.echo:
            raise OptionError("--echo needs a plain text to continue (--raw): a conversation is not part of its answer")
        if not self.has_chat_template and options.get("chat_template") is None:
            raise OptionError("this model has no chat template: give a plain text to continue (--raw)")
        return self.tokenizer.encode_chat(messages, **options)


def _one_for_each(params: object, number: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * number
    if not isinstance(params, Sequence) or len(params) != number:
        raise OptionError(f"give one SamplingParams, or one for each of {number} prompts, got {repr(params)[:60]}")
    return list(params)


def _check_kind(what: str, value: object, kinds: Any, words: str) -> None:
    if not isinstance(value, kinds):
        raise OptionError(f"{what} must be {words}, got {repr(value)[:60]}")
