"""Handlers with coroutines: all run on the process's one event loop, while the calling threads wait."""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from inspect import iscoroutine, iscoroutinefunction
from typing import Any, TypeVar, cast

from handlers.api import Batch, Handler, HandlerContext
from handlers.hanging_calls import beyond, stack_of
from handlers.logs import get_logger

log = get_logger("coroutines")

AnyHandler = TypeVar("AnyHandler", bound=Handler)

_LOOK_SECONDS = 0.25
_MOST_TASKS = 10  # whose stacks are shown
BLOCKED_SECONDS = 1.0
"""An event loop that does nothing else for so long is reported, and again at every doubling."""


@dataclass(eq=False)
class _Call:
    """A coroutine of a handler, and the tasks that it starts. A thread waits for it."""

    of: Awaited
    table: str
    coroutine: Coroutine[Any, Any, Any]
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any] | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Those that run, with the coroutine's own."""
    cancelled: str = ""
    """The last reason for which it was cancelled."""
    ended: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.ended.acquire()

    def start(self) -> None:
        """Called on the loop, in a copy of the waiting thread's context."""
        _present.set(self)  # tasks that the coroutine starts inherit it
        self.task = self.loop.create_task(self.coroutine)
        self.task.add_done_callback(lambda _: self.ended.release())

    def cancel(self, reason: str) -> bool:
        """Cancel it once for each reason, if it has a batch. Any thread. Returns whether it has one."""
        if self.table:
            self.loop.call_soon_threadsafe(self._cancel, reason)
        return bool(self.table)

    def _cancel(self, reason: str) -> None:
        if reason != self.cancelled and self.task is not None and self.task.cancel(reason):
            self.cancelled = reason

    def stack(self) -> str:
        """Return the stacks of its tasks, the innermost call last."""
        tasks = [*self.tasks.copy()][:_MOST_TASKS]
        return "".join(f"{task.get_name()} on the event loop:\n{_stack(task)}" for task in tasks)


_present: ContextVar[_Call | None] = ContextVar("call", default=None)


class EventLoop:
    """An event loop in a thread of its own, which lives as long as the process. Any thread.

    A second thread reports a handler that blocks it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(_task)
        self._calls: dict[int, _Call] = {}  # of each waiting thread
        self._answered = True
        self._thread = threading.Thread(target=self._run, name="event-loop", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="event-loop-watch", daemon=True).start()

    def wait_for(self, of: Awaited, table: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it and return its result, or raise what it raises. `table`: if it handles a batch."""
        call, thread = _Call(of, table, coroutine, self._loop), threading.get_ident()
        self._calls[thread] = beyond[thread] = call
        try:
            self._loop.call_soon_threadsafe(call.start)
            call.ended.acquire()
        finally:
            del self._calls[thread], beyond[thread]
        assert call.task is not None  # it has ended
        cancelled = call.cancelled
        try:
            answer = call.task.result()
        except asyncio.CancelledError as error:  # no Exception, so it would end more than this call
            raise CancelledError(*error.args) from error
        finally:
            del call, coroutine  # otherwise an error and this frame would keep each other alive
        if cancelled:  # it has caught this, perhaps before its work was done
            raise CancelledError(cancelled)
        return answer

    def _run(self) -> None:
        while True:
            with suppress(SystemExit, KeyboardInterrupt):  # of a task: its call raises it
                self._loop.run_forever()

    def _watch(self) -> None:
        asked, reported = 0.0, 0
        while True:
            time.sleep(_LOOK_SECONDS)
            if not self._answered:
                seconds = time.monotonic() - asked
                if seconds >= BLOCKED_SECONDS * 2**reported:
                    reported += 1
                    self._report(seconds)
            elif self._calls:
                asked, reported, self._answered = time.monotonic(), 0, False
                self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._answered = True

    def _report(self, seconds: float) -> None:
        task = asyncio.current_task(self._loop)
        call = next((each for each in list(self._calls.values()) if task in each.tasks), None)
        log.warning(
            "event_loop_blocked",
            handler=None if call is None else call.of.name,
            table=None if call is None else call.table,
            seconds=round(seconds, 1),
            stack_of_handler=stack_of(self._thread.ident or 0),
            hint="no other call continues meanwhile: await something, or use asyncio.to_thread",
        )


_making = threading.Lock()
_made = cache(EventLoop)


def event_loop() -> EventLoop:
    """Return the process's event loop, which the first call starts."""
    with _making:  # `cache` has no lock
        return _made()


class Awaited(Handler):
    """Stands for a handler with coroutines. Its methods wait for them."""

    def __init__(self, own: Handler) -> None:
        self.name = type(own).__name__
        self._own = own

    @property
    def close_timeout(self) -> float:  # type: ignore[override]
        return self._own.close_timeout

    def open(self, context: HandlerContext) -> None:
        self.name = context.handler
        self._wait(self._own.open(context))

    def handle(self, batch: Batch) -> Any:
        return self._wait(self._own.handle(batch), batch.table)

    def close(self) -> None:
        self._wait(self._own.close())

    def check(self, context: HandlerContext) -> None:
        self._wait(self._own.check(context))

    def release_own(self, partitions: Collection[tuple[str, int]]) -> None:
        self._wait(self._own.release(partitions))

    def status_of_own(self) -> Mapping[str, Any] | None:
        return self._own.status()

    def _wait(self, answer: Any, table: str = "") -> Any:
        return event_loop().wait_for(self, table, answer) if iscoroutine(answer) else answer


def awaited(own: AnyHandler) -> AnyHandler:
    """Return the handler, or what stands for it if it has coroutines."""
    if not iscoroutinefunction(own.handle):
        return own
    kind = standing(Awaited, own, release=Awaited.release_own, status=Awaited.status_of_own)
    return cast(AnyHandler, kind(own))


def standing(kind: type[Any], own: Handler, **methods: Callable[..., Any]) -> type[Any]:
    """Return the class of what stands for a handler. It has these methods only if the handler has: the worker
    asks others neither."""
    has = {
        name: one for name, one in methods.items() if getattr(type(own), name) is not getattr(Handler, name)
    }
    return type(kind.__name__, (kind,), {"per_lane": own.per_lane, **has})


def _task(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
    """Make a task, which belongs to the call that starts it."""
    task = asyncio.Task(coroutine, loop=loop, **more)
    if (call := _present.get()) is not None:
        call.tasks.add(task)
        task.add_done_callback(call.tasks.discard)
    return task


def _stack(task: asyncio.Task[Any]) -> str:
    lines: list[str] = []
    awaited: Any = task.get_coro()
    while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)) is not None:
        lines += traceback.format_stack(frame, limit=1)
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return "".join(lines)
