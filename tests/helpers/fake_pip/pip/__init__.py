"""A stand-in for pip, found first by `python -m pip` when its folder is on PYTHONPATH."""
