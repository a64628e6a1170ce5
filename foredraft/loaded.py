"""A model in memory with all that its ways of drafting share: weights, cache, tokenizer, and the loop that runs it."""

import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from foredraft import __version__
from foredraft.cache.capacity import num_positions, parse_memory
from foredraft.config import DraftConfig, check_integer
from foredraft.drafters import DraftContext, first_with_grammar, make_drafter, make_drafters, with_grammar
from foredraft.engine import MAX_BATCHED_TOKENS, MAX_RUNNING, Engine, EngineLoop
from foredraft.errors import OptionError
from foredraft.kernels.choose import available_cores, choose_kernels
from foredraft.kernels.operations import Kernels
from foredraft.machine import available_memory, processor_name
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.generation_defaults import GenerationDefaults, generation_defaults
from foredraft.models.load import exposing, load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import cache_folder, resolve
from foredraft.planner import CalibrationStore, FixedPlanner, Planner, Profile, make_auto_planner
from foredraft.planner.first_look import SAMPLE
from foredraft.target import ModelTarget
from foredraft.text import load_tokenizer
from foredraft.trace import Sink

MAX_THREADS = 1024
NUM_MEASURED_POSITIONS = 2048
"""Of a cache for measurements: 1024 cached tokens are the most that calibration looks behind."""


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """What an engine is made with besides the way of drafting, see `LLM`. Raises OptionError out of range."""

    context_length: int | None = None
    threads: int | None = None
    kernels: str = "native"
    max_running: int = MAX_RUNNING
    max_batched_tokens: int = MAX_BATCHED_TOKENS
    kv_memory: int | str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_integer("--threads", self.threads, least=1, most=MAX_THREADS)
        check_integer("--max-running", self.max_running, least=1, most=1024)
        check_integer("--max-batched-tokens", self.max_batched_tokens, least=16, most=65536)
        if self.kv_memory is not None:
            parse_memory(self.kv_memory)


@dataclass(frozen=True)
class EngineLoad:
    """How busy a model is. kv_cache_usage: part of the blocks of the cache that sequences hold, 0 to 1."""

    num_running: int
    num_waiting: int
    kv_cache_usage: float


class LoadedModel:
    """See above. Raises UserError subclasses for anything wrong with the model or the options."""

    def __init__(self, model: str | Path, options: EngineOptions, profile: Profile | None) -> None:
        started = time.perf_counter()
        self._options = options
        kernels = choose_kernels(options.kernels, threads=options.threads)
        source = open_model(resolve(model))
        self.name = source.path.name
        self.tokenizer = load_tokenizer(source.tokenizer_data)
        if profile is not None:
            profile.check(model=self.name, tokenizer=self.tokenizer.fingerprint())
        self.decoder = load_decoder(source, kernels=kernels)
        self.num_threads = options.threads or available_cores()
        self.calibration_key = _calibration_key(source.path, kernels, self.num_threads)
        self.context_length = self._size_cache()
        self.vocab_size = min(self.tokenizer.vocab_size, self.decoder.config.vocab_size)
        self.loop = EngineLoop()
        self._engines: weakref.WeakSet[Engine] = weakref.WeakSet()
        self.load_s = time.perf_counter() - started

    def _size_cache(self) -> int:
        """Make the cache as large as it is to be; returns the most tokens of a sequence."""
        options, longest = self._options, self.decoder.config.context_length
        if options.context_length is not None:
            why = " (what the model was made for)"
            check_integer("--context-length", options.context_length, least=2, most=longest, why=why)
            longest = options.context_length
        storage = self.decoder.cache.storage
        positions = num_positions(
            kv_memory=None if options.kv_memory is None else parse_memory(options.kv_memory),
            bytes_per_position=storage.num_bytes // self.decoder.cache.num_positions,
            context_length=longest,
            max_running=options.max_running,
            free_memory=available_memory(),
        )
        if options.context_length is not None and options.kv_memory is None:
            positions = max(positions, longest)  # it was asked for
        try:
            self.decoder.resize_cache(positions)
        except MemoryError:
            raise OptionError(
                f"there is no memory for a cache of {positions} tokens: give a smaller --kv-memory"
            ) from None
        return longest

    @cached_property
    def generation_defaults(self) -> GenerationDefaults:
        """How the makers of the model advise to sample. Raises ModelFileError for a file that is damaged."""
        source = self.decoder.source
        return GenerationDefaults() if source is None else generation_defaults(source.tokenizer_data)

    @property
    def settings(self) -> dict[str, object]:
        """What traces say of how the engine was made."""
        return {"threads": self.num_threads, "kernels": self._options.kernels}

    @property
    def load(self) -> EngineLoad:
        """At this moment; may be asked for in any thread."""
        engines = list(self._engines)
        pool = self.decoder.cache.pool
        return EngineLoad(
            num_running=sum(engine.num_running for engine in engines),
            num_waiting=sum(engine.num_waiting for engine in engines),
            kv_cache_usage=pool.num_used / pool.num_blocks,
        )

    @property
    def num_bytes(self) -> int:
        """Memory that weights and cache take, about; those of draft models are not counted."""
        source = self.decoder.source
        return (0 if source is None else source.num_bytes) + self.decoder.cache.storage.num_bytes

    def engine(
        self, config: DraftConfig, *, context_length: int, profile: Profile | None, trace: Sink | None
    ) -> tuple[Engine, Planner]:
        """An engine that drafts as the configuration says. Waits for the step of others that is under way."""
        with self.loop.exclusive():
            context = DraftContext(
                config=config,
                tokenizer=self.tokenizer,
                kernels=self.decoder.kernels,
                decoder=self.decoder,
                vocab_size=self.vocab_size,
            )
            planner, decoder, needs_features = self._planner(config, context, profile)
            engine = Engine(
                ModelTarget(decoder, self.vocab_size),
                planner,
                self.tokenizer,
                context_length=context_length,
                max_running=self._options.max_running,
                max_batched_tokens=self._options.max_batched_tokens,
                rule=config.rule,
                trace=trace,
                needs_prompt_features=needs_features,
            )
        self._engines.add(engine)
        return engine, planner

    def _planner(
        self, config: DraftConfig, context: DraftContext, profile: Profile | None
    ) -> tuple[Planner, CachedDecoder, bool]:
        """A fixed plan where a number was asked for or nothing is drafted, else one that goes by what pays.

        With it the decoder that shows the hidden states its drafters want, and whether those of whole prompts.
        """
        if config.num_draft_tokens is not None or config.is_plain:
            drafter, reason = make_drafter(config, context)
            if not config.is_plain:
                drafter = first_with_grammar(drafter)
            planner: Planner = FixedPlanner(drafter, config.num_draft_tokens or 0, reason=reason)
            return planner, exposing(self.decoder, drafter.spec.layers), drafter.spec.needs_prompt_features
        drafters = with_grammar(make_drafters(config, context))
        decoder = exposing(self.decoder, [layer for drafter in drafters for layer in drafter.spec.layers])
        store = CalibrationStore(cache_folder() / "calibration")
        planner = make_auto_planner(
            drafters,
            decoder.beside(NUM_MEASURED_POSITIONS),
            store,
            self.calibration_key,
            lambda: self.tokenizer.encode(SAMPLE),
            profile,
        )
        return planner, decoder, any(drafter.spec.needs_prompt_features for drafter in drafters)


def _calibration_key(path: Path, kernels: Kernels, threads: int) -> Mapping[str, object]:
    """All that the time of a forward pass depends on, but for what else the machine does."""
    status = path.stat()
    return {
        "foredraft": __version__,
        "model": [str(path.resolve()), status.st_size, status.st_mtime_ns],
        "kernels": [kernels.name, getattr(kernels, "isa", "")],
        "threads": threads,
        "processor": processor_name(),
    }
