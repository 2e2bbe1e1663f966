"""Which segments of a log a Delta table contains, according to Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_notes import (
    Restore,
    brought,
    check_restores,
    held_in_files,
    note_of_version,
    see,
)
from handlers.spark.delta.log_actions import CommitInfo
from handlers.spark.log.beside import FOLDER, Held, ToldHeld
from handlers.spark.log.segment_file import BrokenLog
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.runtime.errors import says_no_table
from handlers.spark.runtime.java_process import java_class
from handlers.spark.table_ref import TableRef, literal

_LOOK_BACK = 100
"""Commits of others (OPTIMIZE, ALTER) that may follow ours."""


def delta_snapshot(session: SparkSession, ref: TableRef) -> Any | None:
    """Return Delta's own view of the table, read again. Its version is -1 if the table does not exist. None
    if only SQL is available."""
    if ref.path is None or not hasattr(session, "_jsparkSession"):
        return None
    # If the newest commit has no checksum file, Delta reads its checkpoint in the thread's active session.
    java_class(session, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)
    logs = java_class(session, "org.apache.spark.sql.delta.DeltaLog")
    log = logs.forTable(session._jsparkSession, ref.path)
    nothing = java_class(session, "scala.Option").empty()
    return log.update(False, nothing, nothing)


def exists(session: SparkSession, ref: TableRef) -> bool:
    """Whether the table exists. Raises what Spark raises if it cannot say."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is not None:
        return bool(snapshot.version() >= 0)
    try:
        session.sql(f"DESCRIBE DETAIL {ref.sql}")
    except AnalysisException as error:
        if says_no_table(error):
            return False
        raise
    return True


def held_by(session: SparkSession, ref: TableRef, is_classic: bool = True) -> Held:
    """Return which segments of its log the table contains.

    Delta's transaction identifiers contain the first segment of the newest commit that merged any, and its
    note contains the last. With SQL only (or if `is_classic` is False), both are read from the notes. If
    Delta has removed those old commits, its checkpoints contain the first segment, and the log the last.
    Raises BrokenLog if the log does not, LostCommit if a RESTORE undid the newest segments or a later
    statement, and what Spark raises."""
    snapshot = delta_snapshot(session, ref) if is_classic else None
    if snapshot is not None:
        return held_in_snapshot(session, ref, snapshot)
    if not exists(session, ref):
        return Held()
    found = _in_notes(session, ref)
    return _since(session, ref, _in_checkpoints(session, ref)) if found is None else found


def held_in_snapshot(session: SparkSession, ref: TableRef, snapshot: Any) -> Held:
    """The same as `held_by`, for a known version."""
    files, version = files_for(_path(ref), AnySpark(session)), int(snapshot.version())
    if version < 0:
        return Held()
    known = held_in_files(files, _path(ref), ref.app_id, version)
    if known is not None:
        return known
    found = snapshot.transactions().get(ref.app_id)
    if not found.isDefined():
        return Held()
    told = _in_notes(session, ref)
    first = int(found.get())
    return told if told is not None and told.first == first else _since(session, ref, first)


def version_of(session: SparkSession, ref: TableRef, commit: str, since: int | None) -> int | None:
    """Return the version of the commit with this id (`CommitNote.to_json`), if it is after version `since`.
    None if no commit has it. `since`: None if that version is unknown."""
    snapshot = None if since is None else delta_snapshot(session, ref)
    if snapshot is not None and since is not None:
        try:
            files = files_for(_path(ref), AnySpark(session))
            versions = range(snapshot.version(), since, -1)
            notes = ((version, note_of_version(files, _path(ref), version)) for version in versions)
            return next((version for version, note in notes if note and note.get("commit") == commit), None)
        except LookupError:
            pass
    return next((version for version, note in _notes(session, ref) if note.get("commit") == commit), None)


def take_back(session: SparkSession, ref: TableRef, version: int) -> None:
    """Remove the newest commit of a table, if it is this version."""
    snapshot = delta_snapshot(session, ref)
    if snapshot is not None and snapshot.version() == version:
        files, name = files_for(_path(ref), AnySpark(session)), f"{_path(ref)}/_delta_log/{version:020d}"
        for kind in ("json", "crc"):
            files.delete(f"{name}.{kind}")
        logs = java_class(session, "org.apache.spark.sql.delta.DeltaLog")
        logs.clearCache()  # it has the removed version


def _in_notes(session: SparkSession, ref: TableRef) -> Held | None:
    for last in (_LOOK_BACK, None):  # the whole history may be long
        restores: list[Restore] = []
        for version, note in _notes(session, ref, last, restores):
            if (held := brought(note, ref.app_id)) is not None:
                check_restores(str(ref), version, restores)
                return held
    return None


def _in_checkpoints(session: SparkSession, ref: TableRef) -> int:
    """Return the first segment of the newest merge of a table whose history contains no merge. Delta's
    checkpoints contain it for removed commits. Returns 0 if there never was a merge.

    History goes back to a checkpoint, so a merge that is in neither was never committed."""
    history = session.sql(f"DESCRIBE HISTORY {ref.sql}")
    if history.agg({"version": "min"}).collect()[0][0] == 0:
        return 0  # nothing was removed
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    files = session.read.schema("txn STRUCT<appId: STRING, version: BIGINT>")
    found = 0
    for kind in ("parquet", "json"):  # JSON is Delta's second kind of checkpoints
        rows = files.format(kind).option("pathGlobFilter", f"*.checkpoint*.{kind}")
        own = rows.load(f"{detail.location}/_delta_log").where(f"txn.appId = {literal(ref.app_id)}")
        found = max(found, own.agg({"txn.version": "max"}).collect()[0][0] or 0)
    return found


def _since(session: SparkSession, ref: TableRef, first: int) -> Held:
    """Return what the log records of a commit whose note is gone."""
    if not first:
        return Held()
    told = ToldHeld(files_for(ref.log_folder, AnySpark(session)), ref.log_folder).begun_with(first)
    if told.last:
        return told
    raise BrokenLog(
        f"{ref} has segment {first} of its log, and perhaps more: its commit is so old that Delta has "
        f"removed its note, and {ref.log_folder}/{FOLDER} does not have it either. If you know the last "
        "segment in the table, put an empty file there. Its name is both numbers, each with 20 digits, with "
        "- between them. Or remove the table with its log, and read the source again"
    )


def last_note(session: SparkSession, ref: TableRef) -> Mapping[str, Any] | None:
    """Return the note of the newest commit of a segment. None if none of the last 100 commits is one."""
    return next((note for _, note in _notes(session, ref) if note.get("segment")), None)


def _notes(
    session: SparkSession, ref: TableRef, last: int | None = _LOOK_BACK, restores: list[Restore] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield binlane's newest commits with their versions. `restores` receives the restores between them."""
    limit = "" if last is None else f" LIMIT {last}"
    history = session.sql(f"DESCRIBE HISTORY {ref.sql}{limit}")
    for row in history.select("version", "operation", "operationParameters", "userMetadata").collect():
        info = CommitInfo(row.userMetadata, row.operation, row.operationParameters)
        note = see(str(ref), row.version, info, [] if restores is None else restores)
        if note is not None:
            yield row.version, note


def _path(ref: TableRef) -> str:
    assert ref.path is not None  # or Delta would not have returned the version
    return ref.path
