"""The main program of a child process: one thread for each connection, which answers its requests."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from handlers.hanging_calls import cancel, stack_of
from worker.observing import logs
from worker.processes.messages import EVENTS, Events, Frames, packed_error
from worker.processes.opened import Batches, OpenedHandlers, asked_by


class Child:
    """What the connections share."""

    def __init__(self) -> None:
        self.events = Events()
        self._batches = Batches(rebuilt=lambda: self.events.send("rebuilt"))
        self._handlers = OpenedHandlers(self._batches, self.events)
        self._threads: dict[int, int] = {}
        self._answers: dict[str, Callable[..., Any]] = {
            "configure": self._configure,
            "learn": self._batches.learn,
            "keep": self._batches.keep,
            "decode": self._batches.decode,
            "compute": self._batches.compute,
            "open": self._handlers.open,
            "handle": self._handlers.handle,
            "handle_rows": self._handlers.handle_rows,
            "decode_and_handle": self._handlers.decode_and_handle,
            "release": self._handlers.release,
            "status": self._handlers.status,
            "cancel": lambda numbers, reason: cancel(
                [self._threads.get(each, 0) for each in numbers], reason
            ),
            "close": self._handlers.close,
            "stack": lambda number: stack_of(self._threads.get(number, 0)),
            "kept": self._batches.count,
        }

    def serve(self, number: int, frames: Frames) -> None:
        """Answer requests until the worker ends the connection."""
        self._threads[number] = threading.get_ident()
        asked_by.set(frames)
        with contextlib.suppress(EOFError, OSError):
            while True:
                name, *rest = frames.receive()
                try:
                    answer = True, self._answers[name](*rest)
                except BaseException as error:  # whatever a handler raises, even SystemExit
                    answer = False, packed_error(error)
                del rest  # it may be long until the next request, and these are a batch's rows
                if self.events.is_copy:  # it has come back, perhaps by sys.exit
                    os._exit(0 if answer[0] else 1)
                try:
                    frames.send(answer)
                except (EOFError, OSError):
                    raise
                except Exception as error:  # a status that cannot be sent
                    frames.send((False, packed_error(error)))

    def _configure(self, pickled: bytes) -> None:
        configuration = self._batches.configure(pickled)
        log_to(self.events, configuration.logging.level)
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as in the worker: hardly any record is in a cycle


def main(passing: int, life: int) -> None:
    """Serve the connections that arrive on a socket, until the worker closes it. `life`: a pipe that only the
    worker's end closes."""
    control = socket.socket(fileno=passing)
    control.settimeout(None)  # as in `Frames`
    _end_with(life)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The worker ends this process, when its batches are done. What handlers start gets the defaults.
        signal.signal(number, lambda _number, _frame: None)
        os.register_at_fork(after_in_child=partial(signal.signal, number, signal.SIG_DFL))
    child = Child()
    threading.excepthook = _of_thread
    log_to(child.events, "info")
    count = 0
    while True:
        kind, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not kind:
            return
        frames = Frames(socket.socket(fileno=descriptors[0]))
        if kind == EVENTS:
            child.events.attach(frames)
            continue
        threading.Thread(target=child.serve, args=(count, frames), name=f"lane-{count}", daemon=True).start()
        count += 1


def _of_thread(found: threading.ExceptHookArgs) -> None:
    """Log an uncaught error of a handler's thread, through the worker: Python would print its secrets."""
    if isinstance(found.exc_value, Exception):
        logs.log_unhandled(found.exc_value)


def log_to(events: Events, level: str) -> None:
    """Pass what this process logs to the worker, with the fields of the call in progress."""

    def passed_on(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for key, value in logs.context.get()().items():
            event.setdefault(key, value)
        events.send("log", logger.name, method, event)
        raise structlog.DropEvent

    class _PassedOn(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.msg
            with contextlib.suppress(Exception):  # a line with wrong arguments must not fail its handler
                text = record.getMessage()
            event: structlog.typing.EventDict = {"event": text, "exc_info": record.exc_info}
            event = structlog.processors.format_exc_info(record, record.levelname, event)
            with contextlib.suppress(structlog.DropEvent):
                passed_on(record, record.levelname.lower(), event)

    logs.configure(level)
    logging.getLogger().handlers[:] = [_PassedOn()]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            passed_on,
        ]
    )


def _end_with(life: int) -> None:
    """Let the kernel end this process when the worker ends, whatever this process does then."""
    os.set_inheritable(life, False)
    if hasattr(os, "O_ASYNC"):
        fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
        if hasattr(fcntl, "F_SETSIG"):  # Linux: also if this process is stopped
            fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([life], [], [], 0)[0]:  # it has ended already
        os._exit(1)
