"""How much to draft, by which drafter."""

from foredraft.planner.base import Planned, Planner, RoundTimes, room
from foredraft.planner.fixed import FixedPlanner

__all__ = ["FixedPlanner", "Planned", "Planner", "RoundTimes", "room"]
