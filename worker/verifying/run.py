"""Compare all replicas of a configuration with their source database."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.read.log_heads import Found
from handlers.spark.runtime.errors import SPARK_ERRORS, told
from worker.configuration import Configuration
from worker.formats.gathered import Places
from worker.verifying.checking import Check
from worker.verifying.comparing import OutOfOrder, TooDifferent
from worker.verifying.repairing import repair as repair_rows
from worker.verifying.replica import Replica
from worker.verifying.source import Source, SourceTable
from worker.verifying.source_tables import leads_to
from worker.verifying.spark_lakes import Lake, opened_lakes

State = Literal["equal", "different", "repaired", "no replica", "no source", "failed"]

_ATTEMPTS = 3
"""A worker removes segments some time after their merge, so a long read may have to restart."""
_REMOVED = ("FILE_NOT_EXIST", "FileNotFoundException", "does not exist")
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 3.0


@dataclass(slots=True)
class TableReport:
    table: str
    handler: str
    state: State
    error: str | None = None
    check: Check | None = None
    repaired: int = 0
    """Number of rows that were written."""
    place: tuple[Lake, Found] | None = None
    """The location of the replica."""


@dataclass(slots=True)
class Report:
    tables: list[TableReport] = field(default_factory=list)
    error: str | None = None
    """Why nothing could be compared at all."""
    names: set[str] = field(default_factory=set)
    """The chosen tables that have a replica or should have one, including those without any change yet."""

    @property
    def is_equal(self) -> bool:
        return self.error is None and all(each.state in ("equal", "repaired") for each in self.tables)


@dataclass(frozen=True, slots=True)
class _Job:
    configuration: Configuration
    chosen: Callable[[str], bool]
    source: Source
    tables: Mapping[str, SourceTable]
    with_waiting: bool
    chunk: int
    limit: int
    tell: Callable[[str], None] | None


def compare(
    configuration: Configuration,
    url: sa.URL,
    chosen: Callable[[str], bool],
    *,
    with_waiting: bool = True,
    chunk: int = 10_000,
    settle: float = 30.0,
    limit: int = 20,
    repair: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Report:
    """Compare the chosen replicas. Read errors are part of the report.

    `settle`: seconds in which differing rows are checked again, because changes may be on their way.
    `repair`: then write rows that still differ. `say` receives the current step if it is slow; `tell` the
    current table."""
    report = Report()
    try:
        with opened_lakes(configuration, say) as lakes, closing(Source(url, Path.cwd())) as source:
            tables = _tables(source, Places(configuration.databases), chosen)
            job = _Job(configuration, chosen, source, tables, with_waiting, chunk, limit, tell)
            for lake in lakes:
                if lake.entry.options.mode == "replica":
                    expected = {name for name in tables if leads_to(configuration, name, lake.entry)}
                    report.tables += _compare_lake(job, lake, expected)
                    report.names |= expected
            report.names |= {each.table for each in report.tables}
            _settle(report, settle, sleep)
            if repair:
                for each in report.tables:
                    if each.state == "different":
                        with _told(each, "different", "not repaired: "):
                            _repair_table(job, each)
    except Exception as error:
        report.error = _explained(error)
        if report.error is None:
            raise
    return report


def _tables(source: Source, places: Places, chosen: Callable[[str], bool]) -> Mapping[str, SourceTable]:
    """Return the chosen tables by their names for handlers. Of several that are gathered, one with rows."""
    found: dict[str, SourceTable] = {}
    for table in source.tables():
        name = ".".join(places.placed(table.database, table.name))
        if chosen(name) and (name not in found or source.is_empty(found[name])):
            found[name] = replace(table, above=tuple(map(places.label, table.above)))
    return found


def _compare_lake(job: _Job, lake: Lake, expected: Set[str]) -> Iterator[TableReport]:
    """Compare one lake's replicas. `expected`: source tables whose changes go to it."""
    source, tables = job.source, job.tables
    found = {each.name: each for each in lake.tables(job.chosen)}
    names = sorted(found.keys() | (expected - _in_others(tables, found)))
    for number, name in enumerate(names, 1):
        if job.tell is not None:
            job.tell(f"{name}: table {number:,} of {len(names):,}")
        report = TableReport(name, lake.entry.name, "equal")
        with _told(report):
            if name not in found:
                if source.is_empty(tables[name]):
                    continue  # no change has arrived yet
                report.state = "no replica"
                report.error = "the source has rows, but none was received"
            elif found[name].database in job.configuration.databases:
                raise TooDifferent("it has rows of several databases, and is not compared")
            elif name not in tables:
                if Replica(lake, found[name], with_waiting=job.with_waiting).schema() is None:
                    continue  # a log that outlived its dropped or renamed table
                report.state, report.error = "no source", "the source has no such table (any more)"
            else:
                report.place = lake, found[name]
                report.check = _checked(job, *report.place)
                report.state = "equal" if report.check.outcome.is_equal else "different"
        yield report


def _in_others(tables: Mapping[str, SourceTable], found: Collection[str]) -> set[str]:
    """Find tables whose rows are in replicas of other tables: the connector names either a row's partition,
    or the partitioned table."""
    named: set[str] = set()
    for name, table in tables.items():
        if name in found:
            named.update(table.above)
        elif any(above in found for above in table.above):
            named.add(name)
    return named - set(found)


def _checked(job: _Job, lake: Lake, found: Found) -> Check:
    table = job.tables[found.name]
    rule = job.configuration.rule_for(found.name)
    rules = None if rule is None else rule.row_rules
    if rules is not None and (rules.filter is not None or rules.deletes != "apply"):
        raise TooDifferent(
            "its rule has a filter, or does not apply deletes: the replica should differ from the source, "
            "and is not compared"
        )
    if rule is not None and rule.transform is not None:
        raise TooDifferent("its rows pass a transform: the replica should differ, and is not compared")
    plans = None if rules is None else rules.plans
    for attempt in range(1, _ATTEMPTS + 1):
        replica = Replica(lake, found, with_waiting=job.with_waiting)
        check = Check(job.source, table, replica, chunk=job.chunk, limit=job.limit, plans=plans)
        try:
            check.run()
        except SPARK_ERRORS as error:
            if attempt == _ATTEMPTS or not any(word in str(error) for word in _REMOVED):
                raise
        else:
            break
    return check


def _settle(report: Report, seconds: float, sleep: Callable[[float], None]) -> None:
    end = time.monotonic() + seconds
    pause = _FIRST_PAUSE
    while time.monotonic() < end:
        left = [each for each in report.tables if each.state == "different"]
        left = [each for each in left if each.check is not None and not each.check.outcome.lacking]
        if not left:
            return
        sleep(min(pause, max(0.0, end - time.monotonic())))
        pause = min(pause * 1.5, _LONGEST_PAUSE)
        for each in left:
            with _told(each):
                if each.check is not None and each.check.look_again():
                    each.state = "equal"


def _repair_table(job: _Job, report: TableReport) -> None:
    assert report.check is not None
    assert report.place is not None
    lake, found = report.place

    def count(rows: int) -> None:
        report.repaired += rows

    left: int | None = None
    while left is None or report.check.outcome.different_rows < left:
        left = report.check.outcome.different_rows
        replica = Replica(lake, found, with_waiting=job.with_waiting)
        repair_rows(report.check, replica, lake, found.ref, count)
        if report.check.is_whole:
            break
        report.check = _checked(job, lake, found)  # more rows differed than are kept
    if report.check.outcome.is_equal:
        report.state = "repaired"


@contextmanager
def _told(report: TableReport, state: State = "failed", before: str = "") -> Iterator[None]:
    """Report a table's error, so that the other tables are still compared."""
    try:
        yield
    except Exception as error:
        text = _explained(error)
        if text is None:
            raise
        report.state, report.error = state, before + text


def _explained(error: Exception) -> str | None:
    """Return the text of an expected error; None for a programming error."""
    if isinstance(error, SPARK_ERRORS):
        return told(error)
    if isinstance(error, SQLAlchemyError):
        cause = getattr(error, "orig", None) or error
        return f"the source database: {cause}"
    if isinstance(error, BrokenLog | OSError | TooDifferent | OutOfOrder | RuntimeError | LookupError):
        return str(error)
    return None
