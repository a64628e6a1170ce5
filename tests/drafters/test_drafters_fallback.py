"""Several drafters in order of preference."""

from helpers.drafting import Echo, View, budgets, unspeculated

from foredraft.drafters.base import DrafterSpec
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.testing import ScriptedDrafter


def test_the_first_with_a_proposal_is_taken() -> None:
    one = ScriptedDrafter({1: [[7], [], [7]], 2: [[], [], []]})
    two = ScriptedDrafter({1: [[8]], 2: [[9, 9], []]})
    drafter = FallbackDrafter([one, two])
    assert (drafter.name, drafter.names) == ("scripted+scripted", ("scripted", "scripted"))
    views = [View([1, 2], id=1), View([3, 4], id=2), View([5, 6], id=3)]
    chains = [[tree.tokens for tree in drafter.propose(views, budgets(4, 4, 4))] for _ in range(3)]
    assert chains == [
        [(2, 7), (4, 9, 9), (6,)],
        [(2, 8), (4,), (6,)],
        [(2, 7), (4,), (6,)],
    ]
    drafter.observe(views, unspeculated(views))
    drafter.end(1)
    assert one.ended == two.ended == [1]
    assert set(one.observed) == set(two.observed) == {2, 3}


def test_no_budget_asks_nobody() -> None:
    one = ScriptedDrafter([[7]])
    trees = FallbackDrafter([one]).propose([View([1, 2]), View([3], id=1)], budgets(0, 0))
    assert [tree.tokens for tree in trees] == [(2,), (3,)]
    assert one.num_calls == 0


def test_what_several_want_together_is_declared() -> None:
    one, two = Echo(), Echo()
    one.spec = DrafterSpec(name="one", layers=(3, 1), observes_skipped_rounds=False)
    two.spec = DrafterSpec(name="two", model_free=False, layers=(1, 2), needs_prompt_features=True, can_begin_late=True)
    both = FallbackDrafter([one, two])
    assert both.spec == DrafterSpec(
        name="one+two", model_free=False, layers=(1, 2, 3), needs_prompt_features=True, can_begin_late=True
    )
    assert FallbackDrafter([one]).spec == one.spec


def test_the_tree_says_whose_it_is() -> None:
    drafter = FallbackDrafter([ScriptedDrafter([[]]), Echo()])
    [tree] = drafter.propose([View([1, 2])], budgets(2))
    assert tree.sources == ("", "echo", "echo")
    [tree] = FallbackDrafter([drafter]).propose([View([1, 2], id=1)], budgets(1))
    assert tree.sources == ("", "echo")
