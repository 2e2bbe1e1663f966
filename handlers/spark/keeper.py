"""What a lake needs now and then: what an earlier run left is found, old segments are removed, files are kept
few and large."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from handlers.spark.options import UpkeepOptions
from handlers.spark.sink import TableSink
from worker.logs import get_logger

__all__ = ["Keeper"]

_TURN = 5.0
"""Seconds between two looks."""

_log = get_logger("spark")


@dataclass(slots=True)
class _Due:
    optimize: float
    vacuum: float


class Keeper:
    """One thread, `spark-keeper`, from `start` to `close`."""

    def __init__(
        self,
        options: UpkeepOptions,
        sinks: Callable[[], Iterable[TableSink]],
        left: Callable[[], Iterator[TableSink]],
    ) -> None:
        """`sinks`: the tables known so far; `left`: those with logs of earlier runs."""
        self._options = options
        self._sinks = sinks
        self._left = left
        self._due: dict[TableSink, _Due] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        self._find_left()
        while not self._stopped.wait(_TURN):
            for sink in list(self._sinks()):
                if self._stopped.is_set():
                    return
                self._look_after(sink, time.monotonic())

    def _find_left(self) -> None:
        """Load every log, so that what waits in it is merged though no batch of its table comes."""
        try:
            for sink in self._left():
                if self._stopped.is_set():
                    return
                self._try(sink, "load", sink.load)
        except Exception as error:
            _log.warning("spark_logs_not_listed", error=str(error))

    def _look_after(self, sink: TableSink, now: float) -> None:
        self._try(sink, "tidy", lambda: sink.tidy(now))
        options = self._options
        due = self._due.get(sink)
        if due is None:
            # Not at once: a worker that is started again and again would do nothing else.
            self._due[sink] = _Due(now + options.optimize_every, now + options.vacuum_every)
            return
        if options.optimize_every and now >= due.optimize:
            due.optimize = now + options.optimize_every
            self._try(sink, "optimize", lambda: sink.optimize(options.min_files))
        if options.vacuum_every and now >= due.vacuum:
            due.vacuum = now + options.vacuum_every
            self._try(sink, "vacuum", lambda: sink.vacuum(options.retention))

    def _try(self, sink: TableSink, what: str, do: Callable[[], None]) -> None:
        """Upkeep can wait: what fails is told, and tried again at its next time."""
        try:
            do()
        except Exception as error:
            _log.warning("spark_upkeep_failed", table=sink.name, what=what, error=str(error))
