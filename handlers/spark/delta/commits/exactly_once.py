"""Commits that merge each segment into a Delta table once, whoever else writes the table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import CommitNote, LostCommit
from handlers.spark.delta.commits.held_segments import (
    delta_snapshot,
    held_by,
    held_in_snapshot,
    take_back,
    version_of,
)
from handlers.spark.log.beside import Held
from handlers.spark.log.segment_file import BrokenLog, read_head
from handlers.spark.log.segment_folder import SegmentFolder
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.interface import Files
from handlers.spark.table_ref import TableRef

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NOTES_ARE_KEPT = "spark.databricks.delta.commitInfo.enabled"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
"""Spark's inferred constraints double with each column that both a comparison and an alias use. With them, it
never finishes planning a comparison of rows with 40 columns."""
STRICT = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""Overrides of the configuration: rows of a file that Spark skips would be lost silently. Dates of segments
and texts in statements need no conversion."""
_CONFLICT = re.compile(
    "DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED|SCHEMA_CHANGE_SINCE)"
    "|ConcurrentModification|Concurrent[A-Z][a-z]+Exception|MetadataChangedException|ProtocolChangedException"
)


class MergeConflict(RuntimeError):
    """Another writer committed to the table first. Read what the table contains, and continue there."""


Whose = tuple[str, str]
"""Delta's id of a table, and the log's id (`TableRef.app_id`)."""
_committed: dict[Whose, int] = {}
"""The last segment that this process has seen in a table."""


@contextmanager
def fenced(session: SparkSession, ref: TableRef, note: CommitNote, *, after: int = 0) -> Iterator[None]:
    """Add the note to the one commit inside the block. It succeeds only if the table has none of its
    segments.

    This is a compare-and-set. Delta skips a command if the table's transaction version is at least the
    command's. It rejects a commit if another one has set the version meanwhile. The version is the *first*
    segment of the commit. This function checks that the table contains everything before it. Any commit
    between this check and the command contains that segment or a later one, so its version skips the command.
    (A version of the last segment would not, if that commit has fewer segments.) A skipped command raises
    nothing, so its note is looked for afterwards.

    `after`: the last segment that the table is known to contain. Raises MergeConflict if the table contains
    the first one already, or another writer was faster. Raises LostCommit if it contains less than it did,
    and BrokenLog if that is unknown."""
    earlier = _committed.copy()  # before the look: other threads of this process may commit after it
    held, version, whose = _look(session, ref)
    known = max(after, 0 if whose is None else earlier.get(whose, 0))
    remember_segment(whose, held.last)
    check_before(ref, held, known, note.first)
    commit = uuid.uuid4().hex
    confs = {
        _APP_ID: ref.app_id,
        _VERSION: str(note.first),
        _USER_METADATA: note.to_json(ref.app_id, commit),
        _NOTES_ARE_KEPT: "true",
        _CONSTRAINTS: "false",
        **STRICT,
    }
    with settings(session, confs):
        try:
            yield
        except Exception as error:
            if is_conflict(error):
                raise MergeConflict(f"{ref}: {str(error).splitlines()[0]}") from error
            raise
    made = version_of(session, ref, commit, version)
    if made is None:
        raise MergeConflict(f"{ref}: another worker merged segment {note.first}, so Delta skipped it")
    if version is not None and (
        made if whose is None else _whose(ref, delta_snapshot(session, ref)) != whose
    ):
        take_back(session, ref, made)
        raise MergeConflict(f"{ref}: another worker has dropped the table and made the next one")
    remember_segment(whose, note.segment)


def _look(session: SparkSession, ref: TableRef) -> tuple[Held, int | None, Whose | None]:
    """Return what the table contains, its version (-1 without a table), and its id with the log's. The last
    two are None if unknown."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is None:
        return held_by(session, ref), None, None
    version = int(snapshot.version())
    whose = _whose(ref, snapshot) if version >= 0 else None
    return held_in_snapshot(session, ref, snapshot), version, whose


def _whose(ref: TableRef, snapshot: Any) -> Whose:
    return str(snapshot.metadata().id()), ref.app_id


def check_goes_on(ref: TableRef, held: Held, told: Held, log: SegmentLog) -> None:
    """Check that the log continues where its table ends, so that nothing between them is lost.

    `held`: what the table contained before the log was loaded. `told`: what was recorded about the table,
    read before that. Raises BrokenLog, LostCommit, and what the store raises."""
    if held.last > log.last:
        end = f"ends with {log.last}" if log.last else "is empty"
        raise BrokenLog(
            f"{ref} has segment {held.last}, but its log {ref.log_folder} {end}: the position in the source "
            "is lost. Restore the log; or remove the table with it, and read the source again"
        )
    if held.last < told.last and held.last < log.removed():
        raise LostCommit(lost(ref, told.last, held.last))


def check_own(ref: TableRef, held: Held, files: Files) -> None:
    """Check that the segments which a table contains are its own log's. Others have the same numbers, so own
    rows would pass for merged. Raises BrokenLog, and what the store raises."""
    folder, number = ref.log_folder, held.last
    try:
        path = f"{folder}/{number:020d}.parquet"
        is_own = not number or held.marks in (None, read_head(files, path, number, 0).marks.highest())
    except FileNotFoundError:  # removed, or not shown yet
        is_own = SegmentFolder(files, folder, now=int).newest() >= number
    if not is_own:
        raise BrokenLog(
            f"{ref} has segment {number} of another log than {folder}: workers with two warehouses or paths "
            "write it, or the log was restored or removed, and rows would be lost. Give one of them another "
            "table, restore the log, or remove the table with its log and read the source again"
        )


def check_before(ref: TableRef, held: Held, known: int, first: int) -> None:
    """Check that the table contains what it is `known` to contain, and not yet the `first` segment of a
    commit. Raises LostCommit, MergeConflict."""
    if held.last < known:
        raise LostCommit(lost(ref, known, held.last))
    if held.last >= first:
        raise MergeConflict(f"{ref} already has segment {held.last}: another worker merged it")


def known_segment(whose: Whose | None) -> int:
    """The last segment that this process has seen in a table."""
    return 0 if whose is None else _committed.get(whose, 0)


def remember_segment(whose: Whose | None, last: int) -> None:
    """Remember that this process has seen this segment in the table."""
    if whose is not None:
        _committed[whose] = max(last, _committed.get(whose, 0))


def lost(ref: TableRef, known: int, held: int) -> str:
    """Return the error text for a table that contains less than it did, with what to do."""
    return (
        f"{ref} had segment {known} of its log, and now has {held or 'none'}: the table was restored, "
        "replaced or removed, or another writer has overwritten a commit (as it can on S3 if a Delta table "
        "has no store for several clusters). The rows between them would be lost. Restore the table's newest "
        f"version or snapshot; or remove it with its log {ref.log_folder}, and read the source again"
    )


@contextmanager
def settings(session: SparkSession, confs: Mapping[str, str | None]) -> Iterator[None]:
    """Set these session properties inside the block, and restore them afterwards. None unsets one."""
    before = {name: session.conf.get(name, None) for name in confs}
    _set(session, confs)
    try:
        yield
    finally:
        _set(session, before)


def _set(session: SparkSession, confs: Mapping[str, str | None]) -> None:
    for name, value in confs.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def is_conflict(error: Exception) -> bool:
    """Whether Delta rejected a commit because of another writer's commit.

    https://docs.delta.io/concurrency-control/"""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return bool(_CONFLICT.search(condition or str(error)[:2000]))
