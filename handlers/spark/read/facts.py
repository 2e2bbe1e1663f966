"""A table's progress, from its log and Delta's own. Spark is asked only for what the files do not contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import held_in_files, notes_in_files, read_note
from handlers.spark.delta.commits.held_segments import held_by, last_note
from handlers.spark.delta.log_actions import OnlySpark, dataset_of
from handlers.spark.delta.log_files import has_commits, snapshot_in_files
from handlers.spark.log.beside import Held, ToldHeld
from handlers.spark.log.marks import Marks
from handlers.spark.log.pack_file import Piece
from handlers.spark.log.segment_file import REPLACE, BrokenLog, Head, Segment
from handlers.spark.log.store_choice import Spark
from handlers.spark.log.stores.interface import Files
from handlers.spark.read.current import columns_of, version_of
from handlers.spark.read.log_heads import Found, Shared, head_of, log_of
from handlers.spark.read.view import Columns
from handlers.spark.runtime.errors import SPARK_ERRORS, told
from handlers.spark.table_ref import TableRef

_LOOKS = 3
"""The most attempts to read all facts from one version, while a worker changes the table."""
_NOTES = 100
"""Commits of others (OPTIMIZE, ALTER) may follow ours."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One table, as `binlane tables` shows it. Sizes in bytes, times in milliseconds since 1970."""

    table: str
    handler: str
    mode: str
    place: str
    rows: int | None = None
    """Rows of the Spark table. None, like the next ones, if it does not exist yet."""
    files: int | None = None
    bytes: int | None = None
    version: int | None = None
    merged_source_time_ms: int | None = None
    """The newest source time in the Spark table, if its last commits contain it."""
    waiting_segments: int = 0
    """Segments that are received and durable, but not in the Spark table yet."""
    waiting_rows: int = 0
    waiting_bytes: int = 0
    waiting_statements: int = 0
    """Statements of the source that are received and not followed yet."""
    source_time_ms: int | None = None
    """The newest source time, including waiting segments."""
    view_source_time_ms: int | None = None
    """The newest source time that views show, without anything after a waiting statement."""
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> the last received offset, merged or waiting."""
    problems: Sequence[str] = ()
    """Oddities and obstacles."""
    unread: bool = False
    """Whether something could not be read. `problems` contains it."""


def facts_of(spark: Spark, files: Files, found: Found, handler: str, shared: Shared | None = None) -> Facts:
    """Collect everything about one table. Puts whatever cannot be read into `problems`. Asks `spark` only for
    what the files do not contain. `shared`: reads packs once for several tables."""
    facts = Facts(found.name, handler, found.mode, str(found.ref))
    try:
        facts, merged, columns = _with_table(spark, files, found, facts)
        facts = _with_log(files, found, facts, merged, shared or Shared(files))
        head = head_of(files, found.ref.log_folder)
        if head is not None and columns is not None:
            facts = _noting(facts, _missing_columns(head, columns))
    except SPARK_ERRORS as error:
        return replace(_noting(facts, told(error)), unread=True)
    except (BrokenLog, OSError) as error:
        return replace(_noting(facts, str(error)), unread=True)
    return facts


def _with_table(spark: Spark, files: Files, found: Found, facts: Facts) -> tuple[Facts, int, Columns | None]:
    """Return the facts from the Spark table, its last merged segment, and its columns."""
    ref = found.ref
    if ref.path is not None and (ref.path == ref.log_folder or not has_commits(files, ref.path)):
        return facts, 0, None
    seen = None if ref.path is None else _by_files(files, ref.path, ref, facts)
    return seen or _by_spark(spark.session, ref, facts) or (facts, 0, None)


def _counted(facts: Facts, note: Mapping[str, Any] | None, **counted: Any) -> Facts:
    """`note`: of the newest merge."""
    return replace(facts, merged_source_time_ms=(note or {}).get("source_time_ms") or None, **counted)


def known_columns(spark: Spark, files: Files, ref: TableRef) -> Columns | None:
    """Return the Spark table's columns. None if it does not exist."""
    if ref.path is not None:
        if not has_commits(files, ref.path):
            return None
        if (snapshot := snapshot_in_files(files, ref.path)) is not None:
            return snapshot.metadata.columns
    return columns_of(spark.session, ref)


_Seen = tuple[Facts, int, Columns]
"""The facts from a table, its last merged segment, and its columns. All are from one version, unless the
table changes at each attempt."""


def _by_files(files: Files, path: str, ref: TableRef, facts: Facts) -> _Seen | None:
    """Read the log's files. None: ask Spark."""
    snapshot = snapshot_in_files(files, path)
    if snapshot is None:
        return None
    notes = notes_in_files(files, path, _NOTES, snapshot.version)
    held = held_in_files(files, path, ref.app_id, snapshot.version)
    if held is None and ref.app_id not in snapshot.writers:
        held = Held()  # nothing was ever merged
    if (rows := snapshot.rows) is None:
        try:
            with ExitStack() as stack:
                rows = dataset_of(files, path, snapshot, stack)[0].count_rows()
        except OnlySpark:
            return None
    if notes is None or held is None:
        return None
    note = next((note for note in map(read_note, notes) if note and note.get("segment")), None)
    size = {"files": len(snapshot.files), "bytes": snapshot.bytes, "rows": rows}
    facts = _counted(facts, note, version=snapshot.version, **size)
    return facts, held.last, snapshot.metadata.columns


def _by_spark(session: SparkSession, ref: TableRef, facts: Facts) -> _Seen | None:
    """Ask Spark. None if the table does not exist."""
    columns = columns_of(session, ref)
    if columns is None:
        return None
    version = version_of(session, ref)
    for _ in range(_LOOKS):
        [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
        [found] = session.sql(f"SELECT count(*) AS n FROM {ref.sql}").collect()
        note, merged = last_note(session, ref), held_by(session, ref).last
        before, version = version, version_of(session, ref)
        if version == before:
            break
    size = {"files": detail["numFiles"], "bytes": detail["sizeInBytes"], "rows": found["n"]}
    return _counted(facts, note, version=version, **size), merged, columns


def _with_log(files: Files, found: Found, facts: Facts, merged: int, shared: Shared) -> Facts:
    is_table = found.ref.path == found.ref.log_folder
    heads = log_of(files, found.ref.log_folder, after=merged)
    if not heads:
        if facts.rows is None:
            return _noting(facts, "there is neither a table nor a log")
        return facts
    segments = [head.segment for head in heads if head.segment.number > merged and head.segment.rows]
    newest = _newest(segments, facts)
    facts = replace(
        facts, offsets=_offsets(heads[-1].marks), source_time_ms=newest, view_source_time_ms=newest
    )
    if heads[-1].is_behind:
        facts = _with_statements(files, found, facts, heads)
    size = sum(segment.bytes for segment in segments)
    rows = sum(segment.rows for segment in segments)
    if is_table:  # plain Parquet files: none of them waits
        return replace(facts, rows=rows, files=len(segments), bytes=size, merged_source_time_ms=newest)
    if facts.rows is None and not segments:
        facts = _noting(facts, "there is no table: the source dropped or renamed it, or it is still empty")
    facts = replace(facts, waiting_segments=len(segments), waiting_rows=rows, waiting_bytes=size)
    return _with_packs(facts, shared.pieces(found.ref.log_folder, heads[-1]))


def _with_packs(facts: Facts, pieces: Sequence[Piece]) -> Facts:
    """Add the pieces in packs after the last segment."""
    if not pieces:
        return facts
    times = [each.last_source_ms for each in pieces if each.last_source_ms is not None]
    return replace(
        facts,
        offsets=_offsets(Marks.from_json(pieces[-1].marks)),
        waiting_segments=facts.waiting_segments + len(pieces),
        waiting_rows=facts.waiting_rows + sum(each.rows for each in pieces),
        waiting_bytes=facts.waiting_bytes + sum(each.size for each in pieces),
        source_time_ms=max([*times, facts.source_time_ms or 0]) or None,
    )


def _with_statements(files: Files, found: Found, facts: Facts, heads: Sequence[Head]) -> Facts:
    """Add how far views show the log, if it ends after a statement."""
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
    if one.op == REPLACE:
        return _noting(facts, "views end before the rows of its reload: they wait for Spark")
    return _noting(
        facts,
        f"views end before {one.topic}[{one.partition}] offset {one.offset}, which is not applied yet: "
        f"{one.sql or one.op}",
    )


def _offsets(marks: Marks) -> Mapping[str, Mapping[int, int]]:
    offsets: dict[str, dict[int, int]] = {}
    for (topic, partition), (offset, _) in sorted(marks.highest().items()):
        offsets.setdefault(topic, {})[partition] = offset
    return offsets


def _newest(segments: Sequence[Segment], facts: Facts) -> int | None:
    """The newest source time of these segments and of the table. None if the source sent none (0)."""
    times = [segment.last_source_ms for segment in segments if segment.last_source_ms is not None]
    return max([*times, facts.merged_source_time_ms or 0]) or None


def _missing_columns(head: Head, columns: Columns) -> str | None:
    there = {name.lower() for name in columns}
    lacking = [name for name in head.segment.schema.names if name.lower() not in there and name[:1].isalpha()]
    if not lacking or not head.segment.rows:
        return None
    return f"the table has no column {', '.join(lacking)}, which its log has: the next commit adds it"


def _noting(facts: Facts, problem: str | None) -> Facts:
    return facts if problem is None else replace(facts, problems=[*facts.problems, problem])
