from dataclasses import dataclass

from foredraft.planner import FixedPlanner


@dataclass
class Planned:
    tokens: list[int]
    max_length: int


def test_the_bonus_needs_room_too() -> None:
    """Kind: more is drafted than the request may still say."""
    planner = FixedPlanner(3)
    requests = [Planned([0] * length, 10) for length in range(3, 12)]
    assert planner.budgets(requests) == [3, 3, 3, 3, 2, 1, 0, 0, 0]
    assert planner.budgets([]) == []
