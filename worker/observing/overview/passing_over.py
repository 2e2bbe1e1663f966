"""Track records that no handler received, from the events that the worker logs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from worker.observing.status import PassedOver, UnmatchedTable

_MOST_TABLES = 100


class PassingOver:
    """Count events that are logged for each such record, and keep the unmatched tables. Thread-safe."""

    def __init__(self, unmatched: Callable[[], int], redact: Callable[[str], str]) -> None:
        """`unmatched` returns how many records of unmatched tables were skipped since the worker's start."""
        self._unmatched = unmatched
        self._redact = redact
        self._lock = threading.Lock()  # guards all fields below
        self._before = 0
        self._tables: dict[str, str | None] = {}
        self._more = False
        self._letters = 0
        self._skipped = 0
        self._error: str | None = None

    def note(self, _method: str, event: Mapping[str, Any]) -> None:
        """Handle a logged event: see `logs.listen`."""
        match event:
            case {"event": "table_unmatched", "table": table}:
                self._met(str(table), event.get("nearest"))
            case {"event": "more_tables_unmatched"}:
                with self._lock:
                    self._more = True
            case {"event": "dead_letter", "handler": None}:  # undecodable, so of no handler
                self._undecodable(event, letters=1)
            case {"event": "record_skipped"} if "ordered_by" not in event:
                self._undecodable(event, skipped=1)
            case {"event": "reloaded"}:
                self._begin_anew()

    def now(self) -> PassedOver:
        """Return the counts in the form of the status."""
        with self._lock:
            tables = [
                UnmatchedTable(
                    table=self._redact(table), nearest=None if nearest is None else self._redact(nearest)
                )
                for table, nearest in sorted(self._tables.items(), key=lambda item: item[1] is None)
            ]
            return PassedOver(
                unmatched_records=max(0, self._unmatched() - self._before),
                unmatched_tables=tables,
                more_tables=self._more,
                undecodable_letters=self._letters,
                undecodable_skipped=self._skipped,
                undecodable_error=None if self._error is None else self._redact(self._error),
            )

    def _met(self, table: str, nearest: object) -> None:
        with self._lock:
            if table in self._tables or len(self._tables) < _MOST_TABLES:
                self._tables[table] = None if nearest is None else str(nearest)

    def _undecodable(self, event: Mapping[str, Any], *, letters: int = 0, skipped: int = 0) -> None:
        with self._lock:
            self._letters += letters
            self._skipped += skipped
            self._error = str(event.get("error"))

    def _begin_anew(self) -> None:
        """Reset what depends on the rules, which have just changed."""
        with self._lock:
            self._before = self._unmatched()
            self._tables.clear()
            self._more = False
