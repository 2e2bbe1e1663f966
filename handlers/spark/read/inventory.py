"""Which tables a handler has, and how far each of them is: from their logs and Delta's own, nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from handlers.spark.delta.commits.held_segments import last_note, merged_segment
from handlers.spark.locations import Locations
from handlers.spark.log.last_seen_table import ToldHeld
from handlers.spark.log.marks import Marks
from handlers.spark.log.owner import Owner, fits, logs_below
from handlers.spark.log.packs.pack_file import Piece
from handlers.spark.log.segment_file import BrokenLog, Head, Segment
from handlers.spark.log.stores.interface import Files
from handlers.spark.options import SparkOptions
from handlers.spark.read.inspection import columns_of, head_of, log_of, version_of
from handlers.spark.read.shared import Shared
from handlers.spark.read.view import Columns, folder_sql
from handlers.spark.runtime.errors import told
from handlers.spark.table_ref import TableRef, path_of

__all__ = ["Facts", "Found", "facts_of", "found_tables"]

_LOOKS = 3
"""At a table that a worker changes meanwhile: what is told of it is to be of one version."""


@dataclass(frozen=True, slots=True)
class Found:
    """A source table with a Spark table, or a log, or both."""

    database: str
    table: str
    ref: TableRef
    mode: str

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True, slots=True)
class Facts:
    """One table, as `binlane tables` tells of it. Sizes in bytes, times in milliseconds since 1970."""

    table: str
    handler: str
    mode: str
    place: str
    rows: int | None = None
    """Of the Spark table; None: there is none yet, as with all that follows."""
    files: int | None = None
    bytes: int | None = None
    version: int | None = None
    merged_source_time_ms: int | None = None
    """The newest source time in the Spark table, where its last commits tell it."""
    waiting_segments: int = 0
    """Received, durable, and not in the Spark table yet."""
    waiting_rows: int = 0
    waiting_bytes: int = 0
    waiting_statements: int = 0
    """Statements of the source that are received and not followed yet."""
    source_time_ms: int | None = None
    """The newest source time of all, with what waits."""
    view_source_time_ms: int | None = None
    """The newest that views show: nothing of what is behind a statement that waits."""
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> the last offset that reached the table."""
    problems: Sequence[str] = ()
    """What is odd, or in the way."""
    unread: bool = False
    """Whether something could not be read, as told in `problems`."""


def found_tables(files: Files, locations: Locations, options: SparkOptions) -> Iterator[Found]:
    """The handler's tables: those with a log, and those in folders as its `path` makes them.

    A table of a catalog is only found by its log. Raises BrokenLog, and what the store raises.
    """
    seen: set[tuple[str, str]] = set()
    for folder, owner in logs_below(files, locations.logs):
        ref = locations.ref(owner.database, owner.table)
        # Other handlers may have logs here, too.
        own = Owner(owner.database, owner.table, options.mode, options.prefix, options.table or "")
        if ref.log_folder == folder and fits(owner, own):
            seen.add((owner.database, owner.table))
            yield Found(owner.database, owner.table, ref, options.mode)
    if options.table is not None:
        return
    for database, table in _by_folder(files, locations, options.format == "parquet"):
        if (database, table) not in seen:
            yield Found(database, table, locations.ref(database, table), options.mode)


def facts_of(
    session: SparkSession, files: Files, found: Found, handler: str, shared: Shared | None = None
) -> Facts:
    """Everything about one table. Whatever cannot be read is told in `problems`. `shared`: to look at packs
    once for several tables."""
    facts = Facts(found.name, handler, found.mode, str(found.ref))
    try:
        facts, merged, columns = _with_table(session, found, facts)
        facts = _with_log(files, found, facts, merged, shared or Shared(files))
        head = head_of(files, found.ref.log_folder)
        if head is not None and columns is not None:
            facts = _noting(facts, _missing_columns(head, columns))
    except PySparkException as error:
        return replace(_noting(facts, told(error)), unread=True)
    except (BrokenLog, OSError) as error:
        return replace(_noting(facts, str(error)), unread=True)
    return facts


def _with_table(session: SparkSession, found: Found, facts: Facts) -> tuple[Facts, int, Columns | None]:
    """What the Spark table tells; the last segment that it holds; its columns."""
    ref = found.ref
    if ref.path == ref.log_folder:  # plain Parquet files: none of them waits
        [row] = session.sql(f"SELECT count(*) AS n FROM {folder_sql(ref.log_folder)}").collect()
        return replace(facts, rows=int(row["n"])), 0, None
    columns = columns_of(session, ref)
    if columns is None:
        return facts, 0, None
    version = version_of(session, ref)
    for _ in range(_LOOKS):
        [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
        [counted] = session.sql(f"SELECT count(*) AS n FROM {ref.sql}").collect()
        note, merged = last_note(session, ref) or {}, merged_segment(session, ref)
        before, version = version, version_of(session, ref)
        if version == before:
            break
    facts = replace(
        facts,
        rows=int(counted["n"]),
        files=int(detail["numFiles"]),
        bytes=int(detail["sizeInBytes"]),
        version=version,
        merged_source_time_ms=note.get("source_time_ms"),
    )
    return facts, merged, columns


def _with_log(files: Files, found: Found, facts: Facts, merged: int, shared: Shared) -> Facts:
    is_table = found.ref.path == found.ref.log_folder
    heads = log_of(files, found.ref.log_folder, after=merged).heads
    if not heads:
        if facts.rows is None:
            return _noting(facts, "there is neither a table nor a log")
        return facts
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), (offset, _) in sorted(heads[-1].marks.highest().items()):
        offsets.setdefault(topic, {})[partition] = offset
    segments = [head.segment for head in heads if head.segment.number > merged and head.segment.rows]
    newest = _newest(segments, facts)
    facts = replace(facts, offsets=offsets, source_time_ms=newest, view_source_time_ms=newest)
    if heads[-1].is_behind:
        facts = _with_statements(files, found, facts, heads)
    size = sum(segment.bytes for segment in segments)
    if is_table:
        return replace(facts, files=len(segments), bytes=size, merged_source_time_ms=newest)
    rows = sum(segment.rows for segment in segments)
    if facts.rows is None and not segments:
        facts = _noting(facts, "there is no table: the source dropped or renamed it, or it is still empty")
    facts = replace(facts, waiting_segments=len(segments), waiting_rows=rows, waiting_bytes=size)
    return _with_packs(facts, shared.pieces(found.ref.log_folder, heads[-1]))


def _with_packs(facts: Facts, pieces: Sequence[Piece]) -> Facts:
    """With what is behind the last segment in packs."""
    if not pieces:
        return facts
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), (offset, _) in sorted(Marks.from_json(pieces[-1].marks).highest().items()):
        offsets.setdefault(topic, {})[partition] = offset
    times = [each.last_source_ms for each in pieces if each.last_source_ms is not None]
    return replace(
        facts,
        offsets=offsets,
        waiting_segments=facts.waiting_segments + len(pieces),
        waiting_rows=facts.waiting_rows + sum(each.rows for each in pieces),
        waiting_bytes=facts.waiting_bytes + sum(each.size for each in pieces),
        source_time_ms=max([*times, *filter(None, [facts.source_time_ms])], default=None),
    )


def _with_statements(files: Files, found: Found, facts: Facts, heads: Sequence[Head]) -> Facts:
    """Until where views reach, of a log that ends behind a statement."""
    followed = ToldHeld(files, found.ref.log_folder).look().followed
    seen = head_of(files, found.ref.log_folder)
    until = 0 if seen is None else seen.segment.number
    shown = _newest([head.segment for head in heads if head.segment.number <= until], facts)
    waiting = [
        head.segment.statement
        for head in heads
        if head.segment.statement is not None and head.segment.number > followed
    ]
    facts = replace(facts, view_source_time_ms=shown, waiting_statements=len(waiting))
    if not waiting:
        return facts
    one = waiting[0]
    return _noting(
        facts,
        f"views end before {one.topic}[{one.partition}] offset {one.offset}, which is not followed yet: "
        f"{one.sql or one.op}",
    )


def _newest(segments: Sequence[Segment], facts: Facts) -> int | None:
    """The newest source time of these and of the table."""
    times = [segment.last_source_ms for segment in segments if segment.last_source_ms is not None]
    return max([*times, *filter(None, [facts.merged_source_time_ms])], default=None)


def _missing_columns(head: Head, columns: Columns) -> str | None:
    there = {name.lower() for name in columns}
    lacking = [name for name in head.schema.names if name.lower() not in there and name[:1].isalpha()]
    if not lacking or not head.segment.rows:
        return None
    return f"the table has no column {', '.join(lacking)}, which its log has: it comes with the next commit"


def _noting(facts: Facts, problem: str | None) -> Facts:
    return facts if problem is None else replace(facts, problems=[*facts.problems, problem])


# ---- by folder


def _by_folder(files: Files, locations: Locations, are_logs: bool) -> Iterator[tuple[str, str]]:
    """Databases and tables of the folders that are named as the handler names them, and hold a table."""
    names = ("binlaneDatabase", "binlaneTable")
    sample = locations.ref(*names).path
    assert sample is not None
    pattern = re.escape(sample.removeprefix(f"{locations.root}/"))
    for group, name in zip(("database", "table"), names, strict=True):
        pattern = pattern.replace(name, f"(?P<{group}>[^/]+)", 1).replace(name, f"(?P={group})")
    expression = re.compile(pattern)
    depth = sample.removeprefix(locations.root).count("/")
    for path in _folders(files, locations.root, depth):
        match = expression.fullmatch(path.removeprefix(f"{locations.root}/"))
        if match is None:
            continue
        names_found = {group: path_of(text) for group, text in match.groupdict().items()}
        there = head_of(files, path) is not None if are_logs else files.exists(f"{path}/_delta_log")
        if there:
            yield names_found.get("database", ""), names_found["table"]


def _folders(files: Files, folder: str, depth: int) -> Iterator[str]:
    for entry in sorted(files.list(folder), key=lambda entry: entry.name):
        if entry.is_folder and not entry.name.startswith(("_", ".")):
            path = f"{folder}/{entry.name}"
            if depth == 1:
                yield path
            else:
                yield from _folders(files, path, depth - 1)
