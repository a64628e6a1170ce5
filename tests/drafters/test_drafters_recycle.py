from collections import OrderedDict

import numpy as np
import pytest
from helpers.drafting import View, budgets
from helpers.engines import native_kernels

from foredraft.drafters import recycle
from foredraft.drafters.base import Outcome
from foredraft.drafters.recycle import NUM_CANDIDATES, RecycleDrafter, top_candidates
from foredraft.kernels.operations import Kernels
from foredraft.kernels.reference import ReferenceKernels
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import Budget, DraftTree

GREEDY = SamplingParams()


def round_of(model: TableModel, drafter: RecycleDrafter, view: View, budget: int) -> Outcome:
    """Draft, verify and accept as a round does, greedily."""
    [tree] = drafter.propose([view], budgets(budget))
    path, node = [], 0
    logits = model.tree_logits(view.tokens, tree)
    while (child := tree.child(node, int(logits[node].argmax()))) is not None:
        path.append(child)
        node = child
    bonus = int(logits[node].argmax())
    view.tokens.extend([*(tree.tokens[n] for n in path), bonus])
    outcome = Outcome(tree, tuple(path), logits)
    drafter.observe([view], [outcome])
    return outcome


@pytest.mark.parametrize("kernels", [native_kernels(), ReferenceKernels()], ids=["native", "reference"])
@pytest.mark.parametrize("size", [1, 3, 8, 31, 256, 2047, 2048, 2049, 50000])
def test_candidates_are_the_largest_logits(kernels: Kernels, size: int) -> None:
    random = np.random.default_rng(size)
    for scale in (4.0, 0.0):  # and all equal: then the first
        logits = (scale * random.standard_normal(size)).astype(np.float32)
        tokens, kinds = top_candidates(kernels, logits)
        assert list(tokens) == np.argsort(-logits, kind="stable")[:NUM_CANDIDATES].tolist()
        assert list(kinds) == sorted(kinds, reverse=True)


@pytest.mark.parametrize("kernels", [native_kernels(), ReferenceKernels()], ids=["native", "reference"])
def test_candidates_of_rows_with_infinite_logits(kernels: Kernels) -> None:
    logits = np.full(3000, -np.inf, np.float32)
    logits[[5, 2900]] = 1.0
    assert top_candidates(kernels, logits)[0] == (5, 2900)
    for value in (-np.inf, np.inf, np.nan):
        assert top_candidates(kernels, np.full(3000, value, np.float32)) == ((), ())
        broken = logits.copy()
        broken[7] = value
        assert (top_candidates(kernels, broken) == ((), ())) == (value != -np.inf)


def test_what_the_target_said_after_a_token_is_proposed_after_it() -> None:
    model = TableModel(order=1, vocab_size=16, seed=2, scale=4.0)
    drafter, view = RecycleDrafter(), View([1])
    outcomes = [round_of(model, drafter, view, 6) for _ in range(40)]
    assert outcomes[0].num_draft_tokens == 0
    # The table depends on one token alone: once all that come up are known, nothing is ever missed.
    for outcome in outcomes[20:]:
        assert outcome.num_accepted_tokens >= 2
    assert view.tokens == [1, *model.generate([1], GREEDY, len(view.tokens) - 1)]


def test_two_tokens_know_more_than_one() -> None:
    """What follows 5 depends on what stood before it."""
    model = TableModel(order=2, vocab_size=8, seed=4, scale=4.0)
    drafter, view = RecycleDrafter(), View([1, 2])
    outcomes = [round_of(model, drafter, view, 8) for _ in range(80)]
    accepted = [outcome.num_accepted_tokens for outcome in outcomes]
    assert np.mean(accepted[60:]) > np.mean(accepted[:10]) + 1


def test_only_what_became_text_is_noted() -> None:
    model = TableModel(order=1, vocab_size=16, seed=2)
    drafter, view = RecycleDrafter(), View([1, 2])
    tree = DraftTree((2, 9, 7, 8), (-1, 0, 0, 2))
    logits = model.tree_logits(view.tokens, tree)
    view.tokens.extend([7, 3])
    drafter.observe([view], [Outcome(tree, (2,), logits)])
    assert list(drafter._single) == [2, 7]
    view.tokens.append(7)
    [proposal] = drafter.propose([view], budgets(1))
    assert proposal.tokens == (7, int(model.logits([7]).argmax()))


def test_candidates_that_were_found_already_are_not_looked_for_again() -> None:
    class Blind(ReferenceKernels):
        def pick(self, *arguments: object, **options: object) -> list[int]:
            raise AssertionError("looked again")

    logits = np.random.default_rng(0).standard_normal((2, 40)).astype(np.float32)
    likeliest = {node: np.argsort(-row).tolist()[:NUM_CANDIDATES] for node, row in enumerate(logits)}
    drafters = RecycleDrafter(Blind()), RecycleDrafter()
    for drafter in drafters:
        outcome = Outcome(DraftTree.chain(2, (3,)), (1,), logits, likeliest=likeliest if drafter is drafters[0] else {})
        drafter.observe([View([1, 2, 3, 4])], [outcome])
    assert drafters[0]._pair == drafters[1]._pair
    assert len(drafters[0]._pair) == 2


def test_confidence_follows_what_came_true() -> None:
    """A target whose next token is always its second choice, as the table sees it: the first loses its chance."""
    drafter, view = RecycleDrafter(), View([1, 2])
    logits = np.full((1, 32), -9.0, np.float32)
    logits[0, [3, 4]] = 5.0, 3.0
    before = after = 0.0
    for number in range(60):
        view.tokens.extend([number % 3 + 10, 3])
        [tree] = drafter.propose([view], budgets(2))
        if tree.num_draft_tokens:
            after = tree.confidence[tree.tokens.index(3, 1)]
            before = before or after
        root = view.tokens[-1]
        view.tokens.append(4)
        drafter.observe([view], [Outcome(DraftTree.chain(root), (), logits)])
    assert after < 0.1 < before


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foredraft.drafters.recycle.MAX_SINGLE_ROWS", 10)
    monkeypatch.setattr("foredraft.drafters.recycle.MAX_PAIR_ROWS", 20)
    drafter, view = RecycleDrafter(), View([0])
    for token in range(100):
        root = view.tokens[-1]
        view.tokens.append(token)
        drafter.observe([view], [Outcome(DraftTree.chain(root), (), np.zeros((1, 32), np.float32))])
    assert (len(drafter._single), len(drafter._pair)) == (10, 20)
    assert list(drafter._single) == list(range(89, 99))


def test_of_a_row_without_numbers_nothing_is_drafted() -> None:
    """Kind: a broken row behind one sequence's rejected token fails the next round of all."""
    drafter, view = RecycleDrafter(), View([1, 2, 3])
    drafter.observe([view], [Outcome(DraftTree.chain(2), (), np.full((1, 9), np.nan, np.float32))])
    [tree] = drafter.propose([View([1, 2])], budgets(4))
    assert tree == DraftTree.chain(2)


def test_a_second_candidate_comes_before_a_child_that_is_less_likely() -> None:
    """Kind: what follows the first of two candidates crowds out the second."""
    view, drafter, logits = View([9, 1]), RecycleDrafter(), np.full((2, 20), -9.0, np.float32)
    logits[0, [2, 3]] = np.log([0.55, 0.3])  # after 1
    logits[1, [4, 5]] = np.log([0.5, 0.45])  # after 2
    tree = DraftTree.chain(1, (2,))
    view.tokens.extend([2, 4])
    drafter.observe([view], [Outcome(tree, (1,), logits)])
    [drafted] = drafter.propose([View([9, 1])], budgets(3))
    assert (drafted.tokens, drafted.parents) == ((1, 2, 3, 4), (-1, 0, 0, 1))


def test_rows_that_were_written_again_are_the_last_to_go() -> None:
    table: OrderedDict[int, tuple[tuple[int, ...], tuple[int, ...]]] = OrderedDict()
    for token in (1, 2, 1, 3):
        recycle._put(table, token, ((5,), (8,)), 2)
    assert list(table) == [1, 3]


def test_what_lies_deeper_is_learned_of_the_two_tokens_before_it() -> None:
    """Kind: below the root, rows are judged by what followed other tokens."""
    drafter, logits = RecycleDrafter(), np.full((1, 32), -9.0, np.float32)
    logits[0, 4] = 5.0
    drafter.observe([View([2, 3, 4])], [Outcome(DraftTree.chain(3), (), logits)])  # after 2 and 3 comes 4
    [before] = drafter.propose([View([2, 3])], budgets(1))
    broken = np.full((2, 32), np.nan, np.float32)  # of which nothing is written
    drafter.observe([View([9, 2, 3, 4])], [Outcome(DraftTree.chain(2, (3,)), (1,), broken)])
    [after] = drafter.propose([View([2, 3])], budgets(1))
    assert before.tokens == after.tokens == (3, 4)
    assert after.confidence[1] > before.confidence[1]


def test_tokens_that_cannot_be_of_use_are_left_out() -> None:
    """Kind: time goes into nodes that nobody would verify."""
    drafter, logits = RecycleDrafter(), np.full((1, 32), -9.0, np.float32)
    logits[0, [4, 5, 6]] = 5.0, 4.0, 1.0
    drafter.observe([View([2, 3, 4])], [Outcome(DraftTree.chain(3), (), logits)])
    [whole] = drafter.propose([View([2, 3])], [Budget(3)])
    [part] = drafter.propose([View([2, 3])], [Budget(3, least=whole.confidence[1])])
    assert (whole.tokens, part.tokens) == ((3, 4, 5, 6), (3, 4))
