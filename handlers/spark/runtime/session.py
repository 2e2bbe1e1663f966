"""The Spark that all Spark handlers of this process share, and a limit on what it does at once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from handlers.spark.options import SparkSection
from handlers.spark.runtime.conf import plain_paths_are_local
from handlers.spark.runtime.driver import Driver, Watch

if TYPE_CHECKING:
    from handlers.spark.runtime.connect import ConnectServer

# pyspark's own loggers write each failed query, with Java's whole stack, to standard error. The error is also
# raised, and the code that handles it reports it.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_name).disabled = True

StopCallback = Callable[[BaseException], None]

START_SECONDS = 300.0
"""The time that Spark may take to start, by default."""


class SharedSpark:
    """Spark, wherever it runs: with a driver and its Java process beside this one, or behind a Connect
    server. Any thread may call any method.

    A lost driver is lost permanently (StopWorker): the deployment restarts the worker, and uncommitted
    records arrive again. A Connect server may be away for a while (TargetUnavailable): batches wait. Spark
    itself replaces executors that a cluster loses."""

    def __init__(
        self,
        section: SparkSection,
        folder: Path,
        name: str,
        within: float = START_SECONDS,
        stopping: Callable[[], bool] | None = None,
    ) -> None:
        """Spark starts when it is first needed. `within`: the most seconds for the start. Calls that need
        Spark wait for it, unless the worker is `stopping`."""
        self.section = section
        self.slots = Slots(section.concurrency)
        """Bounds the batches that are written at once."""
        self.is_classic = section.remote is None
        """Whether a JVM is available through py4j. False with a Connect server."""
        self._watch: Watch | None = None
        if section.remote is not None:
            from handlers.spark.runtime.connect import ConnectServer  # noqa: PLC0415 (its packages are an extra)

            self._place: ConnectServer | Driver = ConnectServer(section)
        else:
            self._place = driver = Driver(section, folder, name, within, stopping or (lambda: False))
            self._watch = Watch(driver)
        self.start = self._place.start
        """Ends with JavaError, JarsError, or RuntimeError. With Connect, it is over."""

    @property
    def assumes_local_files(self) -> bool:
        """Whether paths without a scheme are assumed to be this machine's, because Spark cannot be asked yet
        and nothing indicates otherwise."""
        return not self.start.done and plain_paths_are_local(self.section)

    @property
    def session(self) -> SparkSession:
        """The main session. With Connect, a new one if the last was lost. Raises TargetUnavailable.

        Waits for a Spark that is still starting. Raises StopWorker if that fails, TargetUnavailable if the
        worker stops."""
        return self._place.session

    def fresh(self) -> SparkSession:
        """Create a session with its own SQL configuration and temporary views, one for each thread that sets
        any. Takes a few milliseconds. With Connect, it is a new connection: some 50 ms.

        Raises TargetUnavailable while a Connect server is away."""
        return self._place.fresh()

    def renewed(self, session: SparkSession) -> SparkSession:
        """Return `session`, or a fresh one if its Connect server no longer knows it.

        Call it before each use of a session that is kept. Raises TargetUnavailable."""
        return self._place.renewed(session)

    def drop(self, session: SparkSession) -> None:
        """Drop a session of `fresh`. Its own `stop` would stop a classic Spark for all."""
        self._place.drop(session)

    def status(self) -> dict[str, Any]:
        """The `spark` part of a handler's status. `up`: whether Spark's last answer, not a new one, was a
        success. False while it starts, None before it is needed."""
        place = self._place
        if self.start.done:
            up = place.up if self._watch is None else self._watch.up
        else:
            up = False if self.start.has_begun else None
        return {"master": place.master, "version": place.version, "ui": place.ui_url, "up": up}

    def stop_worker_if_gone(self, error: BaseException) -> None:
        """Call it with every error from Spark. Returns if Spark itself works.

        Raises StopWorker if the Java process has ended or its Spark has stopped, which is permanent. Raises
        TargetUnavailable if the Connect server is away or has forgotten the session. Then get another session
        (`renewed`, `fresh`) for the next attempt."""
        self._place.raise_if_gone(error)

    def watch(self, stop_worker: StopCallback) -> None:
        """Call `stop_worker` when a started Spark is gone, even if nobody uses it then. Does nothing with
        Connect."""
        if self._watch is not None:
            self._watch.add(stop_worker)

    def stop(self) -> None:
        """Stop Spark (or leave the Connect server) and wait for its Java process to end."""
        if self._watch is not None:
            self._watch.stop()
        self._place.stop()


# Guards the two names below.
_lock = threading.Lock()
_shared: SharedSpark | None = None
_holders = 0


def acquire(
    section: SparkSection,
    folder: Path,
    name: str,
    stop_worker: StopCallback | None = None,
    *,
    within: float = START_SECONDS,
    stopping: Callable[[], bool] | None = None,
) -> SharedSpark:
    """Return the process's Spark. Each caller must call `release` once.

    `stop_worker` (see HandlerContext) is called when Spark is gone. Raises JavaError, JarsError, and
    RuntimeError if Spark does not start `within` these seconds. With `stopping` (see HandlerContext), this
    neither starts it, unless the section says so, nor waits: `SharedSpark.start` reports its end."""
    global _shared, _holders  # noqa: PLW0603 (one Spark a process is pyspark's own rule)
    with _lock:
        if _shared is None:
            _shared = SharedSpark(section, folder, name, within, stopping)
        if section.start == "eager":
            _shared.start.begin()
        _holders += 1
        shared = _shared
    if stopping is None:
        try:
            shared.start.result()
            if stop_worker is not None:
                shared.watch(stop_worker)
        except BaseException:
            release()
            raise
    return shared


def release() -> None:
    """Release Spark. The last holder's release stops it."""
    global _shared, _holders  # noqa: PLW0603 (see acquire)
    with _lock:
        _holders -= 1
        if _holders == 0 and _shared is not None:
            ending = _shared
            _shared = None
            ending.stop()


@dataclass(eq=False, slots=True)
class _Waiting:
    since: float | None
    """For a merge. See Slots.merging."""
    turn: threading.Lock = field(default_factory=threading.Lock)


class Slots:
    """A number of slots, given in order of arrival. Use `with slots:`. Any thread.

    threading.Semaphore keeps no order. A thread that always has something to merge releases a slot and
    acquires it again, before the thread that waits for it has woken up. A batch with DDL, or a handler's
    second table, waited for minutes that way.

    Among merges, the table whose rows have waited longest goes first. Each handler has few tables here at a
    time. By arrival, one of a hundred tables would get as many turns as a handler's only table."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()  # guards the two below
        self._free = count
        self._waiting: deque[_Waiting] = deque()

    @contextmanager
    def merging(self, since: float) -> Iterator[None]:
        """Hold a slot for a merge. `since`: when its oldest rows were received (seconds since 1970)."""
        self._enter(since)
        try:
            yield
        finally:
            self._leave()

    def __enter__(self) -> None:
        self._enter(None)

    def __exit__(self, *error: object) -> None:
        self._leave()

    def _enter(self, since: float | None) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiting = _Waiting(since)
            waiting.turn.acquire()
            self._waiting.append(waiting)
        waiting.turn.acquire()

    def _leave(self) -> None:
        with self._lock:
            if self._waiting:
                self._next().turn.release()  # passed on, so nobody gets it in between
            else:
                self._free += 1

    def _next(self) -> _Waiting:
        """Merges change places only among themselves, so others do not wait longer."""
        first = self._waiting.popleft()
        if first.since is None:
            return first
        merges = [(each.since, place) for place, each in enumerate(self._waiting) if each.since is not None]
        since, place = min(merges, default=(first.since, 0))
        if since >= first.since:
            return first
        chosen, self._waiting[place] = self._waiting[place], first
        return chosen
