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

__all__ = ["BenchmarkError", "child", "ended", "peak_rss_kib"]

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
