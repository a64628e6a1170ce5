from foredraft.planner.loss_budget import LossBudget

PART = 0.01
"""Of the time without drafts, that may be lost."""


def counted(rounds: list[tuple[int, int]], extra_s: float = 0.1) -> LossBudget:
    """After rounds of so many emitted and drafted tokens; a round without drafts takes a second."""
    budget = LossBudget()
    for num_emitted, num_drafted in rounds:
        budget.count(num_emitted=num_emitted, num_drafted=num_drafted, token_s=1.0, extra_s=extra_s * num_drafted)
    return budget


def test_losses_are_answered_and_gains_are_not() -> None:
    assert LossBudget().demand(1.0, PART) == 1.0
    assert counted([(4, 4)] * 5).demand(1.0, PART) == 1.0
    once, often = counted([(1, 4)]), counted([(1, 4)] * 3)
    assert 1.0 < once.demand(1.0, PART) < often.demand(1.0, PART)
    assert once.saved_s == -0.4


def test_twice_is_demanded_where_all_that_may_be_lost_is() -> None:
    """And nothing where it is half of that; the demand goes on rising beyond."""
    plain = [(1, 0)] * 99
    half, all_of_it, twice = (counted([*plain, (1, 1)], extra_s) for extra_s in (0.5, 1.0, 2.0))
    demands = [budget.demand(1.0, PART) for budget in (half, all_of_it, twice)]
    assert demands == [1.0, 2.0, 4.0]


def test_a_long_completion_may_lose_more_before_it_matters() -> None:
    """Kind: an unlucky beginning keeps a long completion from ever drafting again."""
    late = counted([(1, 4), *[(1, 0)] * 200])
    assert late.demand(1.0, PART) == 1.0
    short = counted([(1, 0)] * 15 + [(1, 4)])
    assert short.demand(1.0, PART) == counted([(1, 4)]).demand(1.0, PART) > 1.0  # it counts as one of 16 from the start


def test_trees_grow_with_success() -> None:
    """From 4 nodes on, to as many as the largest round can hold."""
    sizes = [counted([(5, 4)] * number).max_nodes for number in (0, 1)]
    assert sizes == [4, 8]
    grown = counted([(5, 4), (9, 8), (17, 16), (33, 32), (65, 64)])
    assert grown.max_nodes == 64
    fallen = counted([(5, 4), (9, 8), (1, 16), (1, 8), (1, 8), (1, 4)])
    assert fallen.max_nodes == 4
    assert counted([(5, 4), (2, 8)]).max_nodes == 8  # neither
