"""How much to draft, by which drafter."""

from foredraft.planner.auto import AutoPlanner
from foredraft.planner.base import Plan, Planner, RoundResult, RoundTimes
from foredraft.planner.calibration import CalibrationStore
from foredraft.planner.fixed import FixedPlanner
from foredraft.planner.make import make_auto_planner, make_cost_model
from foredraft.planner.profile import Learned, Profile, ProfileError

__all__ = [
    "AutoPlanner",
    "CalibrationStore",
    "FixedPlanner",
    "Learned",
    "Plan",
    "Planner",
    "Profile",
    "ProfileError",
    "RoundResult",
    "RoundTimes",
    "make_auto_planner",
    "make_cost_model",
]
