"""The target: the usable part of a draft, its own token after a node, and chunks of prompts beside trees."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.drafting import View
from helpers.engines import table_decoder, tiny_tokenizer
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import ProcessorFactory, SamplingParams
from foredraft.target import NUM_LIKELIEST, Entry, ModelTarget, usable_part
from foredraft.testing import TableModel
from foredraft.tree import DraftTree

V = 40
MODEL = TableModel(2, V, seed=4)


def test_ids_outside_the_vocabulary_go_with_all_below_them() -> None:
    """Kind: an id equal to the vocabulary's size, or a padding -1, is looked up in the embedding."""
    tree = DraftTree((1, 2, -1, V, 5, 6, 7), (-1, 0, 0, 1, 2, 3, 1), (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4))
    kept = usable_part(tree, num_remaining=10, vocab_size=V)
    assert kept == DraftTree((1, 2, 7), (-1, 0, 1), (1, 0.9, 0.4))
    assert usable_part(DraftTree.chain(1, (2, V + 5, 3)), num_remaining=9, vocab_size=V) == DraftTree.chain(1, (2,))


def test_what_is_sound_stays_as_it_is() -> None:
    tree = DraftTree((1, 2, 3), (-1, 0, 0))
    assert usable_part(tree, num_remaining=2, vocab_size=V) is tree


def test_a_tree_beyond_its_budget_is_cut() -> None:
    tree = DraftTree((1, 2, 3, 4, 5), (-1, 0, 0, 1, 2))
    for budget in range(5):
        assert usable_part(tree, num_remaining=budget, vocab_size=V).tokens == (1, 2, 3, 4, 5)[: budget + 1]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(-2, V + 2)), max_size=20),
    st.integers(0, 12),
)
def test_any_tree_becomes_usable(nodes: list[tuple[int, int]], budget: int) -> None:
    tokens, parents = [3], [-1]
    for parent, token in nodes:
        parent %= len(tokens)
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    tree = DraftTree(tuple(tokens), tuple(parents))
    kept = usable_part(tree, num_remaining=budget, vocab_size=V)
    assert kept.tokens[0] == 3
    assert kept.num_draft_tokens <= budget
    assert all(0 <= token < V for token in kept.tokens)
    whole = {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(tree.num_nodes)}
    assert {tuple(kept.tokens[i] for i in kept.path(node)) for node in range(kept.num_nodes)} <= whole


def test_draws_from_another_vocabulary_are_refused() -> None:
    """Kind: tokens that do not exist here are left out of a distribution, and the rule that goes by it is biased."""
    tree = DraftTree((1, 2), (-1, 0), draft_probs=(None, np.full(V + 1, 1 / (V + 1))))
    with pytest.raises(ForedraftError, match=f"over the target's {V} tokens"):
        usable_part(tree, num_remaining=5, vocab_size=V)


# --- the target's own token -----------------------------------------------------------------------------------------


def target(vocab_size: int = V, *, model: TableModel = MODEL) -> ModelTarget:
    return ModelTarget(table_decoder(model)[0], vocab_size)


def asked(tokens: Sequence[int], params: SamplingParams, sample_index: int = 0) -> View:
    return View(list(tokens), params=params, sample_index=sample_index)


def test_the_targets_token_is_that_of_the_seed_and_position() -> None:
    tokens = [1, 2, 3]
    for params in (
        SamplingParams(seed=5),
        SamplingParams(seed=5, temperature=1.0),
        SamplingParams(seed=-2, temperature=0.7, top_k=5, top_p=0.9, min_p=0.05),
    ):
        for position in (3, 4, 1000):
            for sample_index, num_path in ((0, 0), (2, 1)):
                sequence = asked([*[0] * (position - 3), *tokens], params, sample_index)
                found = target().tokens(MODEL.logits(tokens), sequence, [4] * num_path)
                where = [*[0] * (position - 3 + num_path), *tokens]
                assert found[0] == MODEL.next_token(where, params, sample_index=sample_index)


def test_of_greedy_text_the_next_likeliest_tokens_are_told_as_well() -> None:
    """Kind: what options or noise have changed is taken for what the target finds likely."""
    logits = MODEL.logits([1, 2, 3])
    found = target().tokens(logits, asked([1, 2, 3], SamplingParams()), [])
    assert found == np.argsort(-logits, kind="stable")[:NUM_LIKELIEST].tolist()
    assert len(target().tokens(logits, asked([1, 2, 3], SamplingParams(seed=5, temperature=1.0)), [])) == 1
    biased = SamplingParams(seed=0, logit_bias={7: 100.0})
    sequence = asked([1, 2, 3], biased)
    sequence.processors = ProcessorFactory(tiny_tokenizer(), V).make(biased, (1, 2, 3), frozenset())
    assert target().tokens(logits, sequence, []) == [7]


def test_the_distribution_is_that_of_the_tokens_over_all_seeds() -> None:
    """Kind: rules that judge by probabilities judge by others than those that the target draws from."""
    params = SamplingParams(temperature=0.8, top_k=5, logit_bias={3: -100.0, 4: 2.0})
    factory = ProcessorFactory(tiny_tokenizer(), V)
    logits = MODEL.logits([1, 2])
    counts, whole = np.zeros(V), target()
    for seed in range(2000):
        sequence = asked([1, 2], replace(params, seed=seed))
        sequence.processors = factory.make(params, (1, 2), frozenset())
        counts[whole.tokens(logits, sequence, [])[0]] += 1
    probs = whole.probs(logits, sequence, [], params)
    assert probs.dtype == np.float64
    assert probs.sum() == pytest.approx(1.0)
    assert (probs > 0).sum() == 5
    assert probs[3] == 0.0
    np.testing.assert_allclose(counts / 2000, probs, atol=4 * 0.5 / np.sqrt(2000))


def test_options_that_leave_no_token_are_an_error() -> None:
    params = SamplingParams(seed=0)
    sequence = asked([1, 2], params)

    class Nothing:
        def apply(self, logits_V: np.ndarray, *_: object) -> np.ndarray:
            return np.full_like(logits_V, -np.inf)

    sequence.processors = Nothing()  # type: ignore[assignment]
    logits = MODEL.logits([1, 2])
    for ask in (lambda: target().tokens(logits, sequence, []), lambda: target().probs(logits, sequence, [], params)):
        with pytest.raises(OptionError, match="leave no token to choose"):
            ask()


# --- passes ---------------------------------------------------------------------------------------------------------


def test_padding_is_never_chosen() -> None:
    """Kind: logits of the padding behind the real tokens take part in the choice."""
    small = target(30)
    [logits] = small.forward([Entry(small.decoder.cache.open(), DraftTree.chain(1, (2, 3)))]).logits_NV
    assert logits.shape == (3, 30)


@pytest.mark.parametrize("num_tokens", [1, 2, 16, 17, 18, 40])
def test_a_prompt_in_chunks_beside_a_tree(num_tokens: int) -> None:
    """Kind: a chunk that shares its pass with a tree is computed elsewhere, or what is found in the cache is not."""
    whole = target()
    tokens = list(range(num_tokens))
    other = whole.decoder.cache.open()
    for turn in range(2):
        blocks = whole.decoder.cache.open()
        num_cached = blocks.reuse(tokens)
        assert num_cached == (turn and (num_tokens - 1) // 16 * 16)
        while len(blocks) < num_tokens - 1:
            root, *rest = tokens[len(blocks) : min(len(blocks) + 7, num_tokens - 1)]
            chunk, tree = DraftTree.chain(root, tuple(rest)), DraftTree((5, 6, 7), (-1, 0, 0))
            result = whole.forward([Entry(blocks, chunk, "none"), Entry(other, tree)])
            assert [len(rows) for rows in result.logits_NV] == [0, 3]
            for row, path in zip(result.logits_NV[1], ([5], [5, 6], [5, 7]), strict=True):
                np.testing.assert_array_equal(row, MODEL.logits(path))
            whole.commit(blocks, chunk, range(1, chunk.num_nodes))
        [logits] = whole.forward([Entry(blocks, DraftTree.chain(tokens[-1]))]).logits_NV
        np.testing.assert_array_equal(logits[0], MODEL.logits(tokens))
        blocks.publish(tokens)
        blocks.close()
