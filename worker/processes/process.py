"""One child process, as the worker sees it."""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from handlers.hanging_calls import Bounded
from worker.attempts.steps import ProcessAway
from worker.processes.beginning import Begun, begun
from worker.processes.messages import EVENTS, REQUESTS, Frames, Listener, unpacked_error

_END_SECONDS = 5.0
_LOOK_SECONDS = 1.0

asking: dict[int, tuple[Process, int, Frames]] = {}
"""Thread -> the process, and the number and end of the connection where it waits for an answer."""
_leaving = threading.Lock()
"""Held while one leaves `asking`, so that only a connection in use is ended."""


@dataclass(eq=False)
class Known:
    """What a child process has been given."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is given something, except tables and handlers."""
    given: dict[str, Any] = field(default_factory=lambda: defaultdict(int))
    """Request -> the configuration that it was given last, or how many things (see `Given`)."""
    handlers: set[int] = field(default_factory=set)
    """Numbers of its open handlers."""
    opening: dict[int, threading.Lock] = field(default_factory=dict)
    """Locks of its handlers, each held while it is opened."""
    tables: set[int] = field(default_factory=set)
    """Tokens of the tables that it knows."""


class Process:
    """Any thread may ask. Each request in progress has a connection of its own."""

    def __init__(
        self,
        number: int,
        listener: Listener,
        ended: Callable[[Process], None],
        own: Begun | None = None,
    ) -> None:
        """Start it, unless it has begun (`own`). `ended` is called once, from another thread, when it has
        ended. Raises OSError."""
        self.number = number
        self.knows = Known()
        self.released: deque[int] = deque()
        """Tickets of batches that it may forget. Told with the next request."""
        self._listener = listener
        self._ended = ended
        self._connecting = threading.Lock()  # for one new connection at a time
        self._numbers = itertools.count()
        self._free: list[tuple[int, Frames]] = []
        self._connections: list[Frames] = []
        self._over = threading.Event()
        self._code = 0
        """Its exit code, once it is over."""
        self._look: Bounded[str] | None = None
        self._own = own or begun()
        self._child = self._own.child
        try:
            events = self._connect(EVENTS)
        except BaseException as error:
            self._child.kill()
            code = self._child.wait()
            self._own.close()
            if isinstance(error, BrokenPipeError):
                raise OSError(f"it ended at its start: {_how(code)}") from error
            raise
        threading.Thread(target=self._watch, name=f"process-{number}-end", daemon=True).start()
        threading.Thread(target=self._listen, args=(events,), name=f"process-{number}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def how_ended(self) -> str:
        """How it has ended. It is killed if it lives on after a connection was lost: what it still runs is to
        be tried again."""
        self._end_soon()
        self._over.wait()
        return _how(self._code)

    def ask(self, name: str, *rest: Any, latest: Callable[[], float] | None = None) -> Any:
        """Return the child's answer, or raise its error. Raises OSError or EOFError if it has ended.

        `latest`: of a call, sent as the last argument. Raises ProcessAway if that may not begin any more."""
        try:
            number, frames = self._free.pop()
        except IndexError:
            with self._connecting:
                frames = self._connect(REQUESTS)
                number = next(self._numbers)  # as the child counts
        thread = threading.get_ident()
        asking[thread] = self, number, frames
        succeeded = None
        try:
            # After `asking` is set: `begin_no_more` finds it there, or `latest` finds the revocation.
            frames.send((name, *rest) if latest is None else (name, *rest, latest()))
            succeeded, answer = frames.receive()
        except OSError:
            if frames.last:
                raise ProcessAway("a partition was revoked", 0.0) from None
            raise
        finally:
            with _leaving:
                del asking[thread]
            if succeeded is None or frames.last:
                self._connections.remove(frames)
                frames.close()
            else:
                self._free.append((number, frames))
        if not succeeded:
            raise unpacked_error(answer)
        return answer

    def end(self) -> None:
        """Let it end, and kill it if it does not. What it still runs is lost."""
        self._own.control.close()
        self._end_soon()

    def _end_soon(self) -> None:
        if not self._over.wait(_END_SECONDS):
            self._child.kill()

    def stack(self, number: int) -> str:
        """Return the stack of a connection's thread. A process that does not answer is asked once."""
        if self._look is None or self._look.is_over:
            self._look = Bounded("stack-beyond", partial(self.ask, "stack", number))
            with contextlib.suppress(Exception):
                return self._look.within(_LOOK_SECONDS)
        return "(no answer)"

    def _connect(self, kind: bytes) -> Frames:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:  # of the worker, for example too many open files: the child is as before
            raise ProcessAway(f"lane process {self.number} cannot be asked: {error}", 1.0) from error
        try:
            socket.send_fds(self._own.control, [kind], [theirs.fileno()])
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        frames = Frames(ours)
        self._connections.append(frames)
        if self._over.is_set():
            frames.shut()
        return frames

    def _listen(self, events: Frames) -> None:
        self._listener.listen(events)
        self._over.wait()
        events.close()
        self._close()
        self._ended(self)

    def _watch(self) -> None:
        """A process that a handler has forked may keep the other ends of the connections open."""
        self._code = self._child.wait()
        self._over.set()
        for frames in list(self._connections):
            frames.shut()

    def _close(self) -> None:
        """Close what led to it. A connection in use is closed by the thread that asks."""
        self._own.close()
        with contextlib.suppress(IndexError):
            while True:
                self._free.pop()[1].close()


def _how(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def cancel_beyond(threads: Iterable[int], reason: str) -> bool:
    """Cancel the coroutines in child processes whose answers these threads wait for. Returns False if there
    are none, or if no process answers in time."""
    numbers = defaultdict[Process, list[int]](list)
    for process, number, _ in filter(None, map(asking.get, threads)):
        numbers[process].append(number)
    asked = [Bounded("cancel", partial(one.ask, "cancel", own, reason)) for one, own in numbers.items()]
    answers = []
    for call in asked:
        with contextlib.suppress(Exception):
            answers.append(call.within(_LOOK_SECONDS))
    return any(answers)


def begin_no_more(threads: Iterable[int]) -> None:
    """Let child processes not begin what these threads have asked for. What they have begun is answered."""
    with _leaving:
        for _, _, frames in filter(None, map(asking.get, threads)):
            frames.end_requests()


def stack_beyond(thread: int) -> str:
    """Return the stack in the child process whose answer the thread waits for. Empty: it waits for none, or
    the process does not answer."""
    if (found := asking.get(thread)) is None:
        return ""
    process, number, _ = found
    return f"in process {process.pid} of lanes.processes:\n{process.stack(number)}"
