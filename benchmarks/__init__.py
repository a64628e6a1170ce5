"""The benchmark of speculation, side by side with llama.cpp. Run `python -m benchmarks --help`."""
