"""Merge on read: one query that shows a table as of its newest segment, not of its last commit.

A log always holds a contiguous end of what its table received: every segment that the table does not have
yet, and for a while those that it has. Applying the last change of each key of such an end to the table's
state, or to a newer one, gives the newest state. Hence the order in which Spark looks at things: it resolves
the Delta table first and lists the segments after it (`delta.` is resolved by the catalog, `parquet.` by a
later rule of the same analysis), so no segment is missing that the table's state did not have. The segments
are named once, in a common table expression: each mention of a folder would be listed by itself, and a
segment put in between would be in one of the lists only. Segments that will be removed before the query has
read them are retired before: their time stamp says so.

Delta looks at its log once more when a query is planned, a moment after the segments were listed. So a query
is to be run as it is made; whoever keeps a DataFrame names the version that it was made of
(`handlers.spark.read.current.current` does)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from handlers.spark.delta.statements import equal, listed, literal
from handlers.spark.rows.added import log_schema
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef, quoted

Columns = Mapping[str, Sequence[str]]
"""A Spark table's columns, in order; each with the names of its fields, if it is a struct."""

_GLOB = re.compile(r"([{}\[\]*?\\])")
_RETIRED = "1980-01-01"
"""Of an earlier time are segments that will be removed: see Files.retire."""
_LAST = 2**63 - 1
"""Greater than any segment's number."""
_IDENTITY = ("topic", "partition", "offset", "index")
"""These columns name a change, with its time: where a topic was made anew, its offsets began anew."""


class NothingToSee(LookupError):
    """A table of which only its merged rows can be shown, and nothing was merged yet."""


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
) -> str:
    """The body of a view of a table and its segments; a persistent, a temporary one, or for `spark.sql`.

    `shape`: of the last segment's rows. `columns`: the Spark table's; None while there is none. `version`: of
    the Delta table; None: whichever is newest when the view is asked. `beyond`: the last segment that this
    version holds: no file up to it is opened, so that none is missed when it is removed. `shared`: a view
    with the rows behind the last segment, of each key one.

    A replica's rows are those of the table whose key no segment has, and of each key in the segments the
    last row unless it was deleted. Where the last one does not carry all columns, the table's row stands
    until the segment is merged (such segments are merged at once). A changelog's rows are those of the table
    that no segment has, and all of the segments. Histories and replicas without a key are shown as merged,
    for what a segment changes in them depends on all rows before it.

    Columns that only the table has are null in rows that come from segments. Raises NothingToSee."""
    if mode == "changelog" and ref.path == ref.log_folder:
        # Its files stay for ever, so they may be of several shapes.
        return f"SELECT * FROM {folder_sql(ref.log_folder)} WITH (`mergeSchema` = 'true')"
    table = ref.sql if version is None else f"{ref.sql} VERSION AS OF {version}"
    builder = {"replica": _replica, "changelog": _changelog}.get(mode)
    if builder is None or (mode == "replica" and not shape.key):
        if columns is None:
            raise NothingToSee(f"{ref} has no rows yet: its received rows are not merged yet")
        return f"SELECT {listed(columns)} FROM {table}"
    return builder(_Parts(ref, None if columns is None else table, shape, prefix, columns, beyond, shared))


def folder_sql(folder: str) -> str:
    """A folder of Parquet files in a statement's FROM; its name is no pattern."""
    return "parquet." + quoted(_GLOB.sub(r"\\\1", folder))


class _Parts(NamedTuple):
    ref: TableRef
    table: str | None
    shape: Shape
    prefix: str
    columns: Columns | None
    beyond: int
    shared: str | None

    @property
    def waiting(self) -> str:
        """The segments, in a statement's FROM."""
        folder = folder_sql(self.ref.log_folder)
        # Spark sorts files out by their names and times before it opens any.
        if self.beyond:
            return f"{folder} WHERE _metadata.file_name > '{self.beyond:020d}.parquet'"
        return f"{folder} WHERE _metadata.file_modification_time > timestamp '{_RETIRED}'"

    def behind(self, columns: str) -> str:
        """These, of the rows behind the last segment."""
        return "" if self.shared is None else f" UNION ALL SELECT {columns} FROM {quoted(self.shared)}"

    def name(self, suffix: str) -> str:
        """A column that binlane adds."""
        return quoted(f"{self.prefix}{suffix}")


def _replica(parts: _Parts) -> str:
    """The segments are read and shuffled once, for both uses of `newest` are the same plan up to the shuffle,
    which Spark makes once: nothing is pruned from a struct that an aggregate makes, and that keys are not
    null, as a join infers for one of them, is said for both. The table is neither shuffled nor sorted while
    its changed keys are few enough to be broadcast, as Spark judges by the segments' size."""
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
    newest = (
        f"received AS (SELECT {there}, bigint(left(_metadata.file_name, 20)) AS {number} "
        f"FROM {parts.waiting}{are_there}{behind}),\n"
        f"newest AS (SELECT {listed(key)}, max_by(struct({', '.join([op, absent, *others])}), {number}) "
        f"AS {row} FROM received GROUP BY {listed(key)})"
    )

    def of_newest(name: str) -> str:
        return f"newest.{quoted(name)}" if name in key else f"newest.{row}.{quoted(name)}"

    rows = f"FROM newest WHERE {row}.{op} <> 'delete' AND {row}.{absent} IS NULL"
    if parts.table is None or parts.columns is None:
        named = ", ".join(f"{of_newest(name)} AS {quoted(name)}" for name in own)
        return f"WITH {newest}\nSELECT {named} {rows}"
    # A deleted row is told whole by its key.
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
        columns = "*" if parts.shared is None else listed(own)
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
    """The struct with the row before, as the table has it: columns that the source has dropped are there."""
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
    """What to select of both, so that the columns are the same: the table's, then those that it has not yet.
    `of_...`: such a column as an expression.

    Spark tells names apart without regard to case."""
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
