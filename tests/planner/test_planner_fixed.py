import pytest
from helpers.planning import TILES, told

from foredraft.bench.simulate import known_sequence
from foredraft.drafters import first_with_grammar
from foredraft.drafters.base import PromptFeatures
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.planner import FixedPlanner, RoundTimes
from foredraft.planner.cost import CostModel
from foredraft.sequence import Batch
from foredraft.testing import OracleDrafter, ScriptedDrafter


class GivenUp(OracleDrafter):
    """Has something to say against itself."""

    @property
    def problem(self) -> str:
        return "a logit is not a number"


def test_the_bonus_takes_a_token_too() -> None:
    """Kind: more is drafted than the sequence may still say."""
    planner = FixedPlanner(OracleDrafter(list(range(20))), 3)
    sequences = [known_sequence(length, [0] * 10, length) for length in range(3, 11)]
    plan = planner.plan(Batch(tuple(sequences)))
    assert [tree.num_draft_tokens for tree in plan.trees] == [3, 3, 3, 3, 2, 1, 0, 0]
    assert plan.asked == (frozenset({"oracle"}),) * 6 + (frozenset(),) * 2
    assert plan.num_tokens == tuple(range(3, 11))
    assert planner.plan(Batch(())).trees == ()


def test_a_drafter_that_has_given_up_says_so() -> None:
    assert FixedPlanner(OracleDrafter([1, 2, 3]), 3).reason(0) == "asked for"
    assert FixedPlanner(GivenUp([1]), 3).reason(0) == "asked for; a logit is not a number"
    among_others = FixedPlanner(first_with_grammar(FallbackDrafter([OracleDrafter([1]), GivenUp([1])])), 3)
    assert among_others.reason(0) == "asked for; a logit is not a number"


def test_the_drafter_hears_of_everything() -> None:
    drafter = ScriptedDrafter([])
    planner, one, failed = FixedPlanner(drafter, 3), known_sequence(5, [1] * 9, 4), known_sequence(6, [1] * 9, 4)
    planner.begin(one, PromptFeatures(0, 3))
    assert drafter.begun == {5: 3}
    plan = planner.plan(Batch((one, failed)))
    result = told(plan, [(), ()], RoundTimes(0.0, 1.0, 0.0))
    one.tokens.append(1)
    planner.observe(plan, type(result)((result.outcomes[0], None), result.times))
    assert drafter.observed == {5: (1,) * 5}  # not of the one that failed
    planner.end(5)
    assert drafter.ended == [5]


def test_it_says_what_a_plain_round_takes_if_it_knows() -> None:
    """And learns it, where the machine has become slower."""
    one = known_sequence(0, [1] * 200, 4)
    assert FixedPlanner(ScriptedDrafter([]), 3).plan(Batch((one,))).plain_s is None
    planner = FixedPlanner(ScriptedDrafter([]), 3, cost=CostModel(TILES))
    assert planner.plan(Batch(())).plain_s is None
    assert planner.plan(Batch((one,))).plain_s == 1.0
    for _ in range(20):
        plan = planner.plan(Batch((one,)))
        one.tokens.append(1)
        planner.observe(plan, told(plan, [()], RoundTimes(0.25, 2.0, 0.5)))
    assert planner.plan(Batch((one,))).plain_s == pytest.approx(2.5)
