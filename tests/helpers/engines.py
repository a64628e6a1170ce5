"""Engines on tiny models and on tables, to run any drafter on."""

import atexit
import functools
import tempfile
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from dataclasses import replace
from pathlib import Path

import numpy as np

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.drafters.base import Drafter, Outcome, PromptFeatures, SequenceView
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.engine import Completion, Engine, Output, Submission, completion_of
from foredraft.kernels.batch import BLOCK_POSITIONS, Batch
from foredraft.kernels.native import NativeKernels
from foredraft.kernels.operations import Floats, Storage
from foredraft.kernels.reference import ReferenceKernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.planner import FixedPlanner
from foredraft.sampling import SamplingParams
from foredraft.sequence import Sequence, Status
from foredraft.target import ModelTarget
from foredraft.testing import TableModel
from foredraft.text import Tokenizer, load_tokenizer
from foredraft.trace import Sink
from foredraft.tree import Budget, DraftTree
from helpers.tiny import TinyModel

VOCAB_SIZE = 275
"""Real tokens of a tiny model; its tables are longer."""
_K_QUANT_SIZES = {"width": 256, "ffn_width": 256, "head_width": 64}


@functools.cache
def _folder() -> Path:
    folder = tempfile.TemporaryDirectory(prefix="foredraft-tiny-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


@functools.cache
def tiny_file(
    family: str = "llama", format: str = "F32", *, seed: int = 0, context_length: int = 256, **sizes: int
) -> Path:
    """A GGUF file of a tiny model, the same one for the same arguments; `sizes` are fields of TinyModel."""
    sizes = (_K_QUANT_SIZES if format.endswith("_K") else {}) | sizes
    model = TinyModel(family=family, seed=seed, context_length=context_length, **sizes)
    parts = [family, format, seed, context_length, *(f"{name}{size}" for name, size in sizes.items())]
    return model.write_gguf(_folder() / ("-".join(map(str, parts)) + ".gguf"), format=format)


@functools.cache
def native_kernels(threads: int = 2, isa: str = "") -> NativeKernels:
    """Kernels that tests share: each set has a pool of threads."""
    return NativeKernels(threads, isa)


def tiny_decoder(
    family: str = "llama", format: str = "F32", *, threads: int = 2, isa: str = "", seed: int = 0, length: int = 256
) -> CachedDecoder:
    """A decoder of its own, with an empty cache."""
    path = tiny_file(family, format, seed=seed, context_length=length)
    return load_decoder(path, kernels=native_kernels(threads, isa))


@functools.cache
def tiny_tokenizer(*, end_ids: tuple[int, ...] | None = None) -> Tokenizer:
    """The tokenizer of tiny models; `end_ids` replaces the tokens that end a text."""
    tokenizer = load_tokenizer(open_model(tiny_file()).tokenizer_data)
    return tokenizer if end_ids is None else replace(tokenizer, eos_ids=frozenset(end_ids))


class TableForward:
    """A forward pass whose logits come from a table, and depend on what the cache really holds.

    Keys hold token ids and values hold positions. What a row sees is read back from the slots it is told to look in,
    so a slot that was moved wrongly, reused or never written changes the logits or fails at once.
    before: called before each pass, whose tokens are then upcoming_rows, at upcoming_positions. last_rows: those of the
    last pass.
    """

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.num_passes = 0
        self.last_rows: list[int] = []
        self.upcoming_rows: list[int] = []
        self.upcoming_positions: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def __call__(self, batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        self.num_passes += 1
        self.upcoming_rows = batch.tokens_N.tolist()
        self.upcoming_positions = batch.positions_N.tolist()
        self.before()
        self.last_rows = self.upcoming_rows
        blocks, places = np.divmod(batch.slots_N, BLOCK_POSITIONS)
        storage.keys[0, blocks, 0, 0, places] = batch.tokens_N
        storage.values[0, blocks, 0, places, 0] = batch.positions_N
        rows = [self._row(batch, storage, int(row)) for row in batch.selected_rows]
        return {"logits": np.array(rows, np.float32).reshape(len(rows), self.model.vocab_size)}

    def _row(self, batch: Batch, storage: Storage, row: int) -> Floats:
        request = batch.requests_N[row]
        table = batch.block_tables[batch.table_offsets[request] : batch.table_offsets[request + 1]]
        prefix = np.arange(batch.prefix_lengths_N[row])
        cached = table[prefix // BLOCK_POSITIONS] * BLOCK_POSITIONS + prefix % BLOCK_POSITIONS
        tail = batch.tail_slots[batch.tail_offsets[row] : batch.tail_offsets[row + 1]]
        blocks, places = np.divmod(np.concatenate([cached, tail]), BLOCK_POSITIONS)
        positions = storage.values[0, blocks, 0, places, 0]
        assert positions.tolist() == list(range(batch.positions_N[row] + 1))
        return self.model.logits(storage.keys[0, blocks, 0, 0, places].astype(int).tolist())


def table_decoder(model: TableModel, *, length: int = 256) -> tuple[CachedDecoder, TableForward]:
    """The real cache and layout around a table."""
    config = replace(
        open_model(tiny_file()).config,
        num_layers=1,
        num_kv_heads=1,
        head_width=16,
        vocab_size=model.vocab_size,
        context_length=length,
    )
    forward = TableForward(model)
    return CachedDecoder(config, forward, ReferenceKernels()), forward


class Checked(DelegatingDrafter):
    """Passes everything on to a drafter, and checks that it is told of no token twice or before it is cached."""

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self._num_told: dict[int, int] = {}
        self._ended: set[int] = set()

    def propose(self, sequences: Several[SequenceView], budgets: Several[Budget]) -> list[DraftTree]:
        for sequence in sequences:
            self._check(sequence)
        return super().propose(sequences, budgets)

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        assert isinstance(sequence, Sequence)
        assert sequence.num_computed_tokens == features.start + features.num_tokens < len(sequence.tokens)
        self._tell(sequence, features.num_tokens)
        super().begin(sequence, features)

    def observe(self, sequences: Several[SequenceView], outcomes: Several[Outcome]) -> None:
        for sequence, outcome in zip(sequences, outcomes, strict=True):
            self._tell(self._check(sequence), max(1, len(outcome.path)))
        super().observe(sequences, outcomes)

    def end(self, sequence_id: int) -> None:
        assert sequence_id not in self._ended
        self._ended.add(sequence_id)
        super().end(sequence_id)

    @staticmethod
    def _check(sequence: SequenceView) -> Sequence:
        assert isinstance(sequence, Sequence)
        assert sequence.num_computed_tokens == len(sequence.tokens) - 1
        assert len(sequence.tokens) <= sequence.max_length
        return sequence

    def _tell(self, sequence: Sequence, least: int) -> None:
        """At least so many new tokens of the sequence were computed."""
        assert sequence.id not in self._ended
        assert self._num_told.get(sequence.id, 0) + least <= sequence.num_computed_tokens
        self._num_told[sequence.id] = sequence.num_computed_tokens


def make_engine(
    decoder: CachedDecoder,
    drafter: Drafter | None = None,
    *,
    num_draft_tokens: int = 4,
    context_length: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_running: int = 8,
    max_batched_tokens: int = 256,
    rule: AcceptanceRule = COUPLED,
    trace: Sink | None = None,
) -> Engine:
    """An engine that checks itself after each round."""
    tokenizer = tokenizer or tiny_tokenizer()
    drafter = Checked(drafter or NoDrafter())
    return Engine(
        ModelTarget(decoder, min(decoder.config.vocab_size, tokenizer.vocab_size)),
        FixedPlanner(drafter, num_draft_tokens),
        tokenizer,
        context_length=context_length or decoder.config.context_length,
        max_running=max_running,
        max_batched_tokens=max_batched_tokens,
        rule=rule,
        trace=trace,
        needs_prompt_features=drafter.spec.needs_prompt_features,
    )


def submit(engine: Engine, prompt: Several[int], params: SamplingParams) -> Output:
    """A sequence in the queue."""
    output = engine.prepare(prompt, params)
    engine.add(output)
    return output


def run_to_the_end(engine: Engine) -> None:
    """Step until nothing is left to do."""
    while engine.has_work:
        engine.step()


def run(
    engine: Engine, prompts: Several[Several[int]], params: SamplingParams | Several[SamplingParams]
) -> list[Output]:
    """All prompts together, to their ends. Raises the error of the first that failed."""
    several = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    outputs = [submit(engine, prompt, own) for prompt, own in zip(prompts, several, strict=True)]
    run_to_the_end(engine)
    for one in outputs:
        if one.sequence.error is not None:
            raise one.sequence.error
        assert one.sequence.status is Status.FINISHED
    return outputs


def completion(one: Output, *, methods: Several[str] = ("x",), load_s: float = 0.0) -> Completion:
    """Of a prompt with a single completion."""
    return completion_of([one], methods=methods, load_s=load_s)


def submission(outputs: Several[Output], *, streams: bool = True) -> Submission:
    """The completions of one prompt, as a client holds them."""
    return Submission(outputs, lambda: completion_of(outputs, methods=["x"], load_s=0.0), streams=streams)


def result(one: Output) -> tuple[object, ...]:
    """What must not depend on drafting: tokens, text, why it ended, usage, log-probabilities."""
    done = completion(one)
    return done.token_ids, done.text, done.finish_reason, done.usage, done.choices, done.prompt_logprobs


def output(one: Output) -> list[int]:
    """The tokens produced."""
    return list(one.token_ids)
