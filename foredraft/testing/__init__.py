"""Test doubles for anyone who builds on foredraft: a target with known probabilities, and scripted drafters."""

from foredraft.testing.drafters import DistDrafter, OracleDrafter, ScriptedDrafter, WrongDrafter
from foredraft.testing.synthetic import SimulatedClock, SyntheticDrafter
from foredraft.testing.table_model import TableModel

__all__ = [
    "DistDrafter",
    "OracleDrafter",
    "ScriptedDrafter",
    "SimulatedClock",
    "SyntheticDrafter",
    "TableModel",
    "WrongDrafter",
]
