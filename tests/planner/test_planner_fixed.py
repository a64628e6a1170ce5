from dataclasses import dataclass, field

from foredraft.drafters import first_with_grammar
from foredraft.drafters.first import FirstDrafter
from foredraft.planner import FixedPlanner
from foredraft.sampling import SamplingParams
from foredraft.testing import OracleDrafter, SyntheticDrafter


@dataclass
class Planned:
    tokens: list[int]
    max_length: int
    id: int = 0
    num_prompt_tokens: int = 1
    params: SamplingParams = field(default_factory=SamplingParams)


def test_the_bonus_needs_room_too() -> None:
    """Kind: more is drafted than the request may still say."""
    planner = FixedPlanner(OracleDrafter(list(range(20))), 3)
    requests = [Planned([0] * length, 10) for length in range(3, 12)]
    assert [tree.num_draft_tokens for tree in planner.draft(requests)] == [3, 3, 3, 3, 2, 1, 0, 0, 0]
    assert planner.draft([]) == []


def test_a_drafter_that_has_given_up_says_so() -> None:
    drafter = OracleDrafter([1, 2, 3])
    planner = FixedPlanner(drafter, 3)
    assert planner.reason(0) == "asked for"
    drafter.problem = "a logit is not a number"  # type: ignore[attr-defined]
    assert planner.reason(0) == "asked for; a logit is not a number"
    among_others = FixedPlanner(first_with_grammar(FirstDrafter([OracleDrafter([1]), drafter])), 3)
    assert among_others.reason(0) == "asked for; a logit is not a number"


def test_the_drafter_hears_that_a_request_has_ended() -> None:
    drafter = SyntheticDrafter([1, 2, 3], 1.0)
    FixedPlanner(drafter, 3).forget(5)
    assert drafter.forgotten == [5]
