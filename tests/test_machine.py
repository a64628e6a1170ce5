"""What a process may use of the machine: quotas and limits of control groups, from files as the system shows them."""

import os
from pathlib import Path

import pytest

from foredraft import machine
from foredraft.kernels import choose
from foredraft.machine import available_memory, processor_quota

V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
GB = 10**9


def system(root: Path, files: dict[str, str], *, memory: int = 64 * GB) -> Path:
    """A root folder with these files, and with so many bytes of memory available."""
    kilobytes = memory // 1024
    files = {"proc/meminfo": f"MemTotal: 99999999 kB\nMemFree: 1 kB\nMemAvailable:  {kilobytes} kB\n", **files}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


def v1_mount(controllers: str, root: str = "/", place: str = "") -> str:
    where = place or f"/sys/fs/cgroup/{controllers}"
    return f"32 31 0:29 {root} {where} rw,nosuid shared:9 - cgroup cgroup rw,{controllers}"


QUOTAS: dict[str, tuple[dict[str, str], float | None]] = {
    "no groups": ({}, None),
    "no limit": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, None),
    "a container's own": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2.0),
    "nested": (
        {"proc/self/cgroup": "0::/user.slice/x.scope", "sys/fs/cgroup/user.slice/x.scope/cpu.max": "200000 100000"},
        2.0,
    ),
    "the tightest of those around": (
        {
            "proc/self/cgroup": "0::/a/b",
            "proc/self/mountinfo": V2,
            "sys/fs/cgroup/a/cpu.max": "150000 100000",
            "sys/fs/cgroup/a/b/cpu.max": "765000 100000",
        },
        1.5,
    ),
    "not of a group beside it": (
        {"proc/self/cgroup": "0::/a", "proc/self/mountinfo": V2, "sys/fs/cgroup/b/cpu.max": "100000 100000"},
        None,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/\n3:cpu,cpuacct:/docker/abc",
            "proc/self/mountinfo": v1_mount("cpu,cpuacct"),
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "250000",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        2.5,
    ),
    "version 1 without mounts": (
        {
            "proc/self/cgroup": "3:cpuacct,cpu:/docker/abc",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us": "50000",
            "sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
        },
        0.5,
    ),
    "a container that sees its own group only": (
        {
            "proc/self/cgroup": "3:cpu,cpuacct:/docker/abc",
            "proc/self/mountinfo": v1_mount("cpu,cpuacct", "/docker/abc"),
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        3.0,
    ),
    "mounted elsewhere": (
        {
            "proc/self/cgroup": "3:cpu:/x",
            "proc/self/mountinfo": v1_mount("cpu", place="/my\\040groups/cpu"),
            "my groups/cpu/x/cpu.cfs_quota_us": "400000",
            "my groups/cpu/x/cpu.cfs_period_us": "100000",
        },
        4.0,
    ),
    "outside of what it sees": (
        {"proc/self/cgroup": "0::/../x", "proc/self/mountinfo": V2, "sys/fs/cgroup/cpu.max": "500000 100000"},
        5.0,
    ),
    "both versions": (
        {
            "proc/self/cgroup": "3:cpu:/\n0::/a",
            "proc/self/mountinfo": f"{v1_mount('cpu')}\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "600000",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        },
        6.0,
    ),
    "nonsense": (
        {"proc/self/cgroup": "x", "proc/self/mountinfo": "1 2 - cgroup2", "sys/fs/cgroup/cpu.max": "none of three"},
        None,
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_the_quota_of_control_groups(tmp_path: Path, name: str) -> None:
    """Kind: a quota is looked for in the outermost group only, so that all processors are used."""
    files, wanted = QUOTAS[name]
    assert processor_quota(system(tmp_path, files)) == wanted


@pytest.mark.parametrize(
    ("quota", "cores"), [("765000", 7), ("150000", 1), ("50000", 1), ("200000", 2), ("99900000", 16), ("max", 16)]
)
def test_of_a_part_of_a_processor_nothing_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
) -> None:
    """Kind: a quota of 7.65 processors makes 8 threads, which wait for each other."""
    root = system(tmp_path, {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{quota} 100000"})
    monkeypatch.setattr(choose, "processor_quota", lambda: processor_quota(root))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    assert choose.available_cores() == cores


LIMITS: dict[str, tuple[dict[str, str], int]] = {
    "no groups": ({}, 64 * GB),
    "no limit": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max"}, 64 * GB),
    "a container's own": (
        {
            "proc/self/cgroup": "0::/",
            "sys/fs/cgroup/memory.max": f"{8 * GB}",
            "sys/fs/cgroup/memory.high": "max",
            "sys/fs/cgroup/memory.current": f"{3 * GB}",
            "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GB}\nactive_file {GB}",
        },
        6 * GB,
    ),
    "nested, and throttled before": (
        {
            "proc/self/cgroup": "0::/a/b",
            "sys/fs/cgroup/a/memory.max": f"{9 * GB}",
            "sys/fs/cgroup/a/memory.high": f"{4 * GB}",
            "sys/fs/cgroup/a/memory.current": f"{GB}",
            "sys/fs/cgroup/a/b/memory.max": f"{8 * GB}",
            "sys/fs/cgroup/a/b/memory.current": f"{GB}",
        },
        3 * GB,
    ),
    "above its limit": (
        {"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1000", "sys/fs/cgroup/memory.current": "2000"},
        0,
    ),
    "nothing told of its use": ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1000"}, 1000),
    "version 1": (
        {
            "proc/self/cgroup": "3:memory:/docker/abc\n0::/",
            "proc/self/mountinfo": v1_mount("memory"),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{20 * GB}",
            "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": f"{6 * GB}",
            "sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes": f"{5 * GB}",
            "sys/fs/cgroup/memory/docker/abc/memory.stat": f"inactive_file 7\ntotal_inactive_file {2 * GB}",
        },
        3 * GB,
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_the_memory_that_control_groups_leave(tmp_path: Path, name: str) -> None:
    """Kind: the memory of the machine is planned with, and the process is stopped in a container that has less."""
    files, wanted = LIMITS[name]
    assert available_memory(system(tmp_path, files)) == pytest.approx(wanted, abs=1024)


def test_a_system_that_tells_little(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 0
    assert available_memory() > 0
    assert machine.processor_name()
