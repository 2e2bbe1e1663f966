"""The Spark that all Spark handlers of this process share."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

from handlers.spark.default_files import plain_paths_are_local
from handlers.spark.runtime.slots import Slots
from handlers.spark.runtime.start import Heard, Start
from handlers.spark.runtime.watch import Watch
from handlers.spark.section import SparkSection

# pyspark's own loggers write each failed query, with Java's whole stack, to standard error; what failed is
# raised, and told by whoever handles it.
for _name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
    logging.getLogger(_name).disabled = True

StopCallback = Callable[[BaseException], None]

START_SECONDS = 300.0
"""How long Spark may take to start, where nobody says otherwise."""


class _Place(Protocol):
    """Where Spark runs: Driver or ConnectServer."""

    @property
    def master(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def ui_url(self) -> str | None: ...
    @property
    def up(self) -> bool | None: ...
    @property
    def session(self) -> SparkSession: ...
    def fresh(self) -> SparkSession: ...
    def renewed(self, session: SparkSession) -> SparkSession: ...
    def drop(self, session: SparkSession) -> None: ...
    def alive(self) -> bool: ...
    def raise_if_gone(self, error: BaseException) -> None: ...
    def stop(self) -> None: ...


class SharedSpark:
    """Spark, wherever it runs: with a driver and its Java process beside this one, or behind a Connect
    server. Every method may be called from any thread.

    A driver that is lost is lost for good (StopWorker): the deployment starts the worker anew, and what was
    not committed comes again. A Connect server may be away for a while (TargetUnavailable): batches wait.
    Executors that a cluster loses are replaced by Spark itself."""

    def __init__(
        self,
        section: SparkSection,
        folder: Path,
        name: str,
        within: float = START_SECONDS,
        stopping: Callable[[], bool] | None = None,
    ) -> None:
        """It starts at once, and may take so many seconds; what needs it waits for that, unless the worker is
        `stopping`."""
        self.section = section
        self.slots = Slots(section.concurrency)
        """Bounds the batches that are written at once."""
        self.is_classic = section.remote is None
        """Whether there is a JVM to be reached through py4j; False with a Connect server."""
        self._start: Start | None = None
        self._watch: Watch | None = None
        if section.remote is not None:
            from handlers.spark.runtime.connect import ConnectServer  # noqa: PLC0415 (its packages are an extra)

            self._place: _Place = ConnectServer(section)
        else:
            from handlers.spark.runtime.driver import Driver  # noqa: PLC0415 (Connect needs no Java)

            self._place = driver = Driver(section, folder, name, within, stopping or (lambda: False))
            self._start = driver.start
            self._watch = Watch(driver)

    def wait(self) -> None:
        """Until it is up; nothing with Connect. Raises JavaError, JarsError, and RuntimeError when it does
        not start."""
        if self._start is not None:
            self._start.over_within(None)
            if self._start.error is not None:
                raise self._start.error

    def up_within(self, seconds: float) -> bool:
        """Whether it has started, or does in that time; True with Connect, whose server has for long."""
        return self._start is None or (self._start.over_within(seconds) and self._start.done)

    def tell(self, heard: Heard) -> None:
        """Call `heard` when it has started, with None, or has not, with what `wait` raises; from any thread,
        and at once where that is known."""
        if self._start is None:
            heard(None)
        else:
            self._start.tell(heard)

    @property
    def assumes_local_files(self) -> bool:
        """Whether paths without a scheme are taken as this machine's because Spark cannot be asked yet, and
        nothing says otherwise."""
        return not self.up_within(0) and plain_paths_are_local(self.section)

    @property
    def session(self) -> SparkSession:
        """The main session. With Connect a new one when the last was lost; raises TargetUnavailable.

        Waits for a Spark that is still starting. Raises StopWorker when that fails, TargetUnavailable when
        the worker stops."""
        return self._place.session

    def fresh(self) -> SparkSession:
        """A session with SQL configuration and temporary views of its own, at the same Spark: one for each
        thread that sets anything. A few milliseconds; with Connect a connection of its own, some 50 ms.

        Raises TargetUnavailable while a Connect server is away."""
        return self._place.fresh()

    def renewed(self, session: SparkSession) -> SparkSession:
        """`session`, or a fresh one in its place when its Connect server no longer knows it.

        To be asked before each use of a session that is kept. Raises TargetUnavailable."""
        return self._place.renewed(session)

    def drop(self, session: SparkSession) -> None:
        """A session of `fresh` is not used any more. Its own `stop` would stop a classic Spark for all."""
        self._place.drop(session)

    @property
    def master(self) -> str:
        """Spark's master, or the Connect server's address; without secrets."""
        return self._place.master

    @property
    def version(self) -> str | None:
        """Spark's version; None while a Connect server has not answered yet."""
        return self._place.version

    @property
    def ui_url(self) -> str | None:
        """The address of Spark's own web pages; None: switched off, or at a Connect server, which tells none.

        With a master on this machine they listen on 127.0.0.1 alone."""
        return self._place.ui_url

    @property
    def up(self) -> bool | None:
        """Whether Spark answered when it was asked last, which is not now; False while it starts; None:
        nobody has asked yet."""
        if self._start is not None and not self._start.done:
            return False
        return self._place.up if self._watch is None else self._watch.up

    def status(self) -> dict[str, Any]:
        """The `spark` part of a handler's status."""
        return {"master": self.master, "version": self.version, "ui": self.ui_url, "up": self.up}

    def alive(self) -> bool:
        """Whether Spark answers."""
        return self._place.alive()

    def stop_worker_if_gone(self, error: BaseException) -> None:
        """To be called with every error from Spark: returns when Spark itself is all right.

        Raises StopWorker: the Java process has ended, or its Spark has stopped: both are final;
        TargetUnavailable: the Connect server is away, or has forgotten the session; get another one
        (`renewed`, `fresh`) for the next attempt."""
        self._place.raise_if_gone(error)

    def watch(self, stop_worker: StopCallback) -> None:
        """Of a Spark that has started: tell `stop_worker` when it is gone, even if nobody uses it then.
        Nothing with Connect."""
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
    """The process's Spark, started by the first who asks. Everyone who asked calls `release` once.

    `stop_worker` is told (see HandlerContext) when Spark is gone. Raises JavaError, JarsError, and
    RuntimeError when Spark does not start in `within` seconds; with `stopping` (see HandlerContext) it does
    not wait for that, and `SharedSpark.tell` tells."""
    global _shared, _holders  # noqa: PLW0603 (one Spark a process is pyspark's own rule)
    with _lock:
        if _shared is None:
            _shared = SharedSpark(section, folder, name, within, stopping)
        _holders += 1
        shared = _shared
    if stopping is None:
        try:
            shared.wait()
            if stop_worker is not None:
                shared.watch(stop_worker)
        except BaseException:
            release()
            raise
    return shared


def release() -> None:
    """The last holder's release stops Spark."""
    global _shared, _holders  # noqa: PLW0603 (see acquire)
    with _lock:
        _holders -= 1
        if _holders == 0 and _shared is not None:
            ending = _shared
            _shared = None
            ending.stop()
