"""Run one command, and end it however its parent ends.

A separate script: `python broker_guard.py GRACE_SECONDS TEMPORARY_FOLDER COMMAND...`, whose standard input is
a pipe from the parent. It prints the command's process id on one line. The command's output goes to standard
error. The pipe's end, a new parent, SIGTERM or SIGINT end the command: SIGTERM, then SIGKILL after the grace
period. If the guard is killed, the kernel kills the command.

A parent that ends the command on purpose writes KEEP. Without it the parent has died, and the guard removes
the temporary folder (empty string: none), because nothing else will."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

KEEP = b"k"

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_POLL_SECONDS = 0.2


def guarded(
    command: Sequence[str], grace: float, output: int, folder: Path | None = None, *, temporary: bool = False
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start a command and its guard. Return the guard and the command's process id (None: it did not start).

    `output`: the file descriptor for its output. `temporary`: remove `folder` if this process dies."""
    guard = subprocess.Popen(
        # -I and -S: the guard needs only the standard library, and starts in a few milliseconds.
        [sys.executable, "-I", "-S", __file__, str(grace), str(folder) if temporary else "", *command],
        bufsize=0,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=output,
        start_new_session=True,  # a terminal's Ctrl-C reaches this process, which then ends the command
    )
    assert guard.stdout is not None
    answer = guard.stdout.readline()
    guard.stdout.close()
    return guard, int(answer) if answer else None


def end(guard: subprocess.Popen[bytes]) -> None:
    """Tell a guard to end its command."""
    assert guard.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # both have already ended
        guard.stdin.write(KEEP)
    guard.stdin.close()


def main(arguments: list[str]) -> int:
    """Return the command's exit code, as in a shell: for a signal, 128 plus its number."""
    grace_seconds, temporary_folder, *command = arguments
    parent = os.getppid()
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - the guard has only one thread
    )
    with contextlib.suppress(BrokenPipeError):  # the parent has died, which the loop will notice
        os.write(sys.stdout.fileno(), f"{child.pid}\n".encode())
    orphaned = False
    while child.poll() is None and not stopping and not orphaned:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _POLL_SECONDS)
        if readable and os.read(sys.stdin.fileno(), 1) == KEEP:
            break
        # Checked too, because a process forked by the parent may keep the pipe open.
        orphaned = bool(readable) or os.getppid() != parent
    _end(child, float(grace_seconds))
    if orphaned and temporary_folder:
        shutil.rmtree(temporary_folder, ignore_errors=True)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _die_with(guard: int) -> Callable[[], None]:
    """Return the child's first step: ask the kernel to kill it if the guard dies."""
    libc = ctypes.CDLL(None, use_errno=True)

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # it died before the request
            os._exit(1)

    return before_exec


def _end(child: subprocess.Popen[bytes], grace_seconds: float) -> None:
    if child.poll() is not None:
        return
    child.terminate()
    child.send_signal(signal.SIGCONT)  # a stopped process could not handle SIGTERM
    try:
        child.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
