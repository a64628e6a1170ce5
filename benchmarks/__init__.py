"""Benchmarks of foredraft, side by side with llama.cpp. Run `python -m benchmarks --help`."""
