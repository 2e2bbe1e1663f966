"""`threading`, `queue`, `time` and thread pools as the worker uses them, on the tasks of the scheduler."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from .scheduler import Task, current

__all__ = ["Condition", "Event", "Future", "Lock", "Pool", "RLock", "SimpleQueue", "Thread", "get_ident"]


def get_ident() -> int:
    task = current().task
    return 0 if task is None else task.number


def current_thread() -> Any:
    task = current().task
    return threading.main_thread() if task is None or task.thread is None else task.thread


class Lock:
    """Whoever waits longest has it next, unless somebody comes in between."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = current()
        task = scheduler.task
        if task is None:
            if self._held:
                raise RuntimeError("a task holds this lock: look at another moment")
            self._held = True
            return True
        scheduler.preempt()
        end = scheduler.now + timeout
        while self._held:
            if not blocking or (timeout >= 0 and scheduler.now >= end):
                return False
            self._waiting.append(task)
            if not scheduler.park(None if timeout < 0 else end - scheduler.now) and task in self._waiting:
                self._waiting.remove(task)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            current().wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    def __init__(self) -> None:
        super().__init__()
        self._owner: Task | None = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = current().task
        if self._depth and self._owner is task:
            self._depth += 1
            return True
        if not super().acquire(blocking, timeout):
            return False
        self._owner, self._depth = task, 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            super().release()


class Condition:
    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = RLock() if lock is None else lock
        self._waiting: deque[Task] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = current()
        task = scheduler.task
        assert task is not None
        self._waiting.append(task)
        self._lock.release()
        try:
            scheduler.park(timeout)
        finally:
            told = task not in self._waiting
            if not told:
                self._waiting.remove(task)
            self._lock.acquire()
        return told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        scheduler = current()
        end = None if timeout is None else scheduler.now + timeout
        while not (found := predicate()):
            if end is not None and scheduler.now >= end:
                break
            self.wait(None if end is None else end - scheduler.now)
        return found

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            current().wake(self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        scheduler = current()
        scheduler.preempt()
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            scheduler.wake(task)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = current()
        scheduler.preempt()
        if not self._set:
            task = scheduler.task
            assert task is not None
            self._waiting.append(task)
            if not scheduler.park(timeout) and task in self._waiting:
                self._waiting.remove(task)
        return self._set


class Thread(threading.Thread):
    """Its class is the real one, so that the worker's threads can be of either kind."""

    def __init__(
        self,
        group: None = None,
        target: Any = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        super().__init__(group, target, name, args, kwargs, daemon=True)
        self._task: Task | None = None

    def start(self) -> None:
        scheduler = current()
        starter = scheduler.task
        assert starter is not None
        scheduler.preempt()
        self._task = scheduler.spawn(self.name, starter.process, self.run)
        self._task.thread = self

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        scheduler = current()
        scheduler.preempt()
        end = None if timeout is None else scheduler.now + timeout
        while self.is_alive() and (end is None or scheduler.now < end):
            self._task.waiters.append(scheduler.task)
            scheduler.park(None if end is None else end - scheduler.now)

    @property
    def ident(self) -> int | None:
        return None if self._task is None else self._task.number


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._changed = Condition(Lock())

    def put(self, item: Any) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        with self._changed:
            if not block and not self._items:
                raise queue.Empty
            if not self._changed.wait_for(lambda: self._items, timeout):
                raise queue.Empty
            return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class Future:
    """An answer that comes later."""

    def __init__(self) -> None:
        self._done = Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._done.is_set()

    def end(self, result: Any = None, error: BaseException | None = None) -> None:
        self._result, self._error = result, error
        self._done.set()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self._done.wait(timeout):
            raise TimeoutError
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._result


class Pool:
    """A ThreadPoolExecutor that has a thread for each call."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        self._name = thread_name_prefix

    def submit(self, do: Callable[..., Any], *args: Any) -> Future:
        future = Future()

        def run() -> None:
            try:
                result = do(*args)
            except BaseException as error:
                future.end(error=error)
            else:
                future.end(result)

        Thread(target=run, name=self._name).start()
        return future

    def shutdown(self, wait: bool = True) -> None:
        """Nothing to let go of."""
