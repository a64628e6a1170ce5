"""The test doubles themselves."""

import numpy as np
import pytest
from helpers.drafting import View, budgets, no_features, unspeculated

from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.tree import DraftTree

GREEDY = SamplingParams()


def view(number: int, tokens: list[int], params: SamplingParams = GREEDY) -> View:
    return View(tokens, number, 2, params)


def test_the_logits_depend_on_the_last_tokens_and_nothing_else():
    model = TableModel(order=2, vocab_size=16, seed=0)
    row = model.logits([1, 2])
    assert row.dtype == np.float32
    assert row.shape == (16,)
    assert model.logits([9, 9, 1, 2]) is row
    assert TableModel(order=2, vocab_size=16, seed=0).logits([1, 2]).tolist() == row.tolist()
    for other in (model.logits([2, 1]), model.logits([2]), TableModel(vocab_size=16, seed=1).logits([1, 2])):
        assert other.tolist() != row.tolist()
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 1


@pytest.mark.parametrize("token", [-1, 16, 21])
def test_a_token_outside_the_vocabulary_is_noticed(token):
    with pytest.raises(ValueError, match=f"token {token} is outside"):
        TableModel(vocab_size=16).logits([1, token])


def test_the_logits_of_a_tree_are_those_after_each_path():
    model = TableModel(order=3, vocab_size=16)
    tree = DraftTree(tokens=(5, 1, 2, 3), parents=(-1, 0, 0, 1))
    rows = model.tree_logits([7, 5], tree)
    for row, tokens in zip(rows, ([7, 5], [7, 5, 1], [7, 5, 2], [7, 5, 1, 3]), strict=True):
        assert row.tolist() == model.logits(tokens).tolist()
    with pytest.raises(ValueError, match="root"):
        model.tree_logits([5, 7], tree)


def test_a_one_hot_model_leaves_no_choice():
    probs = TableModel(vocab_size=16, one_hot=True).probs([1, 2], SamplingParams(temperature=5.0))
    assert sorted(probs.tolist()) == [0.0] * 15 + [1.0]


def test_the_script_is_played_a_round_at_a_time_for_each_sequence():
    drafter = ScriptedDrafter([[1, 2, 3], [], [-1, 99]])
    a, b = view(0, [4, 5]), view(1, [4, 6])
    assert drafter.propose([a, b], budgets(9, 2)) == [DraftTree.chain(5, (1, 2, 3)), DraftTree.chain(6, (1, 2))]
    assert drafter.propose([b], budgets(9)) == [DraftTree.chain(6)]
    assert drafter.propose([b], budgets(9)) == [DraftTree.chain(6, (-1, 99))]
    assert drafter.propose([b, a], budgets(9, 9)) == [DraftTree.chain(6), DraftTree.chain(5)]
    drafter.end(1)
    assert drafter.propose([b], budgets(0)) == [DraftTree.chain(6)]
    assert drafter.num_calls == 5
    assert drafter.ended == [1]


def test_a_script_can_differ_by_sequence_exceed_the_budget_and_be_checked():
    drafter = ScriptedDrafter({7: [[1, 2]]}, obey_budget=False)
    assert drafter.propose([view(7, [0, 3]), view(8, [0, 3])], budgets(1, 1)) == [
        DraftTree.chain(3, (1, 2)),
        DraftTree.chain(3),
    ]
    with pytest.raises(ValueError, match="vocabulary of 16"):
        ScriptedDrafter([[3, 16]], vocab_size=16)


def test_the_oracle_proposes_what_comes_next_and_stops_with_the_output():
    drafter = OracleDrafter({0: [10, 11, 12], 1: [20]})
    sequences = [view(0, [1, 2]), view(1, [1, 2, 20]), view(0, [1, 2, 10])]
    assert drafter.propose(sequences, budgets(2, 5, 5)) == [
        DraftTree.chain(2, (10, 11)),
        DraftTree.chain(20),
        DraftTree.chain(10, (11, 12)),
    ]


def test_the_wrong_drafter_proposes_the_least_likely_token():
    model = TableModel(vocab_size=16)
    (tree,) = WrongDrafter(model).propose([view(0, [1, 2])], budgets(2))
    first = int(model.logits([1, 2]).argmin())
    assert tree == DraftTree.chain(2, (first, int(model.logits([1, 2, first]).argmin())))


def test_a_drafter_with_a_distribution_grows_the_shape_it_is_given_within_its_budget():
    drafter = DistDrafter(TableModel(vocab_size=16), (3, 2))
    sequence = view(0, [1, 2], params=SamplingParams(temperature=1.0, seed=3))
    (whole,) = drafter.propose([sequence], budgets(100))
    assert whole.parents == (-1, 0, 0, 0, 1, 1, 2, 2, 3, 3)
    for budget in range(10):
        (tree,) = drafter.propose([sequence], budgets(budget))
        assert (tree.tokens, tree.parents) == (whole.tokens[: budget + 1], whole.parents[: budget + 1])


def test_drafters_note_what_they_are_told():
    drafter = DistDrafter(TableModel())
    both = [view(0, [1, 2]), view(1, [3])]
    drafter.begin(both[0], no_features(both[0]))
    drafter.observe(both, unspeculated(both))
    assert drafter.begun == {0: 1}
    later = [view(0, [1, 2, 5])]
    drafter.observe(later, unspeculated(later))
    assert drafter.observed == {0: (1, 2, 5), 1: (3,)}
    drafter.end(0)
    assert drafter.begun == {}
    assert drafter.observed == {1: (3,)}
    assert drafter.ended == [0]
