"""What every commit of a Delta table carries: how far its log is merged, and who wrote it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from handlers.spark.delta.statements import literal
from handlers.spark.table_ref import TableRef

__all__ = [
    "CommitNote",
    "LostCommit",
    "MergeConflict",
    "delta_snapshot",
    "exists",
    "fenced",
    "is_conflict",
    "last_note",
    "merged_segment",
    "settings",
]

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_CONSTRAINTS = "spark.sql.constraintPropagation.enabled"
"""What Spark infers from comparisons and aliases doubles with each column that both speak of: a comparison of
rows of 40 columns is never planned to its end."""
_CONFLICT = re.compile(
    "DELTA_(CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED|SCHEMA_CHANGE_SINCE)"
    "|ConcurrentModification|Concurrent[A-Z][a-z]+Exception|MetadataChangedException|ProtocolChangedException"
)
_LOOK_BACK = 100
"""Commits of others (OPTIMIZE, ALTER) that may follow ours."""


class MergeConflict(RuntimeError):
    """Another writer committed to the table first: look what it holds now, and go on from there."""


class LostCommit(RuntimeError):
    """A commit that this worker has made is not in the table any more."""


_committed: dict[tuple[str, str], int] = {}
"""(Delta's id of a table, whose log) -> the last segment that this process has seen in it."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """The user metadata of a commit."""

    worker: str
    handler: str
    segment: int
    """The last segment that the table holds with this commit; 0 for one of DDL."""
    source_time_ms: int
    """Of the newest change in it."""
    marks: Mapping[tuple[str, int], tuple[int, int]]
    """(topic, partition) -> (offset, index) of the last change that is applied."""

    def to_json(self, log: str = "") -> str:
        """`log`: whose segments are meant (`TableRef.app_id`): a renamed table has commits of two."""
        marks: dict[str, dict[str, list[int]]] = {}
        for (topic, partition), place in sorted(self.marks.items()):
            marks.setdefault(topic, {})[str(partition)] = list(place)
        told = {
            "worker": self.worker,
            "handler": self.handler,
            "log": log,
            "segment": self.segment,
            "source_time_ms": self.source_time_ms,
            "marks": marks,
        }
        return json.dumps({"binlane": told}, separators=(",", ":"))


def delta_snapshot(session: SparkSession, ref: TableRef) -> Any | None:
    """Delta's own view of the table, read anew; None where only SQL is to be had. A table that is not there
    has version -1."""
    if ref.path is None or not hasattr(session, "_jsparkSession"):
        return None
    jvm: Any = session._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session._jsparkSession, ref.path)
    nothing = jvm.scala.Option.empty()
    return log.update(False, nothing, nothing)


def exists(session: SparkSession, ref: TableRef) -> bool:
    """Whether there is such a table."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is not None:
        return bool(snapshot.version() >= 0)
    try:
        session.sql(f"DESCRIBE DETAIL {ref.sql}")
    except AnalysisException:
        return False
    return True


def merged_segment(session: SparkSession, ref: TableRef, is_classic: bool = True) -> int:
    """The number of the last segment that the table holds; 0: none, or there is no table.

    Where only SQL is to be had (or `is_classic` is False) it is read from the commits' notes, and from
    Delta's checkpoints when those are so old that Delta has removed them.
    """
    snapshot = delta_snapshot(session, ref) if is_classic else None
    if snapshot is not None:
        return _in_snapshot(snapshot, ref)
    if not exists(session, ref):
        return 0
    for last in (_LOOK_BACK, None):  # the whole history may be long
        for note in _notes(session, ref, last):
            if note.get("log") == ref.app_id and note["segment"]:
                return int(note["segment"])
    return _in_checkpoints(session, ref)


def _in_snapshot(snapshot: Any, ref: TableRef) -> int:
    found = snapshot.transactions().get(ref.app_id)
    return int(found.get()) if found.isDefined() else 0


def _in_checkpoints(session: SparkSession, ref: TableRef) -> int:
    """Of a table in whose history no segment is: what Delta's checkpoints say of removed commits.

    History goes back to a checkpoint, so what is in neither was never committed.
    """
    history = session.sql(f"DESCRIBE HISTORY {ref.sql}")
    if history.agg({"version": "min"}).collect()[0][0] == 0:
        return 0  # nothing was removed
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    files = session.read.schema("txn STRUCT<appId: STRING, version: BIGINT>")
    found = 0
    for kind in ("parquet", "json"):  # the latter of Delta's second kind of checkpoints
        rows = files.format(kind).option("pathGlobFilter", f"*.checkpoint*.{kind}")
        own = rows.load(f"{detail.location}/_delta_log").where(f"txn.appId = {literal(ref.app_id)}")
        found = max(found, own.agg({"txn.version": "max"}).collect()[0][0] or 0)
    return found


def last_note(session: SparkSession, ref: TableRef) -> Mapping[str, Any] | None:
    """What the newest commit of a segment says; None: none of the last 100 commits is one."""
    return next((note for note in _notes(session, ref) if note.get("segment")), None)


def _notes(session: SparkSession, ref: TableRef, last: int | None = _LOOK_BACK) -> Iterator[dict[str, Any]]:
    limit = "" if last is None else f" LIMIT {last}"
    history = session.sql(f"DESCRIBE HISTORY {ref.sql}{limit}").select("userMetadata").collect()
    for row in history:
        try:
            note = json.loads(row.userMetadata or "null")
        except ValueError:
            continue
        if isinstance(note, dict) and isinstance(note.get("binlane"), dict):
            yield note["binlane"]


@contextmanager
def fenced(session: SparkSession, ref: TableRef, note: CommitNote, *, first: int) -> Iterator[None]:
    """The one commit within carries the note, and is made only if the table has not got that segment yet.

    `first`: the number of the first segment that the commit brings. Raises MergeConflict when the table holds
    it already, or another writer was faster; LostCommit when an earlier commit of this process is gone.
    """
    snapshot = delta_snapshot(session, ref)
    merged = merged_segment(session, ref) if snapshot is None else _in_snapshot(snapshot, ref)
    whose = None
    if snapshot is not None and snapshot.version() >= 0:
        whose = (snapshot.metadata().id(), ref.app_id)
    if whose is not None:
        _check_kept(ref, merged, _committed.get(whose, 0))
        _committed[whose] = merged
    if merged >= first:
        raise MergeConflict(f"{ref} already holds segment {merged}: another worker has brought it in")
    confs = {
        _APP_ID: ref.app_id,
        _VERSION: str(note.segment),
        _USER_METADATA: note.to_json(ref.app_id),
        _CONSTRAINTS: "false",
    }
    with settings(session, confs):
        try:
            yield
        except Exception as error:
            if is_conflict(error):
                raise MergeConflict(f"{ref}: {str(error).splitlines()[0]}") from error
            raise
    if whose is not None:
        _committed[whose] = note.segment


def _check_kept(ref: TableRef, merged: int, known: int) -> None:
    if merged < known:
        raise LostCommit(
            f"{ref} had segment {known}, and now holds {merged}: another writer has overwritten a commit, as "
            f"it can on S3 without Delta's store for several clusters. Let one worker write the table, "
            f"remove it with its log {ref.log_folder}, and read the source anew"
        )


@contextmanager
def settings(session: SparkSession, confs: Mapping[str, str]) -> Iterator[None]:
    """Within, the session has these settings."""
    before = {name: session.conf.get(name, None) for name in confs}
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, earlier)


def is_conflict(error: Exception) -> bool:
    """Whether Delta did not make a commit because of what another writer had committed meanwhile.

    https://docs.delta.io/concurrency-control/
    """
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return bool(_CONFLICT.search(condition or str(error)[:2000]))
