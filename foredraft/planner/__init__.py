"""How much to draft."""

from foredraft.planner.fixed import FixedPlanner

__all__ = ["FixedPlanner"]
