"""Benchmarks: what the machine can do, what of it is reached, and what others reach on the same file."""
