"""Report records that no handler received, because of the rules or because they are undecodable."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase

from worker.observing.overview.trouble import UNDECODABLE, Trouble, names, plural
from worker.observing.status import PassedOver, UnmatchedTable, WorkerStatus

_SINCE = "since the start or the last reload"


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
