"""Sockets, pipes and child processes: who holds which end, and what becomes of it when a process ends."""

from __future__ import annotations

import errno
import signal
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .scheduler import Killed, Process, Scheduler, Task

__all__ = ["Child", "End", "Kernel"]


class End:
    """One end of a socket or a pipe, however many processes hold it."""

    def __init__(self) -> None:
        self.peer = self
        self.holders = 0
        self.data = bytearray()
        """What nobody has read yet."""
        self.passed: deque[tuple[bytes, End]] = deque()
        """Descriptors on their way, each with what was sent with it."""
        self.shut = False
        self.sends_no_more = False
        self.reset = False
        """The other end was closed with something unread, or the connection is lost."""
        self.waiting: list[Task] = []
        self.signal: int | None = None
        """What its owner gets when the other end is closed. None: nothing."""
        self.owner: Child | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.is_lost or self.peer.sends_no_more

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be sent any more."""
        return self.shut or self.reset or not self.peer.holders


class Child(Process):
    """A process that another one has started."""

    def __init__(self, name: str, pid: int, parent: Any) -> None:
        super().__init__(name)
        self.pid = pid
        self.parent = parent
        self.code: int | None = None
        """How it has ended. None: it has not."""
        self.waiting: list[Task] = []
        self.program: Any = None
        """The worker's object in it that answers requests."""


class Kernel:
    """Descriptors by process and number."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.children: list[Child] = []
        self.full = False
        """No process can be started."""
        self.start_seconds = 1.0
        """The most that a process takes until its program begins."""
        self.refused: Callable[[Any], None] = lambda parent: None
        self.begun: Callable[[Child], None] = lambda child: None
        self.ended: Callable[[Child], None] = lambda child: None
        self.decoded: Callable[[Child], None] = lambda child: None
        """Told of what a child process does."""
        self._ends: dict[Process, dict[int, End]] = {}
        self._next = 10_000

    # -- descriptors

    def pair(self, process: Process) -> tuple[int, int]:
        one, other = End(), End()
        one.peer, other.peer = other, one
        return self.hold(process, one), self.hold(process, other)

    def hold(self, process: Process, end: End, number: int | None = None) -> int:
        if number is None:
            self._next += 1
            number = self._next
        end.holders += 1
        self._ends.setdefault(process, {})[number] = end
        return number

    def ends(self, process: Process) -> list[End]:
        return list(self._ends.get(process, {}).values())

    def end(self, process: Process, number: int) -> End:
        """Raises OSError."""
        found = self._ends.get(process, {}).get(number)
        if found is None:
            raise OSError(errno.EBADF, "Bad file descriptor")
        return found

    def close(self, process: Process, number: int) -> None:
        """Raises OSError."""
        end = self.end(process, number)
        del self._ends[process][number]
        self.let_go(end)

    def let_go(self, end: End) -> None:
        end.holders -= 1
        if end.holders:
            return
        for _, each in end.passed:
            self.let_go(each)
        peer = end.peer
        peer.reset = peer.reset or bool(end.data)
        self.wake(peer)
        if peer.signal is not None and peer.owner is not None:
            self.tell(peer.owner, peer.signal)

    def lose(self, end: End) -> None:
        """What the end waits for does not arrive; the process at the other end lives on."""
        end.reset = True
        end.data.clear()
        self.wake(end)

    def wake(self, end: End) -> None:
        waiting, end.waiting = end.waiting, []
        for task in waiting:
            self.scheduler.wake(task)

    # -- processes

    def start(self, parent: Any, passed: Sequence[int], main: Callable[[], None]) -> Child:
        """Raises OSError."""
        if self.full:
            self.refused(parent)
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        number = len(self.children)
        child = Child(f"{parent.name}/c{number}", 1000 + number, parent)
        for each in passed:
            self.hold(child, self.end(parent, each), each)
        self.children.append(child)
        self.begun(child)
        self.scheduler.spawn(f"{child.name} main", child, lambda: self._run(child, main))
        return child

    def of(self, parent: Process) -> list[Child]:
        """Those that live."""
        return [each for each in self.children if each.parent is parent and each.code is None]

    def tell(self, child: Child, number: int) -> None:
        """A signal arrives. All but SIGKILL wait until it is thawed."""
        if number == signal.SIGKILL or not child.frozen:
            self.exit(child, -number)
        else:
            child.held.append(lambda: self.exit(child, -number))

    def exit(self, child: Child, code: int) -> None:
        if child.code is not None:
            return
        child.code = code
        self.scheduler.kill(child)
        self.died(child)
        waiting, child.waiting = child.waiting, []
        for task in waiting:
            self.scheduler.wake(task)
        self.ended(child)

    def crash(self) -> None:
        """The child process whose turn it is ends. Raises Killed."""
        task = self.scheduler.task
        assert task is not None
        assert isinstance(task.process, Child)
        self.exit(task.process, -signal.SIGSEGV)
        raise Killed

    def died(self, process: Process) -> None:
        """What it held is closed."""
        for end in self._ends.pop(process, {}).values():
            self.let_go(end)

    def _run(self, child: Child, main: Callable[[], None]) -> None:
        self.scheduler.park(self.scheduler.random.random() * self.start_seconds)
        main()
        self.exit(child, 0)
