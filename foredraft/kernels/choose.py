"""Which kernels to compute with."""

import os

from foredraft.errors import OptionError
from foredraft.kernels.operations import Kernels
from foredraft.kernels.reference import ReferenceKernels
from foredraft.machine import processor_quota

try:
    from foredraft.kernels.native import NativeKernels
except ImportError as error:  # most likely a Python that was started in a clone, whose sources hide what is installed
    raise ImportError(
        f"the compiled module of foredraft cannot be imported ({error}). In a clone of the repository, start Python in "
        "another folder, or install foredraft in editable form (pip install -e .)"
    ) from error


def choose_kernels(name: str = "native", *, threads: int | None = None) -> Kernels:
    """The kernels called `name`: "native" or "reference".

    threads: how many native kernels use; None: as many as this process may run on.
    The environment variable FOREDRAFT_ISA forces an instruction set on the native kernels.
    Raises OptionError for another name, fewer than 1 thread, or an instruction set the processor lacks.
    """
    if threads is not None and threads < 1:
        raise OptionError(f"--threads must be at least 1, got {threads}")
    if name == "native":
        return NativeKernels(threads or available_cores(), os.environ.get("FOREDRAFT_ISA", ""))
    if name == "reference":
        return ReferenceKernels()
    raise OptionError(f"unknown kernels {name!r}: choose native or reference")


def available_cores() -> int:
    """Processors this process may use: its affinity, cut by the quotas of its control groups. At least 1.

    Of a part of a processor nothing is used: a thread that has to wait for its turn makes all others wait.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = processor_quota()
    return max(1, cores if quota is None else min(cores, int(quota)))
