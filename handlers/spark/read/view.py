"""Merge on read: one query that shows a table as of its newest segment, not of its last commit.

A log always contains a contiguous end of what its table received. It contains every segment that the table
lacks, and for a while those that it has. Applying the last change of each key of such an end to the table's
state, or to a newer one, gives the newest state. So Spark must resolve the Delta table first and list the
segments afterwards. It does: the catalog resolves `delta.`, and a later rule of the same analysis resolves
`parquet.`. So no segment is missing that the table's state lacks. The segments are named once, in a common
table expression. Each mention of a folder would be listed separately, and a segment put in between would be
in only one list. A segment is retired before it is removed: its old time stamp excludes it from later
queries.

Delta reads its log once more when a query is planned, a moment after the segments were listed. So run a query
when it is created. A DataFrame that is kept must name the version that it was created from
(`handlers.spark.read.current.current` does)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from handlers.spark.rows.shape import Shape, log_schema
from handlers.spark.table_ref import TableRef, equal, listed, literal, quoted

Columns = Mapping[str, Sequence[str]]
"""A Spark table's columns, in order. Each with the names of its fields, if it is a struct."""

_GLOB = re.compile(r"([{}\[\]*?\\])")
_RETIRED = "1980-01-01"
"""Segments with an earlier time will be removed. See Files.retire."""
_LAST = 2**63 - 1
"""Greater than any segment's number."""
_IDENTITY = ("topic", "partition", "offset", "index")
"""These columns and the time identify a change. Without the time, a recreated topic repeats offsets."""


class NothingToSee(LookupError):
    """Only the merged rows of a table can be shown, and nothing is merged yet."""


def view_sql(
    ref: TableRef,
    shape: Shape,
    *,
    mode: str,
    prefix: str = "_",
    columns: Columns | None,
    version: int | None = None,
    beyond: int = 0,
    shared: str | None = None,
    received: str | None = None,
) -> str:
    """Return the body of a view of a table and its segments: persistent, temporary, or for `spark.sql`.

    `shape`: of the last segment's rows. `columns`: the Spark table's, None while it does not exist.
    `version`: of the Delta table, None for the newest one at the time of the query. `beyond`: the last
    segment that this version contains. No file up to it is opened, so its removal causes no error. `shared`:
    a view with the rows after the last segment, one per key. `received`: a view with the rows of all segments
    to read, instead of the log's folder. Its column `segment`, with the prefix, numbers the rows.

    A replica's rows are the table's rows whose key is in no segment, and each key's last row in the segments,
    unless deleted. If the last row lacks columns, the table's row is shown until the segment is merged (such
    segments are merged at once). A changelog's rows are the table's rows that are in no segment, and all rows
    of the segments. Histories and replicas without a key are shown as merged, because a segment's effect on
    them depends on all earlier rows.

    Columns that only the table has are null in rows from segments. Raises NothingToSee."""
    if mode == "changelog" and ref.path == ref.log_folder:
        # Its files are kept permanently, so they may have several shapes.
        return f"SELECT * FROM {folder_sql(ref.log_folder)} WITH (`mergeSchema` = 'true')"
    table = ref.sql if version is None else f"{ref.sql} VERSION AS OF {version}"
    builder = {"replica": _replica, "changelog": _changelog}.get(mode)
    if builder is None or (mode == "replica" and not shape.key):
        if columns is None:
            raise NothingToSee(f"{ref} has no rows yet: its received rows are not merged yet")
        return f"SELECT {listed(columns)} FROM {table}"
    there = None if columns is None else table
    return builder(_Parts(ref, there, shape, prefix, columns, beyond, shared, received))


def folder_sql(folder: str) -> str:
    """Return a folder of Parquet files for a statement's FROM. Pattern characters in its name are escaped."""
    return "parquet." + quoted(_GLOB.sub(r"\\\1", folder))


class _Parts(NamedTuple):
    ref: TableRef
    table: str | None
    shape: Shape
    prefix: str
    columns: Columns | None
    beyond: int
    shared: str | None
    received: str | None

    @property
    def waiting(self) -> str:
        """The segments, for a statement's FROM."""
        if self.received is not None:
            return f"{quoted(self.received)} WHERE true"
        folder = folder_sql(self.ref.log_folder)
        # Spark filters files by names and times before it opens any.
        if self.beyond:
            return f"{folder} WHERE _metadata.file_name > '{self.beyond:020d}.parquet'"
        return f"{folder} WHERE _metadata.file_modification_time > timestamp '{_RETIRED}'"

    def behind(self, columns: str) -> str:
        """These columns of the rows after the last segment."""
        return "" if self.shared is None else f" UNION ALL SELECT {columns} FROM {quoted(self.shared)}"

    def name(self, suffix: str) -> str:
        """The name of a column that binlane adds."""
        return quoted(f"{self.prefix}{suffix}")


def _replica(parts: _Parts) -> str:
    """The segments are read and shuffled once. Both uses of `newest` have the same plan up to the shuffle, so
    Spark runs it once. For that, nothing may be pruned from a struct that an aggregate creates. A join infers
    for one use that keys are not null, so the query says it for both. Spark does not shuffle or sort the
    table while it estimates, by the segments' size, that the changed keys are few enough to be broadcast."""
    own = list(parts.shape.schema.names)
    key = parts.shape.key
    number, row, op, absent = map(parts.name, ("segment", "row", "op", "absent"))
    _refuse_taken(own, parts.prefix)
    others = [quoted(name) for name in own if name not in key]
    are_there = "".join(f" AND {quoted(name)} IS NOT NULL" for name in key)
    there = "*"
    behind = ""
    if parts.shared is not None:
        there = listed(log_schema(parts.shape, mode="replica", prefix=parts.prefix).names)
        behind = parts.behind(f"{there}, {_LAST} AS {number}")
    if parts.received is None:
        there += f", bigint(left(_metadata.file_name, 20)) AS {number}"
    whole = f"struct({', '.join([op, absent, *others])})"
    newest = f"max_by({whole}, {number}) AS {row} FROM received GROUP BY {listed(key)}"
    if parts.received is not None:  # DuckDB makes 0.0 of a -0.0 in max_by, and in windows that it replaces
        last = f"SELECT max({number}) FROM received GROUP BY {listed(key)}"
        newest = f"{whole} AS {row} FROM received WHERE {number} IN ({last})"
    newest = (
        f"received AS (SELECT {there} FROM {parts.waiting}{are_there}{behind}),\n"
        f"newest AS (SELECT {listed(key)}, {newest})"
    )

    def of_newest(name: str) -> str:
        return f"newest.{quoted(name)}" if name in key else f"newest.{row}.{quoted(name)}"

    rows = f"FROM newest WHERE {row}.{op} <> 'delete' AND {row}.{absent} IS NULL"
    if parts.table is None or parts.columns is None:
        named = ", ".join(f"{of_newest(name)} AS {quoted(name)}" for name in own)
        return f"WITH {newest}\nSELECT {named} {rows}"
    # For a deleted row, the key is enough.
    known = f"SELECT {listed(key)} FROM newest WHERE {row}.{op} = 'delete' OR {row}.{absent} IS NULL"
    of_table, of_segments = _aligned(list(parts.columns), own, _of("t"), of_newest)
    return (
        f"WITH {newest}\n"
        f"SELECT {of_table} FROM {parts.table} AS t LEFT ANTI JOIN ({known}) AS k ON {equal(key, 't', 'k')}\n"
        f"UNION ALL\nSELECT {of_segments} {rows}"
    )


def _changelog(parts: _Parts) -> str:
    own = log_schema(parts.shape, mode="changelog", prefix=parts.prefix).names
    if parts.table is None or parts.columns is None:
        columns = "*" if parts.shared is None and parts.received is None else listed(own)
        return f"SELECT {columns} FROM {parts.waiting}{parts.behind(columns)}"
    identity = [f"{parts.prefix}{name}" for name in _IDENTITY]
    time = parts.name("source_time")
    of_table, of_segments = _aligned(list(parts.columns), own, _of("t"), _of("received"))
    received = [_before(parts) if name == f"{parts.prefix}before" else quoted(name) for name in own]
    columns = ", ".join(received)
    return (
        f"WITH received AS (SELECT {columns} FROM {parts.waiting}{parts.behind(columns)})\n"
        f"SELECT {of_table} FROM {parts.table} AS t LEFT ANTI JOIN received AS k "
        f"ON {equal(identity, 't', 'k')} AND t.{time} <=> k.{time}\n"
        f"UNION ALL\nSELECT {of_segments} FROM received"
    )


def _before(parts: _Parts) -> str:
    """The struct with the row before, with the table's fields, including dropped columns of the source."""
    before = f"{parts.prefix}before"
    own = parts.shape.schema.names
    fields = (parts.columns or {}).get(before, own)
    if list(fields) == own:
        return quoted(before)
    there = {name.lower() for name in own}
    values = (f"{quoted(before)}.{quoted(name)}" if name.lower() in there else "NULL" for name in fields)
    made = ", ".join(f"{literal(name)}, {value}" for name, value in zip(fields, values, strict=True))
    return f"IF({quoted(before)} IS NULL, NULL, named_struct({made})) AS {quoted(before)}"


def _aligned(
    table: Sequence[str],
    segments: Sequence[str],
    of_table: Callable[[str], str],
    of_segments: Callable[[str], str],
) -> tuple[str, str]:
    """Return the columns to select from both: the table's, then those that it does not have yet. `of_...`:
    such a column as an expression.

    Spark ignores case in names."""
    in_table = {name.lower(): name for name in table}
    in_segments = {name.lower(): name for name in segments}
    names = [*table, *(name for name in segments if name.lower() not in in_table)]

    def select(there: Mapping[str, str], column: Callable[[str], str]) -> str:
        return ", ".join(
            f"{column(there[name.lower()]) if name.lower() in there else 'NULL'} AS {quoted(name)}"
            for name in names
        )

    return select(in_table, of_table), select(in_segments, of_segments)


def _of(alias: str) -> Callable[[str], str]:
    return lambda name: f"{alias}.{quoted(name)}"


def _refuse_taken(columns: Sequence[str], prefix: str) -> None:
    taken = {"_metadata", f"{prefix}segment".lower()}
    for name in columns:
        if name.lower() in taken:
            raise NothingToSee(
                f"the source has a column {name!r}, which the view of table and segments needs itself: read "
                "the Delta table instead"
            )
