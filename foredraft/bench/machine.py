"""What the figures were measured on; without it they mean little."""

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import foredraft
from foredraft.kernels.choose import available_cores
from foredraft.machine import processor_name


def describe_machine() -> dict[str, Any]:
    """Processor, cores, load and versions. A load well above 0 at the start spoils the figures."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor_name(),
        "num_cores": available_cores(),
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
