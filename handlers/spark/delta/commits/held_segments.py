"""What a Delta table holds of a log, as Spark tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from handlers.spark.delta.commits.commit_files import held_in_files, note_of_version
from handlers.spark.delta.commits.commit_notes import brought, read_note
from handlers.spark.delta.commits.restored import Restore, check_restores, restore
from handlers.spark.delta.statements import literal
from handlers.spark.log.last_seen_table import FOLDER, Held, ToldHeld
from handlers.spark.log.store_choice import AnySpark, files_for
from handlers.spark.runtime.errors import says_no_table
from handlers.spark.runtime.java_classes import java_class
from handlers.spark.table_ref import TableRef

_LOOK_BACK = 100
"""Commits of others (OPTIMIZE, ALTER) that may follow ours."""


class UnknownSegments(RuntimeError):
    """A table holds segments, and nobody knows up to which."""


def delta_snapshot(session: SparkSession, ref: TableRef) -> Any | None:
    """Delta's own view of the table, read anew; None where only SQL is to be had. A table that is not there
    has version -1."""
    if ref.path is None or not hasattr(session, "_jsparkSession"):
        return None
    # Where the newest commit has no checksum file, Delta reads its checkpoint in the thread's active session.
    java_class(session, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)
    logs = java_class(session, "org.apache.spark.sql.delta.DeltaLog")
    log = logs.forTable(session._jsparkSession, ref.path)
    nothing = java_class(session, "scala.Option").empty()
    return log.update(False, nothing, nothing)


def exists(session: SparkSession, ref: TableRef) -> bool:
    """Whether there is such a table. Raises what Spark raises when it cannot tell."""
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
    """What the table holds of its log.

    Delta's transaction identifiers tell where the newest commit that brought segments began, and its note up
    to where it went. Where only SQL is to be had (or `is_classic` is False) both are read from the notes, and
    from Delta's checkpoints when these commits are so old that Delta has removed them; up to where is told by
    the log then. Raises UnknownSegments when it does not tell, LostCommit where a RESTORE took the newest
    segments back, and what Spark raises."""
    snapshot = delta_snapshot(session, ref) if is_classic else None
    if snapshot is not None:
        return held_in_snapshot(session, ref, snapshot)
    if not exists(session, ref):
        return Held()
    found = _in_notes(session, ref)
    return _since(session, ref, _in_checkpoints(session, ref)) if found is None else found


def held_in_snapshot(session: SparkSession, ref: TableRef, snapshot: Any) -> Held:
    """`held_by` of a version that is known."""
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


def is_committed(session: SparkSession, ref: TableRef, commit: str, since: int | None) -> bool:
    """Whether the table has a commit whose note says so (`CommitNote.to_json`) after version `since`; None:
    which version that was is not known."""
    snapshot = None if since is None else delta_snapshot(session, ref)
    if snapshot is not None and since is not None:
        try:
            files = files_for(_path(ref), AnySpark(session))
            versions = range(snapshot.version(), since, -1)
            notes = (note_of_version(files, _path(ref), version) for version in versions)
            return any(note is not None and note.get("commit") == commit for note in notes)
        except LookupError:
            pass
    return any(note.get("commit") == commit for _, note in _notes(session, ref))


def _in_notes(session: SparkSession, ref: TableRef) -> Held | None:
    for last in (_LOOK_BACK, None):  # the whole history may be long
        restores: list[Restore] = []
        for version, note in _notes(session, ref, last, restores):
            if (held := brought(note, ref.app_id)) is not None:
                check_restores(str(ref), version, restores)
                return held
    return None


def _in_checkpoints(session: SparkSession, ref: TableRef) -> int:
    """Where the newest commit of segments began of a table in whose history there is none: what Delta's
    checkpoints say of removed commits; 0: there never was one.

    History goes back to a checkpoint, so what is in neither was never committed."""
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


def _since(session: SparkSession, ref: TableRef, first: int) -> Held:
    """What the log tells of a commit whose note is gone."""
    if not first:
        return Held()
    told = ToldHeld(files_for(ref.log_folder, AnySpark(session)), ref.log_folder).begun_with(first)
    if told.last:
        return told
    raise UnknownSegments(
        f"{ref} has segment {first} of its log, and perhaps more: its commit is so old that Delta has "
        f"removed its note, and {ref.log_folder}/{FOLDER} does not have it either. If you know the last "
        "segment in the table, put an empty file there. Its name is both numbers, each with 20 digits, with "
        "- between them. Or remove the table with its log, and read the source again"
    )


def last_note(session: SparkSession, ref: TableRef) -> Mapping[str, Any] | None:
    """What the newest commit of a segment says; None: none of the last 100 commits is one."""
    return next((note for _, note in _notes(session, ref) if note.get("segment")), None)


def _notes(
    session: SparkSession, ref: TableRef, last: int | None = _LOOK_BACK, restores: list[Restore] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The newest commits of binlane, with their versions; `restores` gets those that are passed."""
    limit = "" if last is None else f" LIMIT {last}"
    history = session.sql(f"DESCRIBE HISTORY {ref.sql}{limit}")
    for row in history.select("version", "operation", "operationParameters", "userMetadata").collect():
        note = read_note(row.userMetadata)
        found = restore(row.version, row.operation, row.operationParameters, is_own=note is not None)
        if found is not None and restores is not None:
            restores.append(found)
        if note is not None:
            yield row.version, note


def _path(ref: TableRef) -> str:
    assert ref.path is not None  # or Delta had not told the version
    return ref.path
