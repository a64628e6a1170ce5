"""Drafts from a model: what they are, and that its cache follows the request."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.drafting import budgets, unspeculated
from helpers.engines import table_decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.drafters.model import ModelDrafter
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import Budget

V = 40
MODEL = TableModel(2, V, seed=2)


@dataclass
class View:
    tokens: list[int]
    id: int = 0
    num_prompt_tokens: int = 1
    params: SamplingParams = field(default_factory=lambda: SamplingParams(seed=0))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_drafts_are_what_the_model_says(seed: int) -> None:
    """Whatever is accepted or said instead, with rounds in which a request is not asked about, in any batch."""
    random = np.random.default_rng(seed)
    decoder, _ = table_decoder(MODEL, length=200)
    drafter = ModelDrafter(decoder, vocab_size=V)
    views = [
        View(
            random.integers(V, size=random.integers(1, 40)).tolist(),
            id=number,
            params=SamplingParams(
                seed=number, temperature=float(random.choice([0, 1])), top_k=int(random.choice([0, 3]))
            ),
        )
        for number in range(random.integers(1, 5))
    ]
    for _ in range(8):
        asked = [view for view in views if random.random() < 0.8]
        numbers = [int(random.integers(6)) for _ in asked]
        trees = drafter.propose(asked, budgets(*numbers))
        for view, budget, tree in zip(asked, numbers, trees, strict=True):
            assert tree.tokens == (view.tokens[-1], *MODEL.generate(view.tokens, view.params, budget))
            kept = int(random.integers(tree.num_nodes))
            view.tokens.extend(tree.tokens[1 : 1 + kept])
        for view in views:
            view.tokens.extend(random.integers(V, size=random.integers(1, 3)).tolist())
        drafter.observe(asked, unspeculated(asked))
    for view in views:
        drafter.forget(view.id)
        drafter.forget(view.id)
    assert decoder.cache.pool.num_used == 0


def test_confidence_is_the_probability() -> None:
    decoder, _ = table_decoder(MODEL)
    for temperature in (0.0, 0.5):
        params = SamplingParams(seed=3, temperature=temperature)
        [tree] = ModelDrafter(decoder, vocab_size=V).propose([View([1, 2, 3], params=params)], budgets(5))
        sequence = [1, 2, 3]
        for token, confidence in zip(tree.tokens[1:], tree.confidence[1:], strict=True):
            whole = SamplingParams(seed=3, temperature=temperature or 1.0)
            assert confidence == pytest.approx(MODEL.probs(sequence, whole)[token])
            sequence.append(token)


def test_a_chain_ends_before_an_unlikely_token() -> None:
    decoder, _ = table_decoder(MODEL)
    view = View([1, 2, 3])
    [whole] = ModelDrafter(decoder, vocab_size=V).propose([view], budgets(6))
    survival = [math.prod(whole.confidence[: node + 1]) for node in range(whole.num_nodes)]
    bound = survival[3]
    [cut] = ModelDrafter(decoder, vocab_size=V).propose([view], [Budget(6, min_survival=bound + 1e-9)])
    assert cut.tokens == whole.tokens[:3]
    [kept] = ModelDrafter(decoder, vocab_size=V).propose([view], [Budget(6, min_survival=bound - 1e-9)])
    assert kept.tokens == whole.tokens[:4]


def test_what_was_learned_of_the_drafter_decides_where_it_ends() -> None:
    decoder, _ = table_decoder(MODEL)
    view = View([1, 2, 3], params=SamplingParams(temperature=1.0, seed=5))
    for learned, drafted in [(1.0, 6), (0.5, 3), (0.1, 1)]:
        budget = Budget(6, min_survival=0.1, chance=lambda confidence, depth, learned=learned: learned)
        [tree] = ModelDrafter(decoder, vocab_size=V).propose([view], [budget])
        assert tree.num_draft_tokens == drafted


def test_one_pass_a_token_and_one_for_a_prompt() -> None:
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View(list(range(30)))
    [tree] = drafter.propose([view], budgets(3))
    assert forward.num_passes == 1 + 3
    # All accepted: the last token drafted was never run, so it rides along with the new root.
    view.tokens.extend([*tree.tokens[1:], 5])
    forward.num_passes = 0
    drafter.propose([view], budgets(3))
    assert forward.num_passes == 3
    # None accepted: only the root is new.
    view.tokens.append(6)
    forward.num_passes = 0
    drafter.propose([view], budgets(3))
    assert forward.num_passes == 3
    # Several requests share each pass.
    other = View([4, 5, 6], id=1)
    drafter.propose([other], budgets(1))
    view.tokens.append(7)
    other.tokens.append(7)
    forward.num_passes = 0
    drafter.propose([view, other], budgets(3, 2))
    assert forward.num_passes == 3


def test_placeholders_beyond_the_table_are_not_read() -> None:
    """Kind: ids that stand for something else than text reach the drafter's embedding."""
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V)
    strange, plain = View([1, V + 3, 2], id=0), View([1, 2], id=1)
    trees = drafter.propose([strange, plain], budgets(3, 3))
    assert [tree.num_draft_tokens for tree in trees] == [0, 3]
    assert forward.num_passes > 0
    assert drafter.propose([View([-1, 2], id=2)], budgets(3))[0].num_draft_tokens == 0


def test_only_shared_ids_are_proposed() -> None:
    decoder, _ = table_decoder(MODEL)
    params = SamplingParams(seed=1, temperature=3.0)
    [tree] = ModelDrafter(decoder, vocab_size=10).propose([View([1, 2], params=params)], budgets(40))
    assert max(tree.tokens) < 10


def test_the_context_of_the_model_is_its_limit() -> None:
    decoder, _ = table_decoder(MODEL, length=32)
    drafter = ModelDrafter(decoder, vocab_size=V)
    for length, drafted in [(20, 8), (26, 6), (31, 1), (32, 0), (33, 0), (100, 0)]:
        [tree] = drafter.propose([View([i % V for i in range(length)], id=length)], budgets(8))
        assert tree.num_draft_tokens == drafted
