"""The commits that bring segments into a Delta table: each segment once, whoever else writes the table."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.held_segments import delta_snapshot, held_by, held_in_snapshot, is_committed
from handlers.spark.delta.commits.restored import LostCommit
from handlers.spark.log.last_seen_table import Held
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.segments import SegmentLog
from handlers.spark.table_ref import TableRef

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_NOTES_ARE_KEPT = "spark.databricks.delta.commitInfo.enabled"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
"""What Spark infers from comparisons and aliases doubles with each column that both speak of: a comparison of
rows of 40 columns is never planned to its end."""
STRICT = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
"""Whatever is configured: rows of a file that Spark passes over would be lost without a word, and the dates
of segments are as they are."""
_CONFLICT = re.compile(
    "DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED|SCHEMA_CHANGE_SINCE)"
    "|ConcurrentModification|Concurrent[A-Z][a-z]+Exception|MetadataChangedException|ProtocolChangedException"
)


class MergeConflict(RuntimeError):
    """Another writer committed to the table first: look what it holds now, and go on from there."""


Whose = tuple[str, str]
"""Delta's id of a table, and whose log (`TableRef.app_id`)."""
_committed: dict[Whose, int] = {}
"""The last segment that this process has seen in a table."""


@contextmanager
def fenced(session: SparkSession, ref: TableRef, note: CommitNote, *, after: int = 0) -> Iterator[None]:
    """The one commit within carries the note, and is made only if the table holds none of its segments.

    A compare-and-set: Delta skips a command when the table's transaction version is at least the command's,
    and gives up a commit when another one has set it meanwhile. The version is the *first* segment that the
    commit brings. Here it is seen that the table holds all before that segment; whatever commit comes between
    this look and the command brings that segment or a later one, and so sets a version that skips the
    command. (Were it the last one, a commit that brings fewer segments would not.) A command that was
    skipped raises nothing, so its note is looked for afterwards.

    `after`: the segment up to which the table is known to hold its log. Raises MergeConflict when the table
    holds the first segment already, or another writer was faster; LostCommit when it holds less than it is
    known to; UnknownSegments."""
    earlier = _committed.copy()  # before the look: others of this process may commit after it
    held, version, whose = _look(session, ref)
    known = max(after, 0 if whose is None else earlier.get(whose, 0))
    if held.last < known:
        raise LostCommit(lost(ref, known, held.last))
    remember_segment(whose, held.last)
    if held.last >= note.first:
        raise MergeConflict(f"{ref} already has segment {held.last}: another worker merged it")
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
    if not is_committed(session, ref, commit, version):
        raise MergeConflict(f"{ref}: another worker merged segment {note.first}, so Delta skipped it")
    remember_segment(whose, note.segment)


def _look(session: SparkSession, ref: TableRef) -> tuple[Held, int | None, Whose | None]:
    """What the table holds; its version (-1: there is no table), and its id with the log's, where they are
    known."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is None:
        return held_by(session, ref), None, None
    version = int(snapshot.version())
    whose = (str(snapshot.metadata().id()), ref.app_id) if version >= 0 else None
    return held_in_snapshot(session, ref, snapshot), version, whose


def check_goes_on(ref: TableRef, held: Held, told: Held, log: SegmentLog) -> None:
    """See to it that the log goes on where its table ends, so that nothing between is lost.

    `held`: what the table holds, looked at before the log was loaded; `told`: what is written down of it,
    looked at before that. Raises BrokenLog, LostCommit, and what the store raises."""
    if held.last > log.last:
        end = f"ends with {log.last}" if log.last else "is empty"
        raise BrokenLog(
            f"{ref} has segment {held.last}, but its log {ref.log_folder} {end}: the position in the source "
            "is lost. Restore the log; or remove the table with it, and read the source again"
        )
    if held.last < told.last and held.last < log.removed():
        raise LostCommit(lost(ref, told.last, held.last))


def known_segment(whose: Whose | None) -> int:
    """The last segment that this process has seen in a table."""
    return 0 if whose is None else _committed.get(whose, 0)


def remember_segment(whose: Whose | None, last: int) -> None:
    """This process has seen that the table holds this segment."""
    if whose is not None:
        _committed[whose] = max(last, _committed.get(whose, 0))


def lost(ref: TableRef, known: int, held: int) -> str:
    """What to do about a table that holds less than it did."""
    return (
        f"{ref} had segment {known} of its log, and now has {held or 'none'}: the table was restored, "
        "replaced or removed, or another writer has overwritten a commit, as it can on S3 without Delta's "
        "store for several clusters. The rows between them would be lost. Restore the table's newest "
        f"version; or remove it with its log {ref.log_folder}, and read the source again"
    )


@contextmanager
def settings(session: SparkSession, confs: Mapping[str, str | None]) -> Iterator[None]:
    """Within, the session has these settings; None: it has not got that one."""
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
    """Whether Delta did not make a commit because of what another writer had committed meanwhile.

    https://docs.delta.io/concurrency-control/"""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return bool(_CONFLICT.search(condition or str(error)[:2000]))
