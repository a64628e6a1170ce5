"""Verification: the usable part of a draft, the target's own token, and what a prompt leaves in the cache."""

from dataclasses import dataclass

import numpy as np
import pytest
from helpers.engines import table_decoder
from hypothesis import given
from hypothesis import strategies as st

from foredraft.models import cached_decoder
from foredraft.sampling import Processors, SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import DraftTree
from foredraft.verify import NUM_LIKELIEST, Verifier, usable_part

V = 40
MODEL = TableModel(2, V, seed=4)


def test_ids_outside_the_vocabulary_go_with_all_below_them() -> None:
    """Kind: an id equal to the vocabulary's size, or a padding -1, is looked up in the embedding."""
    tree = DraftTree((1, 2, -1, V, 5, 6, 7), (-1, 0, 0, 1, 2, 3, 1), (1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4))
    kept = usable_part(tree, room=10, vocab_size=V)
    assert kept == DraftTree((1, 2, 7), (-1, 0, 1), (1, 0.9, 0.4))
    assert usable_part(DraftTree.chain(1, (2, V + 5, 3)), room=9, vocab_size=V) == DraftTree.chain(1, (2,))


def test_what_is_sound_stays_as_it_is() -> None:
    tree = DraftTree((1, 2, 3), (-1, 0, 0))
    assert usable_part(tree, room=2, vocab_size=V) is tree


def test_a_tree_beyond_its_budget_is_cut() -> None:
    tree = DraftTree((1, 2, 3, 4, 5), (-1, 0, 0, 1, 2))
    for budget in range(5):
        assert usable_part(tree, room=budget, vocab_size=V).tokens == (1, 2, 3, 4, 5)[: budget + 1]


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
    kept = usable_part(tree, room=budget, vocab_size=V)
    assert kept.tokens[0] == 3
    assert kept.num_draft_tokens <= budget
    assert all(0 <= token < V for token in kept.tokens)
    whole = {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(tree.num_nodes)}
    assert {tuple(kept.tokens[i] for i in kept.path(node)) for node in range(kept.num_nodes)} <= whole


@dataclass
class Asked:
    tokens: list[int]
    params: SamplingParams
    choice: int
    processors: Processors | None = None


def test_the_targets_token_is_that_of_the_seed_and_position() -> None:
    decoder, _ = table_decoder(MODEL)
    verifier = Verifier(decoder, V)
    tokens = [1, 2, 3]
    for params in (
        SamplingParams(seed=5),
        SamplingParams(seed=5, temperature=1.0),
        SamplingParams(seed=-2, temperature=0.7, top_k=5, top_p=0.9, min_p=0.05),
    ):
        for position in (3, 4, 1000):
            for choice, num_path in ((0, 0), (2, 1)):
                asked = Asked([*[0] * (position - 3), *tokens], params, choice)
                found = verifier.target_tokens(MODEL.logits(tokens), asked, [4] * num_path)
                where = [*[0] * (position - 3 + num_path), *tokens]
                assert found[0] == MODEL.next_token(where, params, choice=choice)


def test_of_greedy_text_the_next_likeliest_tokens_are_told_as_well() -> None:
    """Kind: what options or noise have changed is taken for what the target finds likely."""
    decoder, _ = table_decoder(MODEL)
    logits = MODEL.logits([1, 2, 3])
    found = Verifier(decoder, V).target_tokens(logits, Asked([1, 2, 3], SamplingParams(), 0), [])
    assert found == np.argsort(-logits, kind="stable")[:NUM_LIKELIEST].tolist()
    sampled = Asked([1, 2, 3], SamplingParams(seed=5, temperature=1.0), 0)
    assert len(Verifier(decoder, V).target_tokens(logits, sampled, [])) == 1


def test_padding_is_never_chosen() -> None:
    """Kind: logits of the padding behind the real tokens take part in the choice."""
    decoder, _ = table_decoder(MODEL)
    [logits] = Verifier(decoder, 30).verify([decoder.cache.open([1])], [DraftTree.chain(1, (2, 3))])
    assert logits.shape == (3, 30)


@pytest.mark.parametrize("num_tokens", [1, 2, 16, 17, 18, 40])
def test_a_prompt_is_cached_up_to_its_last_token(num_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_decoder, "CHUNK_TOKENS", 7)
    decoder, _ = table_decoder(MODEL)
    verifier = Verifier(decoder, V)
    tokens = list(range(num_tokens))
    for _ in range(2):
        sequence, num_cached = verifier.open(tokens)
        assert sequence.tokens == tokens[:-1]
        assert num_cached in (0, (num_tokens - 1) // 16 * 16)
        [logits] = verifier.verify([sequence], [DraftTree.chain(tokens[-1])])
        np.testing.assert_array_equal(logits[0], MODEL.logits(tokens))
        sequence.close()
    assert num_cached == (num_tokens - 1) // 16 * 16
