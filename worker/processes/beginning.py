"""How a child process begins: forked before the worker has threads, and later as a program of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[4:]; import binlane; from worker.processes.child import main; "
    "main(*map(int, sys.argv[2:4]))"
)
_THREADS = Path("/proc/self/task")


@dataclass(frozen=True)
class Begun:
    """A child process, and what leads to it."""

    child: subprocess.Popen[bytes] | Forked
    control: socket.socket
    """Passes connections. The process ends when it is closed."""
    life: int
    """The process is killed when it is closed."""

    def close(self) -> None:
        os.close(self.life)
        self.control.close()


def begun() -> Begun:
    """Start the program of a child process. Raises OSError."""
    control, theirs = socket.socketpair()
    read, life = os.pipe()
    try:
        # No secrets here: they come with the configuration, through a connection.
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, "binlane", str(theirs.fileno()), str(read), *sys.path],
            pass_fds=(theirs.fileno(), read),
            stdin=subprocess.DEVNULL,
        )
    except BaseException:
        os.close(life)
        control.close()
        raise
    finally:
        theirs.close()
        os.close(read)
    return Begun(child, control, life)


def forked(count: int) -> list[Begun]:
    """Fork child processes from this one, which has imported what they need. Returns none if it has threads:
    a lock of theirs might stay held in a copy. Also without /proc, as on macOS, whose libraries have some."""
    made: list[Begun] = []
    with suppress(OSError):
        while len(made) < count and len(list(_THREADS.iterdir())) == 1:
            made.append(_fork(made))
    return made


def _fork(others: list[Begun]) -> Begun:
    from worker.processes.child import main  # noqa: PLC0415 - few workers have child processes

    control, theirs = socket.socketpair()
    read, life = os.pipe()
    pid = os.fork()
    own = Begun(Forked(pid), control, life)
    if pid == 0:
        try:
            for each in (*others, own):
                each.close()
            with Path(os.devnull).open("rb") as nothing:
                os.dup2(nothing.fileno(), 0)
            main(theirs.detach(), read)
        except Exception as error:  # this copy must not go on as another worker
            sys.exit(str(error))
        sys.exit()
    theirs.close()
    os.close(read)
    return own


class Forked:
    """As `subprocess.Popen`, for one thread that waits."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        status = 0
        with suppress(ChildProcessError):  # else nobody knows: the worker ignores SIGCHLD
            _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
