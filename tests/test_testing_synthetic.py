"""The synthetic drafter: as good as it is told to be, and a function of the text."""

from statistics import fmean

import pytest
from helpers.drafting import View, budgets

from foredraft.sampling import SamplingParams
from foredraft.testing import SimulatedClock, SyntheticDrafter, TableModel
from foredraft.tree import Budget

TEXT = list(range(100, 900))


def share_right(drafter: SyntheticDrafter, depth: int) -> float:
    """Of the tokens at a depth, how many are right."""
    right = []
    for place in range(700):
        view = View([1, *TEXT[:place]], id=7)
        [tree] = drafter.propose([view], budgets(depth))
        right.append(tree.tokens[depth] == TEXT[place + depth - 1])
    return fmean(right)


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.9, 1.0])
def test_it_is_right_as_often_as_it_is_told(chance: float) -> None:
    assert share_right(SyntheticDrafter(TEXT, chance), 2) == pytest.approx(chance, abs=0.05)


def test_chances_can_depend_on_the_depth_and_the_place() -> None:
    by_depth = SyntheticDrafter(TEXT, (0.9, 0.2))
    assert share_right(by_depth, 1) == pytest.approx(0.9, abs=0.05)
    assert share_right(by_depth, 3) == pytest.approx(0.2, abs=0.05)
    by_place = SyntheticDrafter(TEXT, lambda place, depth: float(place < 400))
    assert share_right(by_place, 1) == pytest.approx(399 / 700)


def test_it_says_the_same_again_whatever_was_drafted_before() -> None:
    drafter, view = SyntheticDrafter(TEXT, 0.5), View([1, *TEXT[:10]])
    [long], [short] = drafter.propose([view], budgets(8)), drafter.propose([view], budgets(3))
    assert short.tokens == long.tokens[:4]
    later = View([1, *TEXT[:12]])
    [tree] = drafter.propose([later], budgets(6))
    assert tree.tokens[1:] == long.tokens[3:]
    assert SyntheticDrafter(TEXT, 0.5, seed=1).propose([view], budgets(8)) != [long]


def test_confidence_is_the_chance_or_what_is_made_of_it() -> None:
    view = View([1])
    [tree] = SyntheticDrafter(TEXT, (0.9, 0.5)).propose([view], budgets(3))
    assert tree.confidence == (1.0, 0.9, 0.5, 0.5)
    [tree] = SyntheticDrafter(TEXT, 0.9, confidence=lambda chance: chance / 2).propose([view], budgets(1))
    assert tree.confidence[1] == 0.45


def test_a_budget_ends_a_chain_behind_an_unlikely_token_and_the_text_ends_it_too() -> None:
    drafter = SyntheticDrafter(TEXT, 0.5)
    [tree] = drafter.propose([View([1])], [Budget(9, 0.3)])
    assert tree.num_draft_tokens == 2
    [tree] = drafter.propose([View([1, *TEXT[:-1]])], budgets(5))
    assert tree.num_draft_tokens == 1


def test_a_model_based_one_takes_time_for_prefill_and_for_every_level() -> None:
    clock = SimulatedClock()
    drafter = SyntheticDrafter(TEXT, 1.0, step_s=lambda num: 1.0 + 0.1 * num, prefill_s=0.01, clock=clock)
    one, other = View([1] * 11), View([1] * 11, id=1)
    one.num_prompt_tokens = other.num_prompt_tokens = 11
    assert not drafter.model_free
    assert drafter.num_uncached_tokens(one) == 10
    drafter.propose([one, other], budgets(3, 1))
    assert clock() == pytest.approx(2 * 9 * 0.01 + 1.2 + 1.1 + 1.1)
    one.tokens.extend([*TEXT[:3], 5])
    assert drafter.num_uncached_tokens(one) == 1  # its own last token, which it proposed and did not compute
    other.tokens.append(5)
    assert drafter.num_uncached_tokens(other) == 0
    drafter.end(0)
    assert drafter.num_uncached_tokens(one) == 14
    before = clock()
    drafter.prefill(one, 4)
    assert drafter.num_uncached_tokens(one) == 10
    drafter.prefill(one, 100)
    assert drafter.num_uncached_tokens(one) == 0
    assert clock() - before == pytest.approx(14 * 0.01)


def test_a_model_free_one_takes_no_time_and_has_nothing_to_prefill() -> None:
    clock = SimulatedClock()
    drafter, view = SyntheticDrafter(TEXT, 1.0, clock=clock), View([1] * 11)
    assert drafter.model_free
    drafter.propose([view], budgets(3))
    assert (clock(), drafter.num_uncached_tokens(view)) == (0.0, 0)


def test_the_target_may_be_a_table() -> None:
    model, view = TableModel(2, 30, seed=3), View([1, 2], params=SamplingParams(seed=4, temperature=1.0))
    [tree] = SyntheticDrafter(model, 1.0, vocab_size=30).propose([view], budgets(5))
    assert list(tree.tokens[1:]) == model.generate([1, 2], view.params, 5)
