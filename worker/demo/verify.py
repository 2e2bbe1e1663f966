"""What the demo verifies: the replica equals the source's rows, and batches kept each table's order."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple

import msgspec

from handlers import Batch, Handler, HandlerContext
from handlers.spark.delta.commits.commit_notes import read_note
from handlers.values.change_json import duration_text
from worker.demo.shop_source import Place

Row = Mapping[str, Any]
_STATEMENTS = ("ddl", "truncate")


class Difference(NamedTuple):
    """A row that differs between the two sides."""

    table: str
    row: str
    """Its key, or the whole row for a table without one."""
    what: str


def compare_columns(table: str, truth: Sequence[str], found: Sequence[str]) -> list[Difference]:
    """Return one difference if the columns, or their order, differ from the source's."""
    if list(truth) == list(found):
        return []
    what = f"its columns are {', '.join(found)}; in the source {', '.join(truth)}"
    return [Difference(table, "", what)]


def compare(table: str, key: Sequence[str], truth: Iterable[Row], found: Iterable[Row]) -> list[Difference]:
    """Return the rows that differ, in the source's order. Values are compared with their types."""
    expected = [_comparable(row) for row in truth]
    actual = [_comparable(row) for row in found]
    if not key:
        return _compare_bags(table, expected, actual)
    differences = []
    by_key = {tuple(row[column] for column in key): row for row in actual}
    if len(by_key) < len(actual):
        differences.append(Difference(table, "", f"{len(actual) - len(by_key)} rows have a duplicate key"))
    for row in expected:
        at = tuple(row[column] for column in key)
        other = by_key.pop(at, None)
        if other is None:
            differences.append(Difference(table, _shown(at), "is not in the replica"))
            continue
        for column, value in row.items():
            there = other.get(column)
            if not _same(there, value):
                what = f"{column} is {there!r} in the replica, {value!r} in the source"
                differences.append(Difference(table, _shown(at), what))
    differences += [Difference(table, _shown(at), "is not in the source") for at in by_key]
    return differences


def _comparable(row: Row) -> dict[str, Any]:
    return {column: _kept(value) for column, value in row.items()}


def _kept(value: Any) -> Any:
    """Convert a source value to the Spark handler's form."""
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return list(value) if isinstance(value, tuple) else value


def _same(one: Any, other: Any) -> bool:
    """Compare values and types. Ints and decimals are both exact (`bigint unsigned` becomes a decimal)."""
    exact = (int, Decimal)
    return one == other and (
        type(one) is type(other) or (isinstance(one, exact) and isinstance(other, exact))
    )


def _compare_bags(
    table: str, expected: Sequence[dict[str, Any]], actual: Sequence[dict[str, Any]]
) -> list[Difference]:
    wanted, there = (Counter(repr(sorted(row.items())) for row in rows) for rows in (expected, actual))
    missing = [Difference(table, row, "is not in the replica") for row in (wanted - there).elements()]
    return missing + [Difference(table, row, "is not in the source") for row in (there - wanted).elements()]


def _shown(key: tuple[Any, ...]) -> str:
    return ", ".join(map(str, key))


class Commit(NamedTuple):
    """One merge, from a Delta table's log."""

    last: tuple[int, int]
    """(offset, index) of the last change in the table after this merge."""
    ended: float
    """Seconds since 1970."""


def read_commits(table: Path, topic: str) -> list[Commit]:
    """Return the merges of changes from partition 0 of the topic, in order; empty if there is no table.

    The log's format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md"""
    commits = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        for action in msgspec.json.Decoder(dict[str, Any]).decode_lines(path.read_bytes()):
            info = action.get("commitInfo", {})
            note = read_note(info.get("userMetadata")) or {}
            # Commits of DDL or of others do not say how far changes are merged.
            if place := note.get("marks", {}).get(topic, {}).get("0"):
                commits.append(Commit((place[0], place[1]), info["timestamp"] / 1000))
    return commits


class LaneWork(NamedTuple):
    lane: int
    batches: int
    changes: int
    busy_seconds: float
    tables: tuple[str, ...]


class TableWork(NamedTuple):
    table: str
    lanes: tuple[int, ...]
    batches: int
    changes: int
    merges: int
    behind_seconds: float
    """The longest time from the source's commit of a batch's first change to the Delta commit of its last
    one."""


def order_faults(
    table: str, history: Sequence[Place], batches: Iterable[RecordedBatch], commits: Sequence[Commit]
) -> list[str]:
    """Return the faults of one table's changes; empty: each came once, in order, and was merged.

    The handlers must have received the source's changes row by row in the source's order. Each commit of the
    Delta table must continue after the previous one, and must not precede the handling of its changes. The
    last one must contain the last change."""
    own = [batch for batch in batches if batch.table == table]
    faults = []
    seen = [place for batch in own for place in batch.places]
    for before, after in pairwise(seen):
        if after <= before:
            faults.append(f"the change at offset {after[0]}[{after[1]}] follows {before[0]}[{before[1]}]")
    expected = [(place.message, place.row) for place in history]
    if missing := sorted(set(expected) - set(seen)):
        faults.append(f"{len(missing)} changes were never handled, the first at offset {missing[0][0]}")
    if unknown := sorted(set(seen) - set(expected)):
        faults.append(f"{len(unknown)} changes are not from the source, the first at {unknown[0][0]}")
    return faults + _commit_faults(history, own, commits)


def _commit_faults(
    history: Sequence[Place], own: Sequence[RecordedBatch], commits: Sequence[Commit]
) -> list[str]:
    faults = []
    for earlier, later in pairwise(commits):
        if later.last <= earlier.last:
            faults.append(f"the merge up to offset {later.last[0]} follows that up to {earlier.last[0]}")
    began = {place: batch.began for batch in own for place in batch.places}
    for commit in commits:
        if commit.last not in began:
            faults.append(f"a merge ends at offset {commit.last[0]}[{commit.last[1]}], where no change was")
        elif commit.ended < began[commit.last]:
            faults.append(f"the change at offset {commit.last[0]} was merged before it was handled")
    # A statement is applied at once, by separate commits.
    rows = [(place.message, place.row) for place in history if place.op not in _STATEMENTS]
    merged = max((commit.last for commit in commits), default=(-1, -1))
    if left := [place for place in rows if place > merged]:
        faults.append(f"{len(left)} changes were never merged, the first at offset {left[0][0]}")
    return faults


def lane_work(batches: Iterable[RecordedBatch], busy_seconds: Sequence[float]) -> list[LaneWork]:
    """Summarize each lane, including idle ones."""
    done = list(batches)
    works = []
    for lane, busy in enumerate(busy_seconds):
        own = [batch for batch in done if batch.lane == lane]
        tables = tuple(dict.fromkeys(batch.table for batch in own))
        works.append(LaneWork(lane, len(own), sum(len(batch.places) for batch in own), busy, tables))
    return works


def table_work(batches: Iterable[RecordedBatch], commits: Sequence[Commit], table: str) -> TableWork:
    own = [batch for batch in batches if batch.table == table]
    return TableWork(
        table,
        tuple(sorted({batch.lane for batch in own})),
        len(own),
        sum(len(batch.places) for batch in own),
        len(commits),
        max((_behind(batch, commits) for batch in own), default=0.0),
    )


def _behind(batch: RecordedBatch, commits: Sequence[Commit]) -> float:
    """Return 0 for a batch that no commit contains: `order_faults` reports it, or none is needed."""
    place = bisect_left(commits, batch.places[-1], key=lambda commit: commit.last)
    return commits[place].ended - batch.source_time_ms / 1000 if place < len(commits) else 0.0


class RecordedBatch(msgspec.Struct, frozen=True):
    """A batch at its beginning."""

    table: str
    """The table's name without the database."""
    lane: int
    began: float
    """Seconds since 1970."""
    source_time_ms: int
    """When the source committed the first change."""
    places: list[tuple[int, int]]
    """(offset, index) of each change, in order of arrival."""


class Recorder(Handler):
    """Writes a line for each batch into `directory`, one file per lane."""

    per_lane: ClassVar[bool] = True

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._lane = 0
        self._file: BinaryIO | None = None

    def open(self, context: HandlerContext) -> None:
        directory = context.folder / self._directory
        directory.mkdir(parents=True, exist_ok=True)
        self._lane = context.lane or 0
        self._file = (directory / f"lane-{self._lane}.jsonl").open("ab")

    def handle(self, batch: Batch) -> None:
        began = time.time()
        places = [(change.offset, change.index) for change in batch.changes]
        first = batch.changes[0].source_time_ms
        line = RecordedBatch(batch.name, self._lane, began, first, places)
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_batches(directory: Path) -> list[RecordedBatch]:
    """Read all lanes' files. Return the batches in the order in which they began."""
    decoder = msgspec.json.Decoder(RecordedBatch)
    files = directory.glob("lane-*.jsonl")
    batches = [batch for file in files for batch in decoder.decode_lines(file.read_bytes())]
    return sorted(batches, key=lambda batch: batch.began)
