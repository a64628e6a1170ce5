"""What the figures were measured on; without it they mean little."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import foredraft


def processor_name() -> str:
    """The processor's name as Linux gives it, elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def describe_machine() -> dict[str, Any]:
    """Processor, cores, load and versions. A load well above 0 at the start spoils the figures."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "num_cores": usable,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "foredraft": foredraft.__version__,
        "load_average_at_start": round(os.getloadavg()[0], 2),
    }


def describe_file(path: Path | str) -> dict[str, Any]:
    """Name and size of a model, not where it lies."""
    file = Path(path)
    if not file.exists():
        return {"name": str(path)}
    if file.is_dir():
        return {"name": file.name, "num_bytes": sum(f.stat().st_size for f in file.iterdir() if f.is_file())}
    return {"name": file.name, "num_bytes": file.stat().st_size}
