"""Memory and CPUs that this process may still use, on its machine and in its control groups."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_NONE = float("inf")


def free_memory(root: Path = Path("/")) -> float:
    """Bytes of available memory, of the machine and within each group's limit (cgroup v1 and v2). `root`:
    where `proc` and `sys` are."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    rooms = [float(found[1]) * 1024 if found else 0.0]
    for group in _groups(root, "memory"):
        for most, now in (("memory.max", "current"), ("memory.limit_in_bytes", "usage_in_bytes")):
            limit = _number(group / most)
            if limit is not None:
                rooms.append(limit - (_number(group / f"memory.{now}") or 0.0))
    return min(rooms)


def cpus(root: Path = Path("/")) -> float:
    """The number of CPUs that the groups' quotas allow. Infinite without a quota."""
    rates = [_NONE]
    for group in _groups(root, "cpu"):
        quota, _, period = _text(group / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")
        if quota.strip().isdigit() and period.strip().isdigit() and int(period):
            rates.append(int(quota) / int(period))
    return min(rates)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the groups with this controller, from the process's own to the outermost. In a
    container, a path may be the host's and not exist. An existing one is the container's."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        for base in (Path("sys/fs/cgroup", controller), Path("sys/fs/cgroup")):
            group = root / base / path.strip("/")
            while group != root / base:
                yield group
                group = group.parent
            yield group


def _number(file: Path) -> float | None:
    text = _text(file).strip()
    return float(text) if text.isdigit() else None


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
