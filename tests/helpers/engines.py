"""Engines on tiny models and on tables, to run any drafter on."""

import atexit
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.drafters.base import Drafter, Outcome
from foredraft.drafters.none import NoDrafter
from foredraft.engine import Engine, Request
from foredraft.kernels.batch import BLOCK_POSITIONS, Batch
from foredraft.kernels.native import NativeKernels
from foredraft.kernels.operations import Floats, Storage
from foredraft.kernels.reference import ReferenceKernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.planner import FixedPlanner
from foredraft.round import RoundRequest
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.text import Tokenizer, load_tokenizer
from foredraft.tree import Budget, DraftTree
from foredraft.verify import Verifier
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
    before: called before each pass. last_rows: the tokens that the last pass ran.
    """

    def __init__(self, model: TableModel) -> None:
        self.model = model
        self.num_passes = 0
        self.last_rows: list[int] = []
        self.before: Callable[[], None] = lambda: None

    def __call__(self, batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        self.num_passes += 1
        self.last_rows = batch.tokens_N.tolist()
        self.before()
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


class Checked:
    """Passes everything on to a drafter, and checks after each round that cache and tokens agree."""

    def __init__(self, drafter: Drafter) -> None:
        self.name, self.free = drafter.name, drafter.free
        self._drafter = drafter

    def propose(self, requests: Sequence[RoundRequest], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.check(requests)
        return self._drafter.propose(requests, budgets)

    def observe(self, requests: Sequence[RoundRequest], outcomes: Sequence[Outcome]) -> None:
        self.check(requests)
        self._drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        self._drafter.forget(request_id)

    @staticmethod
    def check(requests: Sequence[RoundRequest]) -> None:
        for request in requests:
            assert request.sequence.tokens == request.tokens[:-1]
            assert len(request.tokens) <= request.max_length


def make_engine(
    decoder: CachedDecoder,
    drafter: Drafter | None = None,
    *,
    num_draft_tokens: int = 4,
    context_length: int | None = None,
    tokenizer: Tokenizer | None = None,
    max_running: int = 8,
    rule: AcceptanceRule = COUPLED,
) -> Engine:
    """An engine that checks itself after each round."""
    tokenizer = tokenizer or tiny_tokenizer()
    return Engine(
        Verifier(decoder, min(decoder.config.vocab_size, tokenizer.vocab_size)),
        FixedPlanner(Checked(drafter or NoDrafter()), num_draft_tokens),
        tokenizer,
        context_length=context_length or decoder.config.context_length,
        max_running=max_running,
        rule=rule,
    )


def submit(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> Request:
    """A request in the queue."""
    request = engine.prepare(prompt, params)
    engine.submit(request)
    return request


def run(
    engine: Engine, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams]
) -> list[Request]:
    """All prompts together, to their ends."""
    several = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    requests = [submit(engine, prompt, own) for prompt, own in zip(prompts, several, strict=True)]
    while engine.has_work:
        engine.step()
    for request in requests:
        assert engine.advance(request)  # raises for one that failed
    return requests


def result(request: Request) -> tuple[object, ...]:
    """What must not depend on drafting: tokens, text, why it ended, usage, log-probabilities."""
    done = request.completion(methods=["x"], load_s=0.0)
    return done.token_ids, done.text, done.finish_reason, done.usage, done.choices, done.prompt_logprobs


def output(request: Request) -> list[int]:
    """The tokens produced."""
    return list(request.completion(methods=["x"], load_s=0.0).token_ids)
