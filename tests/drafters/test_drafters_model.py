"""Drafts from a model: what they are, and that its cache follows the sequence."""

import math
from collections.abc import Mapping

import numpy as np
import pytest
from helpers.drafting import View
from helpers.engines import TableForward, make_engine, output, run, table_decoder
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.drafters.base import Outcome
from foredraft.drafters.model import ModelDrafter
from foredraft.kernels.batch import Batch
from foredraft.kernels.operations import Floats, Storage
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import Budget, DraftTree

V = 40
MODEL = TableModel(2, V, seed=2)
WHOLE = TableModel(1000, V, seed=2)
"""What it says depends on all of the text, so nothing in the cache may be wrong."""


def one(drafter: ModelDrafter, view: View, budget: int | Budget) -> DraftTree:
    [tree] = drafter.propose([view], [Budget(budget) if isinstance(budget, int) else budget])
    return tree


def nothing_seen(tree: DraftTree) -> Outcome:
    return Outcome(tree, (), np.zeros((tree.num_nodes, V), np.float32))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1))
def test_drafts_are_what_the_model_says(seed: int) -> None:
    """Whatever is accepted or said instead, with rounds in which a sequence is not asked about, in any batch."""
    random = np.random.default_rng(seed)
    decoder, _ = table_decoder(WHOLE, length=200)
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
        budgets = [int(random.integers(6)) for _ in asked]
        trees = drafter.propose(asked, [Budget(budget) for budget in budgets])
        for view, budget, tree in zip(asked, budgets, trees, strict=True):
            assert tree.tokens == (view.tokens[-1], *WHOLE.generate(view.tokens, view.params, budget))
            kept = int(random.integers(tree.num_nodes))
            view.tokens.extend(tree.tokens[1 : 1 + kept])
        for view in views:
            view.tokens.extend(random.integers(V, size=random.integers(1, 3)).tolist())
        drafter.observe(asked, [nothing_seen(tree) for tree in trees])
    for view in views:
        drafter.end(view.id)
        drafter.end(view.id)
    assert decoder.cache.pool.num_used == 0


def test_confidence_is_the_probability() -> None:
    decoder, _ = table_decoder(MODEL)
    tree = one(ModelDrafter(decoder, vocab_size=V), View([1, 2, 3]), 5)
    sequence = [1, 2, 3]
    for token, confidence in zip(tree.tokens[1:], tree.confidence[1:], strict=True):
        assert confidence == pytest.approx(MODEL.probs(sequence, SamplingParams(temperature=1.0))[token])
        sequence.append(token)


def test_a_chain_ends_with_an_unlikely_token() -> None:
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View([1, 2, 3])
    whole = one(drafter, view, 6)
    survival = [math.prod(whole.confidence[: node + 1]) for node in range(whole.num_nodes)]
    for bound, kept in [(survival[3] + 1e-9, 3), (survival[3] - 1e-9, 4), (1.0, 1)]:
        forward.num_passes = 0
        assert one(drafter, view, Budget(6, min_survival=bound)).tokens == whole.tokens[: kept + 1]
        assert forward.num_passes == kept  # no pass for a token that is then not proposed


def test_what_was_learned_of_the_drafter_counts_instead_of_its_word() -> None:
    decoder, _ = table_decoder(MODEL)
    asked: list[tuple[float, int]] = []

    def chance(confidence: float, depth: int) -> float:
        asked.append((confidence, depth))
        return 0.9

    tree = one(ModelDrafter(decoder, vocab_size=V), View([1, 2, 3]), Budget(6, 0.9**3 - 1e-9, chance))
    assert tree.num_draft_tokens == 4
    assert [depth for _, depth in asked] == [1, 2, 3, 4]
    assert [confidence for confidence, _ in asked] == list(tree.confidence[1:])


def test_one_pass_a_token_and_one_for_a_prompt() -> None:
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V)
    view = View(list(range(30)))
    assert drafter.num_uncached_tokens(view) == 29
    tree = one(drafter, view, 3)
    assert forward.num_passes == 1 + 3
    # All accepted: the last token drafted was never run, so it rides along with the new root.
    view.tokens.extend([*tree.tokens[1:], 5])
    assert drafter.num_uncached_tokens(view) == 1
    forward.num_passes = 0
    one(drafter, view, 3)
    assert forward.num_passes == 3
    # None accepted: only the root is new.
    view.tokens.append(6)
    assert drafter.num_uncached_tokens(view) == 0
    forward.num_passes = 0
    one(drafter, view, 3)
    assert forward.num_passes == 3
    # Several sequences share each pass.
    other = View([4, 5, 6], id=1)
    one(drafter, other, 1)
    view.tokens.append(7)
    other.tokens.append(7)
    forward.num_passes = 0
    drafter.propose([view, other], [Budget(3), Budget(2)])
    assert forward.num_passes == 3


def test_placeholders_beyond_the_table_are_not_computed() -> None:
    """Kind: ids that stand for something else than text reach the drafter's embedding."""
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V)
    strange, plain = View([1, V + 3, 2], id=0), View([1, 2], id=1)
    trees = drafter.propose([strange, plain], [Budget(3), Budget(3)])
    assert [tree.num_draft_tokens for tree in trees] == [0, 3]
    assert forward.num_passes > 0
    assert one(drafter, View([-1, 2], id=2), 3).num_draft_tokens == 0


def test_only_shared_ids_are_proposed() -> None:
    decoder, _ = table_decoder(MODEL)
    params = SamplingParams(seed=1, temperature=3.0)
    tree = one(ModelDrafter(decoder, vocab_size=10), View([1, 2], params=params), 40)
    assert max(tree.tokens) < 10


def test_the_context_of_the_model_is_its_limit() -> None:
    decoder, _ = table_decoder(MODEL, length=32)
    drafter = ModelDrafter(decoder, vocab_size=V)
    for length, drafted in [(20, 8), (26, 6), (31, 1), (32, 0), (33, 0), (100, 0)]:
        assert one(drafter, View([i % V for i in range(length)], id=length), 8).num_draft_tokens == drafted


def test_no_budget_no_pass() -> None:
    decoder, forward = table_decoder(MODEL)
    assert one(ModelDrafter(decoder, vocab_size=V), View([1, 2, 3]), 0).num_draft_tokens == 0
    assert forward.num_passes == 0


def test_nothing_is_drafted_beyond_an_end_token() -> None:
    decoder, forward = table_decoder(MODEL)
    text = MODEL.generate([1, 2, 3], SamplingParams(), 8)
    end = text[3]
    drafter = ModelDrafter(decoder, vocab_size=V, end_ids=frozenset({end}))
    before = text.index(end) + 1
    assert one(drafter, View([1, 2, 3]), 8).tokens[1:] == tuple(text[:before])
    assert forward.num_passes == 1 + before  # the prompt, and one for each token
    going_on = View([1, 2, 3], id=1, params=SamplingParams(ignore_eos=True))
    assert one(drafter, going_on, 8).tokens[1:] == tuple(text)
    stopped = View([1, 2, 3], id=2, params=SamplingParams(ignore_eos=True, stop_token_ids=(text[1],)))
    assert one(drafter, stopped, 8).tokens[1:] == tuple(text[: text.index(text[1]) + 1])


class Broken(TableForward):
    """Logits that are not numbers after some token."""

    bad_token, bad_value = 7, math.nan

    def _row(self, batch, storage, row):  # type: ignore[no-untyped-def]
        logits = super()._row(batch, storage, row)
        return np.full_like(logits, self.bad_value) if batch.tokens_N[row] == self.bad_token else logits


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_numbers_end_the_drafts_of_one_sequence(
    value: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Kind: a drafter that overflows takes the completion down with it."""
    healthy, _ = table_decoder(MODEL)
    forward = Broken(MODEL)
    forward.bad_value = value
    decoder = CachedDecoder(healthy.config, forward, healthy.kernels)
    drafter = ModelDrafter(decoder, vocab_size=V, name="model:broken")
    ill, well = View([1, 2, 7], id=1), View([1, 2, 3], id=2)
    trees = drafter.propose([ill, well], [Budget(2), Budget(2)])
    assert [tree.num_draft_tokens for tree in trees] == [0, 2]
    assert drafter.num_given_up == 1
    assert "model:broken" in drafter.problem
    ill.tokens.append(3)
    assert drafter.num_uncached_tokens(ill) == 0
    forward.num_passes = 0
    drafter.prefill(ill, 10)
    assert one(drafter, ill, 3).num_draft_tokens == 0
    assert forward.num_passes == 0
    assert one(drafter, View([4, 7], id=3), 3).num_draft_tokens == 0
    assert drafter.num_given_up == 2
    assert len(caplog.records) == 1  # said once
    for sequence_id in (1, 2, 3):
        drafter.end(sequence_id)
    assert decoder.cache.pool.num_used == 0
    assert not drafter._given_up


def test_what_a_broken_model_has_computed_is_not_found_again() -> None:
    healthy, _ = table_decoder(MODEL)
    decoder = CachedDecoder(healthy.config, Broken(MODEL), healthy.kernels)
    drafter, view = ModelDrafter(decoder, vocab_size=V), View([*[1, 2] * 50, 7])
    assert one(drafter, view, 3).num_draft_tokens == 0
    drafter.end(view.id)
    assert decoder.cache.open().reuse(view.tokens) == 0


def test_nothing_is_to_be_prefilled_of_a_text_that_is_too_long() -> None:
    """Kind: one long sequence among others, and what its prefill would take keeps the model from all of them."""
    decoder, _ = table_decoder(MODEL, length=16)
    drafter = ModelDrafter(decoder, vocab_size=V)
    assert drafter.num_uncached_tokens(View([1] * 15)) == 14
    assert drafter.num_uncached_tokens(View([1] * 16, id=1)) == 0
    assert drafter.num_uncached_tokens(View([1, V, 2], id=2)) == 0  # the model has no such token


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("num_branches", [1, 3])
def test_a_draft_model_with_a_shorter_context_stops_there(temperature: float, num_branches: int) -> None:
    """Kind: past the drafter's context the completion is cut, or the program ends."""
    params = SamplingParams(max_tokens=80, temperature=temperature, seed=1, ignore_eos=True)
    prompt = [i % V for i in range(20)]
    target, _ = table_decoder(MODEL, length=128)
    draft, forward = table_decoder(MODEL, length=32)
    positions: list[int] = []
    inner = forward.__call__

    def watched(batch: Batch, storage: Storage) -> Mapping[str, Floats]:
        positions.extend(batch.positions_N.tolist())
        return inner(batch, storage)

    decoder = CachedDecoder(draft.config, watched, draft.kernels)
    drafter = ModelDrafter(decoder, vocab_size=V, num_branches=num_branches)
    [done] = run(make_engine(target, drafter, num_draft_tokens=4), [prompt], params)
    assert output(done) == MODEL.generate(prompt, params, 80)
    assert max(positions) < 32
    assert done.counts.num_draft_tokens > 0
