"""Guesses of the target at its own tokens to come: how they become better, and what is kept of them."""

import numpy as np
import pytest
from helpers.drafting import View, budgets

from foredraft.accept import walk
from foredraft.drafters import jacobi
from foredraft.drafters.base import Outcome
from foredraft.drafters.jacobi import WINDOW, JacobiDrafter
from foredraft.kernels.reference import ReferenceKernels
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import DraftTree

V = 40
MODEL = TableModel(2, V, seed=3)


def verified(view: View, tree: DraftTree, model: TableModel = MODEL) -> Outcome:
    """A round on a table; the sequence goes on."""
    logits = model.tree_logits(view.tokens, tree)

    def target_token(node: int) -> int:
        return model.next_token([*view.tokens, *(tree.tokens[n] for n in tree.path(node))], view.params)

    accepted = walk(tree, target_token)
    view.tokens.extend(accepted.tokens(tree))
    return Outcome(tree, accepted.path, logits)


def chains(tree: DraftTree) -> list[tuple[int, ...]]:
    leaves = set(range(1, tree.num_nodes)) - set(tree.parents)
    return [tuple(tree.tokens[node] for node in tree.path(leaf)) for leaf in sorted(leaves)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_what_the_target_said_below_a_wrong_token_is_the_next_guess(temperature: float) -> None:
    """With the noise of the place that it is a guess for."""
    params = SamplingParams(seed=3, temperature=temperature, top_k=20)
    view = View([1, 2, 3], params=params, sample_index=0)
    right = MODEL.next_token(view.tokens, params)
    wrong = [(right + 1) % V, 7, 9]
    drafter = JacobiDrafter(ReferenceKernels())
    before = list(view.tokens)
    outcome = verified(view, DraftTree.chain(3, tuple(wrong)))
    drafter.observe([view], [outcome])
    assert view.tokens == [*before, right]
    expected = [MODEL.next_token([*before, *wrong[: i + 1]], params) for i in range(3)]
    [tree] = drafter.propose([view], budgets(6))
    assert tree.tokens[0] == right
    assert expected in [list(chain[:3]) for chain in chains(tree)]


def test_guesses_that_depend_on_little_are_right_after_one_pass() -> None:
    """A text in which each place says by itself what stands there: the iteration ends at once."""
    text = np.random.default_rng(0).integers(V, size=200)

    def logits_of(view: View, tree: DraftTree) -> np.ndarray:
        rows = np.zeros((tree.num_nodes, V), np.float32)
        for node, depth in enumerate(tree.depths):
            rows[node, text[len(view.tokens) + depth]] = 1.0
        return rows

    view, drafter = View([int(text[0])]), JacobiDrafter(ReferenceKernels())
    lengths = []
    while len(view.tokens) < 100:
        [tree] = drafter.propose([view], budgets(WINDOW))
        logits = logits_of(view, tree)
        accepted = walk(tree, lambda node, rows=logits: int(rows[node].argmax()))
        view.tokens.extend(accepted.tokens(tree))
        lengths.append(accepted.num_accepted)
        drafter.observe([view], [Outcome(tree, accepted.path, logits)])
    assert view.tokens == text[: len(view.tokens)].tolist()
    assert np.mean(lengths) > 1.5


def test_a_text_that_repeats_itself_is_drafted_from_its_n_grams() -> None:
    model = TableModel(1, V, seed=4)
    view, drafter = View([1]), JacobiDrafter(ReferenceKernels())
    accepted = []
    for _ in range(60):
        [tree] = drafter.propose([view], budgets(4))
        assert tree.num_draft_tokens == 4
        accepted.append(len((outcome := verified(view, tree, model)).path))
        drafter.observe([view], [outcome])
    assert sum(accepted[30:]) >= 2 * 30
    confidence = drafter.propose([view], budgets(4))[0].confidence
    assert max(confidence[1:]) > 0.6  # which has been learned


def test_trees_of_others_teach_too() -> None:
    view, drafter = View([1, 2]), JacobiDrafter(ReferenceKernels())
    text = [*view.tokens, *MODEL.generate(view.tokens, view.params, 30)]
    tree = DraftTree((2, (text[2] + 1) % V, text[2], text[3]), (-1, 0, 0, 2))
    drafter.observe([view], [verified(view, tree)])
    assert view.tokens == text[:5]
    assert all(0.0 <= c <= 1.0 for c in drafter.propose([view], budgets(8))[0].confidence)


def test_a_proposal_is_counted_once() -> None:
    """Kind: a round that it was not asked in is held against the proposal before."""
    view, drafter = View([1, 2]), JacobiDrafter(ReferenceKernels())
    [tree] = drafter.propose([view], budgets(4))
    drafter.observe([view], [verified(view, tree)])
    counted = dict(drafter._cases)
    drafter.observe([view], [verified(view, DraftTree.chain(view.tokens[-1], (5, 6)))])
    assert drafter._cases == counted


def test_guesses_that_were_not_verified_stay_at_their_places() -> None:
    view = View(list(range(1, 21)), num_prompt_tokens=20)
    drafter = JacobiDrafter(ReferenceKernels())
    drafter.propose([view], budgets(4))
    before = list(drafter._ahead[view.id].guesses)
    assert len(set(before)) == 8
    right = MODEL.next_token(view.tokens, view.params)
    drafter.observe([view], [verified(view, DraftTree.chain(20, ((right + 1) % V, 7, 9)))])
    assert drafter._ahead[view.id].guesses[3:7] == before[4:8]  # behind the token emitted and three new guesses


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jacobi, "MAX_KEYS", 10)
    view, drafter = View([1, 2]), JacobiDrafter(ReferenceKernels())
    for _ in range(50):
        [tree] = drafter.propose([view], budgets(6))
        drafter.observe([view], [verified(view, tree)])
    ahead = drafter._ahead[view.id]
    assert len(ahead.pool) == 10
    assert max(len(grams) for grams in ahead.pool.values()) == 3
    assert len(ahead.guesses) == 8
    drafter.end(view.id)
    assert not drafter._ahead


def test_logits_that_are_not_numbers_are_no_guesses() -> None:
    """Those after a token that was not accepted may be anything; the target itself does not look at them."""
    view, drafter = View([1, 2, 3]), JacobiDrafter(ReferenceKernels())
    tree = DraftTree.chain(3, (5, 6))
    logits = MODEL.tree_logits(view.tokens, tree).copy()
    logits[1:] = np.nan
    view.tokens.append(9)
    drafter.observe([view], [Outcome(tree, (), logits)])
    assert drafter.propose([view], budgets(3))[0].num_draft_tokens == 3


def test_an_answer_that_ends_within_a_draft_says_nothing_of_the_proposal() -> None:
    """Kind: what was said before a draft is taken for what followed it."""
    view, drafter = View([1, 2, 3]), JacobiDrafter(ReferenceKernels())
    [tree] = drafter.propose([view], budgets(4))
    counted = dict(drafter._cases)
    chain = DraftTree.chain(3, (5, 6, 7))
    view.tokens.extend([5, 6])  # where the answer ends, although all three were right
    logits = MODEL.tree_logits(view.tokens[:3], chain)
    drafter.observe([view], [Outcome(chain, (1, 2, 3), logits)])
    assert tree.num_draft_tokens == 4
    assert drafter._cases == counted
