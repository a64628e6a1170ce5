import numpy as np
import pytest
from helpers.drafting import View

from foredraft.drafters.merge import MergeDrafter, likeliest_part, merge_trees
from foredraft.testing import ScriptedDrafter
from foredraft.tree import Budget, DraftTree


def paths(tree: DraftTree) -> dict[tuple[int, ...], float]:
    """The tokens on the way to each node, and the node's confidence."""
    return {tuple(tree.tokens[n] for n in tree.path(node)): tree.confidence[node] for node in range(1, tree.num_nodes)}


def random_tree(random: np.random.Generator, num_nodes: int) -> DraftTree:
    tokens, parents = [0], [-1]
    while len(tokens) < num_nodes:
        parent, token = int(random.integers(len(tokens))), int(random.integers(4))
        if (parent, token) not in zip(parents, tokens, strict=True):
            tokens.append(token)
            parents.append(parent)
    confidence = (1.0, *random.random(num_nodes - 1).tolist())
    return DraftTree(tuple(tokens), tuple(parents), confidence)


def test_same_path_is_one_node_with_the_surer_drafter() -> None:
    one = DraftTree.chain(9, (1, 2, 3), (0.9, 0.5, 0.5))
    two = DraftTree((9, 1, 4, 2), (-1, 0, 0, 1), (1.0, 0.8, 0.2, 0.7))
    merged = merge_trees([one, two], ["a", "b"])
    assert merged.tokens == (9, 1, 2, 3, 4)
    assert merged.parents == (-1, 0, 1, 2, 0)
    assert merged.confidence == (1.0, 0.9, 0.7, 0.5, 0.2)
    assert merged.sources == ("", "a", "b", "a", "b")


def test_sources_are_kept_and_nothing_stays_nothing() -> None:
    empty = DraftTree.chain(9)
    assert merge_trees([empty, empty], ["a", "b"]).num_draft_tokens == 0
    one = DraftTree.chain(9, (1,))
    assert merge_trees([empty, one], ["a", "b"]).sources == ("", "b")
    named = DraftTree((9, 5), (-1, 0), sources=("", "inner"))
    assert merge_trees([one, named], ["a", "b"]).sources == ("", "a", "inner")


def test_trees_of_different_roots_are_a_mistake() -> None:
    for trees in ([], [DraftTree.chain(1), DraftTree.chain(2)]):
        with pytest.raises(ValueError, match="root"):
            merge_trees(trees, ["x"] * len(trees))


def test_a_merged_tree_holds_all_paths_and_no_other() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        trees = [random_tree(random, int(random.integers(1, 12))) for _ in range(3)]
        merged = merge_trees(trees, ["a", "b", "c"])
        expected: dict[tuple[int, ...], float] = {}
        for tree in trees:
            for path, confidence in paths(tree).items():
                expected[path] = max(confidence, expected.get(path, 0.0))
        assert paths(merged) == expected
        for node in range(1, merged.num_nodes):
            path = tuple(merged.tokens[n] for n in merged.path(node))
            source = trees["abc".index(merged.sources[node])]
            assert paths(source)[path] == merged.confidence[node]


def test_the_likeliest_part_is_a_tree_of_the_likeliest_nodes() -> None:
    random = np.random.default_rng(4)
    for _ in range(50):
        tree = random_tree(random, 12)
        for num in (0, 1, 5, 11, 20):
            part = likeliest_part(tree, Budget(num))
            assert part.num_draft_tokens == min(num, 11)
            kept, survival = paths(part), {}
            for path in paths(tree):
                survival[path] = np.prod([paths(tree)[path[: i + 1]] for i in range(len(path))])
            left_out = [survival[path] for path in survival if path not in kept]
            assert not left_out or not kept or max(left_out) <= min(survival[path] for path in kept)


def test_distributions_stay_with_those_that_were_drawn_first() -> None:
    probs = np.array([0.5, 0.25, 0.25])
    drawn = DraftTree((0, 1), (-1, 0), draft_probs=(None, probs))
    other = DraftTree.chain(0, (2,))
    assert merge_trees([drawn, other], ["a", "b"]).draft_probs == (None, probs, None)
    assert merge_trees([DraftTree.chain(0), drawn], ["a", "b"]).draft_probs == (None, probs)
    assert merge_trees([other, drawn], ["a", "b"]).draft_probs == ()
    assert likeliest_part(drawn, Budget(1)).draft_probs == (None, probs)
    assert likeliest_part(drawn, Budget(0)).draft_probs == ()


def test_the_budget_s_chance_decides_what_is_likely() -> None:
    tree = DraftTree((9, 1, 2), (-1, 0, 0), (1.0, 0.9, 0.1))
    upside_down = Budget(1, chance=lambda confidence, depth: 1.0 - confidence)
    assert likeliest_part(tree, upside_down).tokens == (9, 2)


def test_all_are_asked_and_told() -> None:
    one, two = ScriptedDrafter([[1, 2], []]), ScriptedDrafter([[1, 3], []])
    drafter = MergeDrafter([one, two])
    assert (drafter.names, drafter.model_free) == (("scripted", "scripted"), True)
    [tree] = drafter.propose([View([8, 9])], [Budget(4)])
    assert (tree.tokens, tree.parents) == ((9, 1, 2, 3), (-1, 0, 1, 1))
    drafter.observe([View([8, 9, 1])], [])
    drafter.end(0)
    assert one.ended == two.ended == [0]
    [tree] = drafter.propose([View([8, 9])], [Budget(0)])
    assert (tree.num_draft_tokens, one.num_calls) == (0, 1)
