"""Which kernels to compute with."""

import os

from foredraft.errors import OptionError
from foredraft.kernels.operations import Kernels
from foredraft.kernels.reference import ReferenceKernels

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
    """Processors this process may use: its affinity, cut by a control group's quota where there is one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _quota_cores(cores)))


def _quota_cores(cores: int) -> int:
    """Whole processors that the control group's quota (cgroup v2, then v1) allows."""
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
    except (OSError, ValueError):
        try:
            with open("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", encoding="ascii") as file:
                quota = file.read().strip()
            with open("/sys/fs/cgroup/cpu/cpu.cfs_period_us", encoding="ascii") as file:
                period = file.read().strip()
        except OSError:
            return cores
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return cores  # "max", or -1: no limit
    return -(-int(quota) // int(period))
