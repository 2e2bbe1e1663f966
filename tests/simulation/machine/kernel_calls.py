"""`socket`, `subprocess`, `os`, `fcntl` ... as the worker uses them for its child processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import types
from collections.abc import Callable, Sequence
from functools import partial

from .kernel import Child, End, Kernel
from .scheduler import Killed, Process, current

__all__ = [
    "ChildFcntl",
    "KernelOs",
    "KernelSelect",
    "KernelSocket",
    "KernelSubprocess",
    "no_signals",
]

_HALVED = 0.05
"""How often what is sent arrives in two pieces."""


class _Socket:
    def __init__(self, kernel: Kernel, process: Process, number: int) -> None:
        self._kernel, self._process, self._number = kernel, process, number

    def fileno(self) -> int:
        return self._number

    def end(self) -> End:
        return self._kernel.end(self._process, self._number)

    def close(self) -> None:
        try:
            self._kernel.close(self._process, self._number)
        except OSError:  # a second time
            return

    def shutdown(self, how: int) -> None:
        if how == socket.SHUT_WR:
            self.end().sends_no_more = True
            self._kernel.wake(self.end().peer)
            return
        assert how == socket.SHUT_RDWR
        for end in (self.end(), self.end().peer):
            end.shut = True
            self._kernel.wake(end)

    def settimeout(self, seconds: None) -> None:
        """Nothing has a time limit here."""

    def sendall(self, data: bytes) -> None:
        scheduler = self._kernel.scheduler
        scheduler.preempt()
        half = len(data) // 2 if scheduler.random.random() < _HALVED else 0
        for piece in (data[:half], data[half:]) if half else (data,):
            end = self.end()
            if end.is_lost or end.sends_no_more:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")
            peer = end.peer
            peer.data += piece
            self._kernel.wake(peer)
            if half:
                scheduler.preempt()

    def recv(self, most: int, flags: int = 0) -> bytes:
        end = self.end()
        if flags == socket.MSG_PEEK | socket.MSG_DONTWAIT:
            if not (end.data or end.is_over):
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return bytes(end.data[:most])
        assert flags in (0, socket.MSG_WAITALL)
        least = most if flags else 1
        self.wait(lambda: len(end.data) >= least)
        found = bytes(end.data[:most])
        if not found and end.reset:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        del end.data[:most]
        return found

    def wait(self, so: Callable[[], bool]) -> None:
        """Until that is so, or nothing more comes."""
        scheduler, end = self._kernel.scheduler, self.end()
        scheduler.preempt()
        task = scheduler.task
        assert task is not None
        while not so() and not end.is_over:
            end.waiting.append(task)
            scheduler.park()
            if task in end.waiting:
                end.waiting.remove(task)


class KernelSocket:
    """The module `socket`."""

    SHUT_RDWR, SHUT_WR, MSG_WAITALL = socket.SHUT_RDWR, socket.SHUT_WR, socket.MSG_WAITALL
    MSG_PEEK, MSG_DONTWAIT = socket.MSG_PEEK, socket.MSG_DONTWAIT

    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel

    def socket(self, *, fileno: int) -> _Socket:
        return _Socket(self._kernel(), _process(), fileno)

    def socketpair(self) -> tuple[_Socket, _Socket]:
        kernel, process = self._kernel(), _process()
        kernel.scheduler.preempt()
        one, other = kernel.pair(process)
        return _Socket(kernel, process, one), _Socket(kernel, process, other)

    def send_fds(self, through: _Socket, buffers: list[bytes], numbers: list[int]) -> None:
        kernel, end = self._kernel(), through.end()
        kernel.scheduler.preempt()
        if end.is_lost:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        [number], [data] = numbers, buffers
        passed = kernel.end(_process(), number)
        passed.holders += 1
        end.peer.passed.append((data, passed))
        kernel.wake(end.peer)

    def recv_fds(self, through: _Socket, most: int, numbers: int) -> tuple[bytes, list[int], int, None]:
        kernel, end = self._kernel(), through.end()
        through.wait(lambda: bool(end.passed))
        if not end.passed:
            return b"", [], 0, None
        data, passed = end.passed.popleft()
        number = kernel.hold(_process(), passed)
        kernel.let_go(passed)
        return data, [number], 0, None


class KernelSubprocess:
    """The module `subprocess`. `main`: what a child process runs, whatever its command says, with the two
    descriptors that it names."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self, kernel: Callable[[], Kernel], main: Callable[[int, int], None]) -> None:
        self._kernel, self._main = kernel, main

    def Popen(self, command: Sequence[str], *, pass_fds: Sequence[int], stdin: int) -> _Popen:  # noqa: N802
        kernel = self._kernel()
        kernel.scheduler.preempt()
        main = partial(self._main, *map(int, command[5:7]))
        return _Popen(kernel, kernel.start(_process(), pass_fds, main))


class _Popen:
    def __init__(self, kernel: Kernel, child: Child) -> None:
        self._kernel, self._child = kernel, child
        self.pid = child.pid

    def wait(self, timeout: float | None = None) -> int:
        scheduler, child = self._kernel.scheduler, self._child
        task = scheduler.task
        assert task is not None
        scheduler.preempt()
        end = None if timeout is None else scheduler.now + timeout
        while child.code is None:
            if end is not None and scheduler.now >= end:
                raise subprocess.TimeoutExpired("child", timeout or 0.0)
            child.waiting.append(task)
            scheduler.park(None if end is None else end - scheduler.now)
            if task in child.waiting:
                child.waiting.remove(task)
        return child.code

    def kill(self) -> None:
        self._kernel.tell(self._child, signal.SIGKILL)


class KernelOs:
    """Of `os`: pipes, and what a child process asks for."""

    O_ASYNC = os.O_ASYNC

    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel

    def pipe(self) -> tuple[int, int]:
        return self._kernel().pair(_process())

    def close(self, number: int) -> None:
        self._kernel().close(_process(), number)

    def set_inheritable(self, number: int, inheritable: bool) -> None:
        """A child process of a simulation starts none itself."""

    def register_at_fork(self, *, after_in_child: Callable[[], object]) -> None:
        """As above."""

    def getpid(self) -> int:
        return _child().pid

    def _exit(self, code: int) -> None:
        self._kernel().exit(_child(), code)
        raise Killed


class ChildFcntl:
    """Of `fcntl`: a signal when the other end of a pipe is closed."""

    F_SETOWN, F_SETSIG, F_GETFL, F_SETFL = fcntl.F_SETOWN, fcntl.F_SETSIG, fcntl.F_GETFL, fcntl.F_SETFL

    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel
        self._signals: dict[End, int] = {}

    def fcntl(self, number: int, command: int, argument: int = 0) -> int:
        child = _child()
        end = self._kernel().end(child, number)
        if command == fcntl.F_SETOWN:
            end.owner = child
        elif command == fcntl.F_SETSIG:
            self._signals[end] = argument
        elif command == fcntl.F_SETFL and argument & os.O_ASYNC:
            end.signal = self._signals.pop(end, signal.SIGIO)
        return 0


class KernelSelect:
    def __init__(self, kernel: Callable[[], Kernel]) -> None:
        self._kernel = kernel

    def select(
        self, read: list[int], write: list[int], other: list[int], seconds: float
    ) -> tuple[list[int], ...]:
        assert (write, other, seconds) == ([], [], 0)
        ends = {number: self._kernel().end(_process(), number) for number in read}
        return [number for number, end in ends.items() if end.data or end.is_over], [], []


no_signals = types.SimpleNamespace(
    signal=lambda *_: None,
    SIGINT=signal.SIGINT,
    SIGTERM=signal.SIGTERM,
    SIGHUP=signal.SIGHUP,
    SIGKILL=signal.SIGKILL,
    SIG_DFL=signal.SIG_DFL,
)


def _process() -> Process:
    task = current().task
    assert task is not None
    return task.process


def _child() -> Child:
    process = _process()
    assert isinstance(process, Child)
    return process
