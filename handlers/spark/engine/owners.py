"""Which sink serves a log: of the handlers of one process, one at a time.

Several entries of a configuration may keep tables in one place, say a rule for shop.orders and one for
shop.*, and each finds all logs that an earlier run has left. Were two sinks to merge one of them, most of the
work would be in vain; and when one of the two drops the table, the other would bring what it has found before
into the next table of that name."""

from __future__ import annotations

import threading

from handlers.spark.engine.table.sink import TableSink


class Owners:
    """Log folder -> its sink. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the dict
        self._sinks: dict[str, TableSink] = {}

    def of(self, log_folder: str) -> TableSink | None:
        return self._sinks.get(log_folder)

    def claim(self, log_folder: str, sink: TableSink) -> TableSink | None:
        """It is this sink's from now on; returns whose it was, if that is another one: it must let go."""
        with self._lock:
            before = self._sinks.get(log_folder)
            self._sinks[log_folder] = sink
        return None if before is sink else before

    def claim_free(self, log_folder: str, sink: TableSink) -> bool:
        """Whether it is this sink's now: it was nobody's, or its already."""
        with self._lock:
            return self._sinks.setdefault(log_folder, sink) is sink

    def release(self, log_folder: str, sink: TableSink) -> None:
        """Nobody's, if it is this sink's."""
        with self._lock:
            if self._sinks.get(log_folder) is sink:
                del self._sinks[log_folder]
