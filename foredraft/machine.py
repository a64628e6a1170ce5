"""What this machine is, and how much of it this process may use: its processor, its share of time, its memory.

Control groups are read as cgroups(7) describes them, versions 1 and 2. A process is in a group inside of groups, and
the tightest limit of them all counts. Functions take the folder that stands for / so that tests can put one in place.
"""

import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
_USUAL_PLACES = {
    "": ("sys/fs/cgroup", "sys/fs/cgroup/unified"),
    "cpu": ("sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu"),
    "memory": ("sys/fs/cgroup/memory",),
}
"""Where groups lie if the mounts cannot be read: of version 2 (no name), and of controllers of version 1."""


def processor_name() -> str:
    """The processor's name as Linux gives it, elsewhere as Python does."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def processor_quota(root: Path = _ROOT) -> float | None:
    """How many processors' time the control groups of this process allow it; None: no limit."""
    quotas: list[float] = []
    for group in _groups("", root):
        quotas += _quota(*_text(group / "cpu.max").split()[:2])
    for group in _groups("cpu", root):
        quotas += _quota(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us"))
    return min(quotas, default=None)


def available_memory(root: Path = _ROOT) -> int:
    """Bytes of memory this process may still take without swapping or being stopped.

    That is what the system counts as available, or less where a control group has less left. Files that were not read
    lately count as free; what a process has mapped, such as weights in use, does not.
    """
    left = [_system_memory(root)]
    for group in _groups("", root):
        limits = [limit for name in ("memory.max", "memory.high") if (limit := _number(group / name)) is not None]
        left += _left(limits, _number(group / "memory.current"), _field(group / "memory.stat", "inactive_file"))
    for group in _groups("memory", root):
        limit, used = _number(group / "memory.limit_in_bytes"), _number(group / "memory.usage_in_bytes")
        left += _left([] if limit is None else [limit], used, _field(group / "memory.stat", "total_inactive_file"))
    return min(left)


def _quota(quota: str = "", period: str = "") -> list[float]:
    """Processors that a quota allows; nothing for "max" or -1, which are no limit, and where there is none."""
    if not quota.isdigit() or not period.isdigit() or int(period) == 0 or int(quota) == 0:
        return []
    return [int(quota) / int(period)]


def _left(limits: list[int], used: int | None, reclaimable: int | None) -> list[int]:
    """What the tightest limit leaves, in bytes; nothing where there is no limit."""
    if not limits or used is None:
        return limits
    return [max(0, min(limits) - max(0, used - (reclaimable or 0)))]


def _system_memory(root: Path) -> int:
    available = _field(root / "proc/meminfo", "MemAvailable:")
    if available is not None:
        return 1024 * available
    names = [name for name in ("SC_AVPHYS_PAGES", "SC_PHYS_PAGES") if name in os.sysconf_names]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf(names[0])


def _groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's groups, from its own outwards. controller: of version 1; empty: version 2."""
    for place, mounted in _mounts(controller, root):
        inner = _below(_own_group(controller, root), mounted)
        for group in (inner, *inner.parents):
            yield place / group


def _own_group(controller: str, root: Path) -> PurePosixPath:
    """The group as /proc/self/cgroup names it, in lines such as 4:cpu,cpuacct:/docker/ab and 0::/user.slice."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if (controller in names.split(",")) if controller else not names:
            return PurePosixPath(path or "/")
    return PurePosixPath("/")


def _below(group: PurePosixPath, mounted: PurePosixPath) -> PurePosixPath:
    """The group's path below the mount of group `mounted`; a container may have its own group mounted, and no other."""
    if ".." in group.parts or not group.is_relative_to(mounted):
        return PurePosixPath(".")
    return group.relative_to(mounted)


def _mounts(controller: str, root: Path) -> list[tuple[Path, PurePosixPath]]:
    """Where groups can be looked at, and which group is mounted there."""
    found: list[tuple[Path, PurePosixPath]] = []
    for line in _text(root / "proc/self/mountinfo").splitlines():
        # id, parent, device, what is mounted, where, options, more -, kind of file system, source, its options
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        fits = kind[0] == "cgroup" and controller in kind[2].split(",") if controller else kind[0] == "cgroup2"
        if fits:
            found.append((root / _unescaped(fields[4]).lstrip("/"), PurePosixPath(_unescaped(fields[3]))))
    return found or [(root / place, PurePosixPath("/")) for place in _USUAL_PLACES[controller]]


def _unescaped(text: str) -> str:
    """Spaces and the like are written as \\040 there."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _text(path: Path) -> str:
    """The content of a file of the system; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() else None


def _field(path: Path, name: str) -> int | None:
    """The number behind a name at the start of a line."""
    for line in _text(path).splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None
