"""What a process may still take: the least of the machine's and of each of its groups' limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

from handlers.spark.runtime.class_archive import cpus, free_memory

GIB = 1 << 30
MACHINE = {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable:  {8 * GIB // 1024} kB\n"}
FREE = 9223372036854771712


def machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, 8 * GIB, id="no groups"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/\n",
                "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
            },
            GIB,
            id="a container, v2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/system.slice/binlane.service/worker\n",
                "sys/fs/cgroup/system.slice/binlane.service/worker/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/binlane.service/worker/memory.current": f"{2 * GIB}\n",
                "sys/fs/cgroup/system.slice/binlane.service/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/system.slice/binlane.service/memory.current": f"{2 * GIB}\n",
            },
            2 * GIB,
            id="a unit of systemd",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/kubepods/pod1\n4:memory:/kubepods/pod1\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            },
            GIB,
            id="a container, v1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{FREE}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
            },
            8 * GIB,
            id="no limit, v1",
        ),
    ],
)
def test_the_least_of_all_limits_counts(tmp_path: Path, files: Mapping[str, str], expected: int) -> None:
    assert free_memory(machine(tmp_path, {**MACHINE, **files})) == expected


def test_where_nothing_is_known_there_is_no_memory(tmp_path: Path) -> None:
    assert free_memory(tmp_path) == 0


def test_a_quota_of_cpus_is_found_in_both_versions(tmp_path: Path) -> None:
    assert cpus(machine(tmp_path / "none", {"proc/self/cgroup": "0::/\n"})) == math.inf
    second = {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}
    second["sys/fs/cgroup/a/b/cpu.max"] = "max 100000\n"
    assert cpus(machine(tmp_path / "second", second)) == 0.5
    first = {"proc/self/cgroup": "5:cpu,cpuacct:/pod\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000\n"}
    first["sys/fs/cgroup/cpu/cpu.cfs_period_us"] = "100000\n"
    assert cpus(machine(tmp_path / "first", first)) == 1.5
    first["sys/fs/cgroup/cpu/cpu.cfs_quota_us"] = "-1\n"
    assert cpus(machine(tmp_path / "first", first)) == math.inf
