import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.planner.select import select, survivals
from foredraft.tree import DraftTree

PLAIN = 1 / 20


def costs(num_tokens: int) -> float:
    return 20.0 + 2.0 * (num_tokens - 1)


def chosen(tree: DraftTree, *, rate: float = PLAIN, verify=costs, spent: float = 0.0) -> DraftTree:
    [kept] = select([tree], [survivals(tree, tree.confidence)], verify, rate=rate, spent_s=spent, max_nodes=48).trees
    return kept


def test_nodes_are_kept_as_far_as_they_pay() -> None:
    chain = DraftTree.chain(1, (2, 3, 4, 5), (0.5, 0.5, 0.5, 0.5))  # on the path with 1/2, 1/4, 1/8, 1/16
    assert chosen(chain).tokens == (1, 2, 3, 4)  # a node costs a tenth of a token
    assert chosen(chain, rate=2 * PLAIN).tokens == (1, 2, 3)  # and where tokens come fast, a fifth
    assert chosen(chain, rate=6 * PLAIN).tokens == (1,)
    assert chosen(chain, verify=lambda number: 20.0) is chain
    assert chosen(chain, verify=lambda number: 20.0 * number).tokens == (1,)


def test_a_step_in_the_costs_is_looked_beyond() -> None:
    """Kind: the search ends at the first node that does not pay, though the next eight are free."""
    chain = DraftTree.chain(1, tuple(range(2, 10)), (0.95,) * 8)
    kept = chosen(chain, verify=lambda number: 20.0 if number == 1 else 40.0)
    assert kept is chain


def test_what_was_spent_is_spent() -> None:
    """Kind: a draft is thrown away because making it was dear."""
    chain = DraftTree.chain(1, (2,), (0.9,))
    assert chosen(chain, spent=1000.0) is chain


def test_what_gains_nothing_is_not_verified() -> None:
    """Kind: where the pass costs nothing, nodes without a chance are verified too."""
    assert chosen(DraftTree.chain(1, (2, 3), (0.5, 0.0)), verify=lambda number: 20.0).tokens == (1, 2)


def test_siblings_share_one_certainty() -> None:
    tree = DraftTree((1, 2, 3, 4), (-1, 0, 0, 1), (1.0, 0.8, 0.8, 0.5))
    assert survivals(tree, tree.confidence) == pytest.approx([1.0, 0.5, 0.5, 0.25])


@settings(max_examples=150)
@given(
    shapes=st.lists(st.lists(st.tuples(st.integers(0, 9), st.floats(0.01, 0.99)), max_size=4), min_size=1, max_size=3),
    step=st.floats(0.0, 8.0),
    rate=st.floats(0.01, 0.3),
)
def test_no_other_choice_of_nodes_is_better(shapes: list[list[tuple[int, float]]], step: float, rate: float) -> None:
    trees = []
    for shape in shapes:
        parents = [-1, *(min(parent, node) for node, (parent, _) in enumerate(shape))]
        trees.append(DraftTree(tuple(range(len(parents))), tuple(parents), (1.0, *(c for _, c in shape))))
    chances = [survivals(tree, tree.confidence) for tree in trees]

    def verify(num_tokens: int) -> float:
        return 20.0 + step * (num_tokens - 1)

    found = select(trees, chances, verify, rate=rate, spent_s=1.0, max_nodes=48)
    best = max(
        sum(own[node] for own, nodes in zip(chances, choice, strict=True) for node in nodes)
        - rate * (1.0 + verify(sum(map(len, choice))))
        for choice in itertools.product(*(_parts(tree) for tree in trees))
    )
    assert found.value(rate) == pytest.approx(best)
    kept = sum(own[node] for own, tree in zip(chances, found.trees, strict=True) for node in tree.tokens)
    assert kept == pytest.approx(found.tokens)  # a node's token is its index


def _parts(tree: DraftTree) -> list[tuple[int, ...]]:
    """All parts of a tree that hold the root and no node without its parent."""
    nodes = range(1, tree.num_nodes)
    subsets = itertools.chain.from_iterable(itertools.combinations(nodes, n) for n in range(tree.num_nodes))
    return [(0, *part) for part in subsets if all(tree.parents[node] in (0, *part) for node in part)]


def test_sequences_compete_for_the_pass() -> None:
    good, poor = DraftTree.chain(1, (2, 3), (0.9, 0.9)), DraftTree.chain(5, (6, 7), (0.15, 0.9))
    chances = [survivals(tree, tree.confidence) for tree in (good, poor)]
    kept = select([good, poor], chances, costs, rate=4 * PLAIN, spent_s=0.0, max_nodes=48).trees
    assert [tree.tokens for tree in kept] == [(1, 2, 3), (5,)]
    capped = select([good, poor], chances, costs, rate=0.001, spent_s=0.0, max_nodes=1).trees
    assert [tree.tokens for tree in capped] == [(1, 2), (5,)]


def test_what_is_kept_stands_in_the_order_of_the_tree() -> None:
    """Kind: siblings that a drafter ranked are shown and tried in another order."""
    tree = DraftTree((1, 2, 3, 4), (-1, 0, 0, 0), (1.0, 0.3, 0.5, 0.1))
    [kept] = select([tree], [survivals(tree, tree.confidence)], costs, rate=0.01, spent_s=0.0, max_nodes=2).trees
    assert kept == DraftTree((1, 2, 3), (-1, 0, 0), (1.0, 0.3, 0.5))
