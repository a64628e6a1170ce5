import dataclasses
import pickle

import hypothesis.strategies as st
import pytest
from hypothesis import given

from foredraft.tree import DraftTree


@st.composite
def trees(draw, max_nodes=12, vocab_size=5):
    """Any valid tree: each node hangs below an earlier one, with a token its siblings do not have."""
    tokens, parents = [draw(st.integers(0, vocab_size - 1))], [-1]
    for node in range(1, draw(st.integers(1, max_nodes))):
        parent = draw(st.integers(0, node - 1))
        taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        if len(taken) < vocab_size:
            tokens.append(draw(st.sampled_from(sorted(set(range(vocab_size)) - taken))))
            parents.append(parent)
        else:
            break
    confidence = draw(st.lists(st.floats(0, 1), min_size=len(tokens), max_size=len(tokens)))
    return DraftTree(tokens=tuple(tokens), parents=tuple(parents), confidence=tuple(confidence))


@given(trees())
def test_paths_depths_and_children_agree_with_the_parents(tree):
    assert tree.num_nodes == tree.num_draft_tokens + 1 == len(tree.tokens)
    for node in range(tree.num_nodes):
        path = tree.path(node)
        assert len(path) == tree.depths[node]
        above = 0
        for below in path:
            assert tree.parents[below] == above
            assert tree.child(above, tree.tokens[below]) == below
            above = below
        assert above == node
        children = {tree.tokens[i]: i for i in range(1, tree.num_nodes) if tree.parents[i] == node}
        for token in range(-1, 7):
            assert tree.child(node, token) == children.get(token)


@given(trees())
def test_a_tree_is_a_chain_when_every_node_has_at_most_one_child(tree):
    num_children = [tree.parents.count(node) for node in range(tree.num_nodes)]
    assert tree.is_chain == all(count <= 1 for count in num_children)


@given(st.lists(st.integers(-1, 9), max_size=6), st.integers(0, 9))
def test_a_chain_is_the_tree_with_each_token_below_the_one_before(tokens, root):
    tree = DraftTree.chain(root, tuple(tokens))
    assert tree.tokens == (root, *tokens)
    assert tree.parents == tuple(range(-1, len(tokens)))
    assert tree.confidence == (1.0,) * (len(tokens) + 1)
    assert tree.is_chain
    assert tree.path(len(tokens)) == tuple(range(1, len(tokens) + 1))


@given(trees())
def test_trees_compare_by_value_and_survive_pickling(tree):
    tree.depths, tree.is_chain  # noqa: B018  # what was computed before must not matter
    fresh = DraftTree(tree.tokens, tree.parents, tree.confidence)
    assert fresh == tree
    assert hash(fresh) == hash(tree)
    assert pickle.loads(pickle.dumps(tree)) == tree


def test_no_draft_is_a_tree_of_its_root():
    tree = DraftTree.chain(7)
    assert (tree.tokens, tree.parents, tree.confidence) == ((7,), (-1,), (1.0,))
    assert (tree.num_nodes, tree.num_draft_tokens, tree.is_chain) == (1, 0, True)
    assert tree.child(0, 7) is None
    assert tree.path(0) == ()


def test_the_confidence_of_a_chain_is_given_without_its_root():
    assert DraftTree.chain(1, (2, 3), (0.5, 0.25)).confidence == (1.0, 0.5, 0.25)


def test_the_same_token_may_stand_on_different_branches():
    tree = DraftTree(tokens=(0, 1, 2, 1, 1), parents=(-1, 0, 0, 1, 2))
    assert (tree.child(0, 1), tree.child(1, 1), tree.child(2, 1)) == (1, 3, 4)
    assert not tree.is_chain


@pytest.mark.parametrize(
    ("tokens", "parents", "confidence", "message"),
    [
        ((), (), (), "needs a root"),
        ((1, 2), (-1,), (), "one parent"),
        ((1, 2), (-1, 0), (1.0,), "one confidence"),
        ((1,), (0,), (), "parent -1"),
        ((1, 2), (-1, 1), (), "before its children"),
        ((1, 2, 3), (-1, 2, 0), (), "before its children"),
        ((1, 2), (-1, -1), (), "before its children"),
        ((1, 2), (-1, -2), (), "before its children"),
        ((1, 2, 2), (-1, 0, 0), (), "two children with token 2"),
    ],
)
def test_what_is_not_one_tree_is_refused(tokens, parents, confidence, message):
    with pytest.raises(ValueError, match=message):
        DraftTree(tokens=tokens, parents=parents, confidence=confidence)


def test_a_tree_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        DraftTree.chain(1).tokens = (2,)  # type: ignore[misc]


def test_a_tree_beside_what_was_said() -> None:
    tree = DraftTree(tokens=(9, 1, 2, 3, 4, 5), parents=(-1, 0, 0, 2, 2, 3))
    assert list(tree.compared([2, 3, 5, 7])) == [(1, (1, 2), 2), (2, (3, 4), 3), (3, (5,), 5)]
    assert list(tree.compared([2, 6, 5])) == [(1, (1, 2), 2), (2, (3, 4), None)]
    assert list(tree.compared([2])) == [(1, (1, 2), 2)]
    assert list(tree.compared([])) == []
    assert list(DraftTree.chain(9).compared([1])) == []
