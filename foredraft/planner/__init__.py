"""How much to draft, by which drafter."""

from foredraft.planner.auto import AutoPlanner
from foredraft.planner.base import Planned, Planner, RoundTimes, room
from foredraft.planner.calibration import CalibrationStore
from foredraft.planner.fixed import FixedPlanner
from foredraft.planner.make import make_auto_planner
from foredraft.planner.profile import Learned, Profile, ProfileError, Recommended

__all__ = [
    "AutoPlanner",
    "CalibrationStore",
    "FixedPlanner",
    "Learned",
    "Planned",
    "Planner",
    "Profile",
    "ProfileError",
    "Recommended",
    "RoundTimes",
    "make_auto_planner",
    "room",
]
