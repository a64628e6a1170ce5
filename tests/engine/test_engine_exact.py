"""Whatever is drafted, a sequence comes to the same tokens, text, end and usage."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.engines import (
    VOCAB_SIZE,
    make_engine,
    output,
    result,
    run,
    table_decoder,
    tiny_decoder,
    tiny_tokenizer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.tree import Budget, DraftTree

V = 40
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


def plain(
    model: TableModel, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams], **kwargs: object
) -> list:
    """Every sequence by itself, without drafts."""
    decoder, _ = table_decoder(model)
    return [run(make_engine(decoder, **kwargs), [prompt], own)[0] for prompt, own in zip(prompts, params, strict=True)]


class RandomTrees(Drafter):
    """Trees of random shape, some nodes right, some wrong, some not even in the vocabulary."""

    spec = DrafterSpec(name="random")

    def __init__(self, model: TableModel, seed: int) -> None:
        self._model = model
        self._random = np.random.default_rng(seed)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        return [self._tree(sequence, budget.num_tokens) for sequence, budget in zip(sequences, budgets, strict=True)]

    def _tree(self, sequence: SequenceView, budget: int) -> DraftTree:
        random = self._random
        tokens, parents, paths = [sequence.tokens[-1]], [-1], [[]]
        for _ in range(int(random.integers(budget + 3))):  # at times more than the budget
            parent = int(random.integers(len(tokens)))
            right = (
                self._model.next_token([*sequence.tokens, *paths[parent]], sequence.params)
                if (all(0 <= t < V for t in paths[parent]))
                else 0
            )
            token = int(random.choice([right, right, random.integers(V), -1, V, V + 5]))
            if (parent, token) not in set(zip(parents, tokens, strict=True)):
                tokens.append(token)
                parents.append(parent)
                paths.append([*paths[parent], token])
        return DraftTree(tuple(tokens), tuple(parents))


def drafter_of(kind: str, model: TableModel, outputs: list[list[int]], seed: int) -> Drafter:
    """Drafters by name; sequence ids of a new engine count from 0."""
    random = np.random.default_rng(seed)
    script = [random.integers(-1, V + 6, size=random.integers(6)).tolist() for _ in range(12)]
    scripted = ScriptedDrafter(script, obey_budget=False)
    beyond = {i: [*tokens, 1, 2, 3, 4, 5, 6, 7, 8] for i, tokens in enumerate(outputs)}
    return {
        "lookup": LookupDrafter,
        "scripted": lambda: scripted,
        "oracle": lambda: OracleDrafter(beyond),
        "wrong": lambda: WrongDrafter(model),
        "self": lambda: DistDrafter(model, (1,) * 8),
        "dist": lambda: DistDrafter(TableModel(2, V, seed=99), (1, 1, 1)),
        "wide": lambda: DistDrafter(model, (3, 2, 1)),
        "random": lambda: RandomTrees(model, seed),
        "fallback": lambda: FallbackDrafter([scripted, LookupDrafter(), DistDrafter(model)]),
    }[kind]()


KINDS = ["lookup", "scripted", "oracle", "wrong", "self", "dist", "wide", "random", "fallback"]


def random_params(random: np.random.Generator, text: str, tokens: Sequence[int]) -> SamplingParams:
    """Filters, seeds and ends; stops are cut from what the model says without them."""
    stops = []
    for _ in range(int(random.integers(3))):
        begin = int(random.integers(max(1, len(text))))
        stops.append(text[begin : begin + int(random.integers(1, 5))] or "x")
    max_tokens = int(random.choice([1, 2, 3, 17, 40]))
    others: dict[str, Any] = {
        "repetition_penalty": float(random.choice([0.8, 1.5])),
        "frequency_penalty": float(random.choice([-0.5, 1.0])),
        "presence_penalty": float(random.choice([-0.5, 1.0])),
        "dry_multiplier": 1.5,
        "typical_p": 0.6,
        "logit_bias": {int(token): float(random.choice([-100, 3])) for token in random.choice(tokens, size=2)},
        "bad_words": (chr(33 + int(random.integers(6))),),
        "min_tokens": int(random.integers(max_tokens + 1)),
        "include_stop_str_in_output": True,
        "logprobs": int(random.integers(4)),
    }
    chosen = [name for name in others if random.random() < 0.15]
    return SamplingParams(
        **{name: others[name] for name in chosen},
        max_tokens=max_tokens,
        temperature=float(random.choice([0, 0.1, 0.8, 1.0, 2.0])),
        top_k=int(random.choice([0, 0, 1, 5])),
        top_p=float(random.choice([1, 1, 0.7, 0.01])),
        min_p=float(random.choice([0, 0, 0.2])),
        seed=int(random.integers(1 << 40)),
        stop=tuple(stops) if random.random() < 0.4 else (),
        stop_token_ids=(int(random.choice(tokens)),) if random.random() < 0.3 else (),
        ignore_eos=bool(random.random() < 0.3),
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_changes_but_the_rounds(kind: str, seed: int) -> None:
    """Kind: text, end or usage differs when drafts are right, wrong, ragged, too long, branching or invalid ids,
    alone and in batches of unequal prompts, sampled and greedy, with every filter, stop and limit."""
    random = np.random.default_rng(seed)
    model = TableModel(2, V, seed=int(random.integers(100)), scale=float(random.choice([0.5, 2.0])))
    prompts = [random.integers(V, size=random.integers(1, 60)).tolist() for _ in range(random.integers(1, 10))]
    tokenizer = tiny_tokenizer(end_ids=(7,))
    free = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
    said = plain(model, prompts[:1], [free])[0]
    text = str(result(said)[1])
    params = [random_params(random, text, output(said)) for _ in prompts]
    expected = plain(model, prompts, params, tokenizer=tokenizer)

    decoder, _ = table_decoder(model)
    drafter = drafter_of(kind, model, [output(one) for one in expected], seed)
    engine = make_engine(
        decoder,
        drafter,
        num_draft_tokens=int(random.integers(1, 9)),
        tokenizer=tokenizer,
        max_running=int(random.integers(1, 9)),
        max_batched_tokens=int(random.choice([16, 40, 256])),
    )
    found = run(engine, prompts, params)
    assert [result(one) for one in found] == [result(one) for one in expected]
    assert decoder.cache.pool.num_used == 0


def model_drafter(kind: str, family: str) -> Drafter:
    if kind == "lookup":
        return LookupDrafter()
    itself = ModelDrafter(tiny_decoder(family), vocab_size=VOCAB_SIZE)
    other = ModelDrafter(tiny_decoder(family, seed=1), vocab_size=VOCAB_SIZE)
    unlike = ModelDrafter(tiny_decoder("llama" if family != "llama" else "qwen3", seed=2), vocab_size=VOCAB_SIZE)
    unsure = ModelDrafter(tiny_decoder(family, seed=3), vocab_size=VOCAB_SIZE)
    fallback = FallbackDrafter([LookupDrafter(), itself])
    return {"itself": itself, "other": other, "unlike": unlike, "unsure": unsure, "fallback": fallback}[kind]


TEXTS = ["the", "and the other one and the other one and the", "x" * 48, "a b c d", "in the end the rest was sand " * 4]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("kind", ["lookup", "itself", "other", "unlike", "unsure", "fallback"])
def test_real_decoders_say_the_same(family: str, kind: str) -> None:
    """Kind: as above with keys and values, a sliding window among them, and a prompt that only repeats a word; computed
    in chunks beside what runs, and taken from the prefix cache."""
    target = tiny_decoder(family)
    prompts = [tiny_tokenizer().encode(text) for text in TEXTS]
    params = [
        SamplingParams(max_tokens=30, temperature=t, seed=seed, top_k=k, top_p=p, ignore_eos=True)
        for t, seed, k, p in [(0, 1, 0, 1.0), (0.8, 2, 0, 1.0), (0.8, 3, 20, 1.0), (1.0, 4, 0, 0.9), (0, 5, 0, 1.0)]
    ]
    expected = [result(run(make_engine(target), [p], own)[0]) for p, own in zip(prompts, params, strict=True)]
    for num_draft_tokens, max_batched_tokens in ((1, 256), (3, 16), (8, 50)):
        target.cache.pool.reset()
        engine = make_engine(
            target,
            model_drafter(kind, family),
            num_draft_tokens=num_draft_tokens,
            max_batched_tokens=max_batched_tokens,
        )
        assert [result(one) for one in run(engine, prompts, params)] == expected
        one_by_one = [result(run(engine, [p], own)[0]) for p, own in zip(prompts, params, strict=True)]
        assert one_by_one == expected


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_model_that_drafts_for_itself_is_always_right(temperature: float) -> None:
    """Kind: the drafter's cache falls behind, or loses a token after full acceptance, so that acceptance decays."""
    target, draft = (tiny_decoder("llama", length=1024) for _ in range(2))
    params = SamplingParams(max_tokens=500, temperature=temperature, seed=4, ignore_eos=True)
    for num_draft_tokens in (1, 3, 7):
        engine = make_engine(target, ModelDrafter(draft, vocab_size=VOCAB_SIZE), num_draft_tokens=num_draft_tokens)
        [one] = run(engine, [PROMPT], params)
        assert one.counts.num_draft_tokens == one.counts.num_accepted_tokens > 0
        assert one.counts.num_rounds == -(-500 // (num_draft_tokens + 1))
        assert draft.cache.pool.num_used == 0


def test_batches_with_and_without_seeds() -> None:
    """Kind: sequences with a seed change when others beside them have none."""
    model = TableModel(2, V, seed=3)
    decoder, _ = table_decoder(model)
    seeds = [0, None, 1, None]
    for temperature in (0.0, 0.1, 1.0):
        params = [SamplingParams(max_tokens=12, temperature=temperature, seed=seed, ignore_eos=True) for seed in seeds]
        alone = [output(run(make_engine(decoder), [PROMPT], own)[0]) for own in params]
        together = [output(one) for one in run(make_engine(decoder, LookupDrafter()), [PROMPT] * 4, params)]
        for seed, one, other in zip(seeds, alone, together, strict=True):
            assert one == other or (seed is None and temperature > 0)


def test_every_marker_stays_with_its_sequence() -> None:
    """Kind: rows of sequences are mixed up when drafts are ragged: one's tokens appear in another."""
    model = TableModel(1, V, one_hot=True)  # a walk that depends on the last token alone
    prompts = [[token] * (1 + token % 5) for token in range(32)]
    expected = [model.generate(prompt, SamplingParams(seed=0), 20) for prompt in prompts]
    script = {i: [tokens[3 * r : 3 * r + (i + r) % 4] for r in range(7)] for i, tokens in enumerate(expected)}
    for max_running in (1, 2, 8, 32):
        decoder, _ = table_decoder(model)
        engine = make_engine(decoder, ScriptedDrafter(script), max_running=max_running)
        params = SamplingParams(max_tokens=20, ignore_eos=True)
        assert [output(one) for one in run(engine, prompts, params)] == expected


def test_a_longest_draft_with_a_single_place() -> None:
    """Kind: an engine for one sequence fails when the draft is longer than the number of sequences."""
    model = TableModel(2, V)
    decoder, _ = table_decoder(model)
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    engine = make_engine(decoder, DistDrafter(model, (1,) * 8), num_draft_tokens=8, max_running=1)
    several = run(engine, [PROMPT, PROMPT[:3]], params)
    assert [output(one) for one in several] == [model.generate(p, params.with_seed(), 30) for p in (PROMPT, PROMPT[:3])]
    assert all(one.counts.num_rounds == 4 for one in several)  # 9 + 9 + 9 + 3 tokens


def test_the_noise_of_neighbouring_positions_is_unrelated() -> None:
    """Kind: all tokens of a round share their random numbers."""
    model = TableModel(1, 2, scale=0.0)  # a fair coin, whatever came before
    decoder, _ = table_decoder(model)
    engine: Engine = make_engine(decoder, DistDrafter(model, (1,) * 7), num_draft_tokens=7)
    params = [SamplingParams(max_tokens=240, temperature=1.0, seed=seed, ignore_eos=True) for seed in range(16)]
    throws = np.array([output(one) for one in run(engine, [[0]] * 16, params)]) * 2.0 - 1.0
    bound = 4 / np.sqrt(throws.size)
    assert abs(throws.mean()) < bound
    for lag in range(1, 9):
        assert abs((throws[:, lag:] * throws[:, :-lag]).mean()) < bound
    assert abs((throws[:-1] * throws[1:]).mean()) < bound  # nor those of neighbouring seeds


def test_only_the_nucleus_is_emitted() -> None:
    """Kind: filters apply when sampling but not when a draft is judged."""
    model = TableModel(2, V, seed=8)
    decoder, _ = table_decoder(model)
    params = SamplingParams(max_tokens=200, temperature=1.0, top_p=0.3, seed=5, ignore_eos=True)
    [one] = run(make_engine(decoder, RandomTrees(model, 1)), [PROMPT], params)
    tokens = [*PROMPT, *output(one)]
    for place in range(len(PROMPT), len(tokens)):
        assert model.probs(tokens[:place], params)[tokens[place]] > 0
    greedy = SamplingParams(max_tokens=200, ignore_eos=True)
    one = SamplingParams(max_tokens=200, temperature=1.0, top_k=1, seed=5, ignore_eos=True)
    outputs = [output(run(make_engine(decoder, DistDrafter(model)), [PROMPT], p)[0]) for p in (greedy, one)]
    assert outputs[0] == outputs[1]
