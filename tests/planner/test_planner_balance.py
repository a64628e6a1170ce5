from foredraft.planner.balance import FIRST_NODES, FIRST_TOKENS, FREE_SHARE, MOST_NODES, Balance


def counted(rounds: list[tuple[int, int]], extra_s: float = 0.1) -> Balance:
    """After rounds of so many emitted and drafted tokens; a round without drafts takes a second."""
    balance = Balance()
    for num_emitted, num_drafted in rounds:
        balance.count(num_emitted=num_emitted, num_drafted=num_drafted, plain_s=1.0, extra_s=extra_s * num_drafted)
    return balance


def test_losses_are_answered_and_gains_are_not() -> None:
    assert Balance().demand(1.0, FREE_SHARE) == 1.0
    assert counted([(4, 4)] * 5).demand(1.0, FREE_SHARE) == 1.0
    once, often = counted([(1, 4)]), counted([(1, 4)] * 3)
    assert 1.0 < once.demand(1.0, FREE_SHARE) < often.demand(1.0, FREE_SHARE)
    assert once.saved_s == -0.4


def test_a_long_answer_may_lose_more_before_it_matters() -> None:
    """Kind: an unlucky beginning keeps a long answer from ever drafting again."""
    late = counted([(1, 4), *[(1, 0)] * 200])
    assert late.demand(1.0, FREE_SHARE) == 1.0
    short = counted([(1, 0)] * (FIRST_TOKENS - 1) + [(1, 4)])
    assert short.demand(1.0, FREE_SHARE) > 1.0
    assert -short.saved_s > FREE_SHARE * FIRST_TOKENS


def test_trees_grow_with_success() -> None:
    sizes = [counted([(5, 4)] * number).max_nodes for number in (0, 1)]
    assert sizes == [FIRST_NODES, 8]
    grown = counted([(5, 4), (9, 8), (17, 16), (33, 32), (65, 64)])
    assert grown.max_nodes == MOST_NODES
    fallen = counted([(5, 4), (9, 8), (1, 16), (1, 8), (1, 8), (1, 4)])
    assert fallen.max_nodes == FIRST_NODES
    assert counted([(5, 4), (2, 8)]).max_nodes == 8  # neither
