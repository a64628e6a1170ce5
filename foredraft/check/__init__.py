"""Is the text the same with speculation as without? The proof on one's own model: `foredraft check`."""

from foredraft.check.grid import Cell, Plan, make_plan
from foredraft.check.run import Report, run

__all__ = ["Cell", "Plan", "Report", "make_plan", "run"]
