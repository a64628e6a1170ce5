"""A cache too small for all: admission, preemption, cancelling; the texts stay the same, and no block is lost."""

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, run_to_the_end, submit, table_decoder

from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine
from foredraft.errors import ContextLengthError
from foredraft.kernels.batch import BLOCK_POSITIONS
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import DistDrafter, TableModel

V = 40
MODEL = TableModel(2, V, seed=6)
LENGTH = 96
"""Most tokens of a sequence here; a cache for three holds 18 blocks."""


def small_engine(
    num_sequences: int, *, max_running: int = 16, max_batched_tokens: int = 32
) -> tuple[Engine, CachedDecoder]:
    """An engine whose cache holds so many of the longest sequences, drafting by lookup and a model."""
    decoder, _ = table_decoder(MODEL, length=LENGTH)
    decoder.resize_cache(num_sequences * LENGTH)
    draft, _ = table_decoder(TableModel(2, V, seed=6, scale=1.3), length=LENGTH)
    drafter = FallbackDrafter([LookupDrafter(), ModelDrafter(draft, vocab_size=V)])
    return make_engine(decoder, drafter, max_running=max_running, max_batched_tokens=max_batched_tokens), decoder


def params_of(index: int) -> SamplingParams:
    return SamplingParams(max_tokens=40 + index, temperature=0.8 * (index % 2), seed=index, ignore_eos=True)


@pytest.mark.parametrize("seed", range(6))
def test_sixteen_sequences_over_a_cache_for_three(seed: int) -> None:
    """Kind: a sequence that was preempted goes on from keys of somebody else, or never."""
    random = np.random.default_rng(seed)
    engine, decoder = small_engine(3)
    prompts = [random.integers(V, size=random.integers(1, 24)).tolist() for _ in range(16)]
    prompts[5] = [*prompts[2][:17], *prompts[5][:20]]  # some begin alike
    outputs = [submit(engine, prompt, params_of(index)) for index, prompt in enumerate(prompts)]
    cancelled: set[int] = set()
    for _ in range(3000):
        if not engine.has_work:
            break
        engine.step()
        decoder.cache.pool.check_integrity()
        if random.random() < 0.01:
            index = int(random.integers(16))
            if not outputs[index].sequence.status.is_over:
                engine.cancel(outputs[index])
                cancelled.add(index)
                assert not outputs[index].sequence.blocks.blocks
    assert not engine.has_work
    assert sum(one.sequence.num_preemptions for one in outputs) > 0
    for index, (prompt, one) in enumerate(zip(prompts, outputs, strict=True)):
        expected = MODEL.generate(prompt, params_of(index), params_of(index).max_tokens or 0)
        if index in cancelled:
            assert one.sequence.status is Status.CANCELLED
            assert output(one) == expected[: len(output(one))]
        else:
            assert one.sequence.status is Status.FINISHED
            assert output(one) == expected
    assert decoder.cache.pool.num_used == 0


def test_the_first_that_came_is_never_preempted() -> None:
    """Kind: those that came later push out those before them, and nobody gets on."""
    engine, decoder = small_engine(1)
    outputs = [submit(engine, [index] * 10, SamplingParams(max_tokens=80, ignore_eos=True)) for index in range(4)]
    ended: list[int] = []
    while engine.has_work:
        engine.step()
        ended += [i for i, one in enumerate(outputs) if one.sequence.status.is_over and i not in ended]
    assert ended == [0, 1, 2, 3]
    assert outputs[0].sequence.num_preemptions == 0
    decoder.cache.pool.check_integrity()


def test_a_sequence_that_can_never_fit_is_refused() -> None:
    """Kind: a prompt that is larger than the cache waits for ever, and everybody behind it."""
    engine, decoder = small_engine(1)
    decoder.resize_cache(3 * BLOCK_POSITIONS)
    with pytest.raises(ContextLengthError, match="60 tokens and the cache holds 48: raise --kv-memory"):
        engine.prepare([1] * 60, SamplingParams())
    engine, decoder = small_engine(1)
    decoder.resize_cache(3 * BLOCK_POSITIONS)
    [one] = run(engine, [[1] * 30], SamplingParams(max_tokens=None, ignore_eos=True))
    assert len(output(one)) == 18
    assert one.sequence.finish_reason == "length"


def test_drafts_take_only_what_is_left() -> None:
    """Kind: the last block goes to a draft, and the sequence that needs it for its next token fails."""
    decoder, _ = table_decoder(MODEL, length=48)
    decoder.resize_cache(48)
    engine = make_engine(decoder, DistDrafter(MODEL, shape=(3, 3, 2)), num_draft_tokens=30)
    params = SamplingParams(max_tokens=None, ignore_eos=True)
    [one] = run(engine, [[1, 2, 3]], params)
    assert output(one) == MODEL.generate([1, 2, 3], params, 45)


def test_kept_prefixes_go_when_memory_is_wanted_the_oldest_first() -> None:
    """Kind: what is kept for later fills the cache, and new sequences wait for it; or the prefix in use goes first."""
    decoder, _ = table_decoder(MODEL, length=LENGTH)
    decoder.resize_cache(2 * LENGTH)
    engine = make_engine(decoder)
    params = SamplingParams(max_tokens=1, ignore_eos=True)
    for start in range(8):  # three blocks each, twelve in all
        run(engine, [[start, *range(39), *range(11)]], params)
    [recent] = run(engine, [[7, *range(39), *range(11)]], params)
    assert recent.sequence.num_cached_tokens == 48
    [oldest] = run(engine, [[0, *range(39), *range(11)]], params)
    assert oldest.sequence.num_cached_tokens == 0
    decoder.cache.pool.check_integrity()


def test_what_a_preempted_sequence_had_computed_does_not_count_as_found() -> None:
    """Kind: the prompt tokens reported as cached are those of the sequence itself, from before it was preempted."""
    engine, _ = small_engine(1)
    outputs = [submit(engine, [index] * 10, SamplingParams(max_tokens=80, ignore_eos=True)) for index in range(3)]
    run_to_the_end(engine)
    assert sum(one.sequence.num_preemptions for one in outputs) > 0
    assert [one.sequence.num_cached_tokens for one in outputs] == [0, 0, 0]


def test_a_drafter_is_told_of_every_token_once_however_often_it_is_computed() -> None:
    """Kind: features of a sequence that was computed anew are taken for those of new tokens."""
    told: dict[int, list[int]] = {}

    class Listening(LookupDrafter):
        def begin(self, sequence, features) -> None:  # type: ignore[no-untyped-def]
            told.setdefault(sequence.id, []).extend(range(features.start, features.start + features.num_tokens))

        def observe(self, sequences, outcomes) -> None:  # type: ignore[no-untyped-def]
            for sequence, outcome in zip(sequences, outcomes, strict=True):
                first = len(sequence.tokens) - 1 - _num_committed(sequence, outcome)
                told.setdefault(sequence.id, []).extend(range(first, len(sequence.tokens) - 1))

    decoder, _ = table_decoder(MODEL, length=LENGTH)
    decoder.resize_cache(LENGTH + 32)
    engine = make_engine(decoder, Listening(), max_batched_tokens=16)
    outputs = [submit(engine, [9 - i] * 30, SamplingParams(max_tokens=50, ignore_eos=True)) for i in range(3)]
    run_to_the_end(engine)
    assert sum(one.sequence.num_preemptions for one in outputs) > 0
    for one in outputs:
        assert told[one.sequence.id] == list(range(len(one.sequence.tokens) - 1))


def _num_committed(sequence, outcome) -> int:  # type: ignore[no-untyped-def]
    """The root and the accepted path, but for a last node that is the sequence's last token."""
    num_path = len(outcome.path)
    ends_in_path = num_path and sequence.tokens[-1] == outcome.tree.tokens[outcome.path[-1]]
    emitted_bonus = sequence.tokens[-1 - num_path - 1 : -1] == [
        outcome.tree.tokens[0],
        *(outcome.tree.tokens[node] for node in outcome.path),
    ]
    return 1 + num_path if emitted_bonus else num_path + (0 if ends_in_path else 1)


def test_what_was_found_is_remembered_however_often_there_is_no_room() -> None:
    """Kind: a sequence that waits for room a second time counts what it found at first as computed."""
    decoder, _ = table_decoder(MODEL, length=LENGTH)
    decoder.resize_cache(9 * BLOCK_POSITIONS)
    engine = make_engine(decoder)
    prompt = [index % V for index in range(33)]
    run(engine, [prompt], SamplingParams(max_tokens=1))
    longest = SamplingParams(max_tokens=60, ignore_eos=True)
    outputs = run(engine, [[7] * 30, [9] * 30, prompt], longest)
    assert outputs[2].sequence.num_preemptions > 0
    assert outputs[2].sequence.num_cached_tokens == 32
