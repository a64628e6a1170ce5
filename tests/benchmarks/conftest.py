"""Makes the folder `benchmarks` at the root of the repository importable; it is not part of the package."""

import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
