"""Child processes that end together with the benchmark."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["BenchmarkError", "child", "children_of", "cpu_seconds", "ended", "peak_rss_kib"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Loaded before any fork: the child of a process with threads may call no more than this.
_LIBC = ctypes.CDLL(None)


class BenchmarkError(Exception):
    """A benchmark cannot continue. The message says why and what to do."""


@contextmanager
def child(
    command: Sequence[str | Path],
    *,
    stdout: IO[bytes] | int,
    stderr: IO[bytes] | int,
    stdin: int = subprocess.DEVNULL,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command in a separate process group (Ctrl-C is ours to handle) and kill it at the end."""
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, nothing that a thread could hold
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def peak_rss_kib(pid: int) -> int:
    """Return the process's peak resident memory, as the kernel reports it."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) if found else 0


def children_of(pid: int) -> list[int]:
    """Return the process's children. Each is listed by the thread that made it, or by another one."""
    lists = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
    return [int(one) for each in lists for one in each.read_text(encoding="ascii").split()]


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads (proc(5): fields 14 and 15), in steps of 10 ms."""
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    fields = stat.rpartition(")")[2].split()  # from field 3, because the name before it may contain anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Send SIGTERM. Return whether the process ended within `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
