"""Report records that no handler received, because of the rules or because they are undecodable."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from worker.observing.overview.trouble import UNDECODABLE, Trouble, names, plural
from worker.observing.status import PassedOver, UnmatchedTable, WorkerStatus

_SINCE = "since the start or the last reload"
_MOST_TABLES = 100


def of_rules(status: WorkerStatus, config: str) -> Iterator[Trouble]:
    """Report that no record since the start was for a handler. If any was, only `notes` reports the others.
    `config`: the configuration file, for the commands."""
    passed = status.passed_over
    if passed is None or _tables(status):
        return
    undecodable = passed.undecodable_letters + passed.undecodable_skipped
    if passed.unmatched_records:
        tables = _unmatched(status, passed)
        near = [each for each in tables if each.nearest is not None]
        told = f": {names([each.table for each in tables])}" if tables else ""
        yield Trouble(
            # Without a similar match they may be left out on purpose, while the others are quiet.
            level="bad" if near else "warn",
            what=f"No match under tables fits any of the {plural(passed.unmatched_records, 'record')} "
            f"received {_SINCE}{told}{_near(near)}",
            do="Correct match (database.table) and reload. Skipped records count as finished. Move the "
            "position back to read them.",
            commands=[f"binlane checkpoint show {shlex.quote(config)}"],
        )
    elif undecodable:
        yield Trouble(
            level="bad",
            what=f"All records received since the start were undecodable: {_fates(passed)}",
            error=passed.undecodable_error,
            do="Check that format fits the tool that writes the topic: docs/formats.md.",
            commands=[f"binlane dead-letters list {shlex.quote(config)}"]
            if passed.undecodable_letters
            else [],
        )


def notes(status: WorkerStatus) -> list[str]:
    """Report records that no handler received although others were handled: sentences without full stops."""
    found = []
    if status.state == "running" and not status.partitions:
        found.append(
            "This worker has no partition: others of the group have them, or kafka.topics matches no topic"
        )
    passed = status.passed_over or PassedOver()
    if passed.unmatched_records and _tables(status):
        tables = _unmatched(status, passed)
        of = f" of {'more than ' * passed.more_tables}{plural(len(tables), 'table')}" if tables else ""
        near = [each for each in tables if each.nearest is not None]
        records = plural(passed.unmatched_records, "record")
        found.append(f"No match fits {records}{of}, skipped {_SINCE}{_near(near)}")
    if passed.undecodable_letters + passed.undecodable_skipped:
        found.append(f"Undecodable since the start: {_fates(passed)}")
    return found


def _tables(status: WorkerStatus) -> bool:
    """Whether a rule has matched any table."""
    return status.tables_omitted > 0 or any(table.table != UNDECODABLE for table in status.tables)


def _unmatched(status: WorkerStatus, passed: PassedOver) -> list[UnmatchedTable]:
    """Return the unmatched tables, without a `nearest` that matches another table by now."""
    known = [table.table for table in status.tables]
    return [
        each
        if each.nearest is None or not any(fnmatchcase(table, each.nearest) for table in known)
        else UnmatchedTable(table=each.table, nearest=None)
        for each in passed.unmatched_tables
    ]


def _near(near: list[UnmatchedTable]) -> str:
    if not near:
        return ""
    return f" ({near[0].table} looks like match: {near[0].nearest})"


def _fates(passed: PassedOver) -> str:
    fates = (
        (passed.undecodable_letters, "became a dead letter", "became dead letters"),
        (passed.undecodable_skipped, "was skipped", "were skipped"),
    )
    return " and ".join(
        f"{plural(number, 'record')} {one if number == 1 else many}" for number, one, many in fates if number
    )


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
