"""What this machine is: figures measured on another one mean little."""

import platform
from pathlib import Path


def processor_name() -> str:
    """The processor's name as Linux gives it, elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
