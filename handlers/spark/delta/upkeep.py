"""Rewrites small files as larger ones, removes unneeded files, and records when it last did so.

Tables whose commits need no Spark do not need it for this either."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import SparkSession

from handlers.logs import get_logger
from handlers.spark.delta.checkpoints import duration_ms
from handlers.spark.delta.commits.exactly_once import STRICT, MergeConflict, is_conflict, settings
from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.delta.evolving import properties
from handlers.spark.delta.few_files import Rewrite, TableFile, files_of
from handlers.spark.delta.log_actions import OnlySpark
from handlers.spark.delta.log_files import has_commits, metadata_in_files, snapshot_in_files
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files, is_temporary, scheme_of
from handlers.spark.table_ref import TableRef, literal

_FOLDER = "_upkeep"
_NAME = re.compile(r"([a-z]+)-(\d{12})")


class UpkeepTimes:
    """Times of one table's upkeep: names of empty files in the folder `_upkeep` of its log, such as
    `vacuum-001790000000`.

    Files are never overwritten, and the newest counts, so a time always exists. Times are seconds since 1970
    in UTC, by the clock of the worker that did it."""

    def __init__(self, files: Files, log_folder: str) -> None:
        self._files = files
        self._folder = f"{log_folder}/{_FOLDER}"

    def last(self, what: str) -> float | None:
        """When `what` was last done. None if unknown. Raises what the store raises."""
        return max((float(name[-12:]) for name in self._names(what)), default=None)

    def remember(self, what: str, moment: float) -> None:
        """Record that `what` (small letters) is done now. Raises what the store raises."""
        now = f"{what}-{int(moment):012d}"
        before = [name for name in self._names(what) if name != now]
        with suppress(AlreadyThere):
            self._files.put(f"{self._folder}/{now}", b"")
        for name in before:
            self._files.delete(f"{self._folder}/{name}")

    def _names(self, what: str) -> Iterator[str]:
        for entry in self._files.list(self._folder):
            name = _NAME.fullmatch(entry.name)
            if name is not None and name[1] == what:
                yield entry.name


_AS_TOLD = ("retentionDurationCheck", "vacuum.retentionWindowIgnore")
"""If these are on, Delta refuses RETAIN of less than a week, and ignores any value but 0."""
LARGE = 128 * 2**20
"""Average size of files, in bytes, from which OPTIMIZE has nothing to gain."""

_log = get_logger("spark")


def optimize(session: SparkSession, ref: TableRef, min_files: int) -> bool:
    """Rewrite small files as larger ones, if the table has at least `min_files`. Returns whether it did.

    Does not if another writer changed the same files meanwhile. The next run tries again. Raises what Spark
    raises."""
    if not exists(session, ref):
        return False
    [detail] = session.sql(f"DESCRIBE DETAIL {ref.sql}").collect()
    if detail.numFiles < min_files or detail.sizeInBytes > detail.numFiles * LARGE:
        return False
    try:
        with settings(session, STRICT):
            session.sql(f"OPTIMIZE {ref.sql}").collect()
    except Exception as error:
        if not is_conflict(error):
            raise
        _log.info("delta_optimize_put_off", table=str(ref), files=detail.numFiles)
        return False
    _log.info("delta_optimized", table=str(ref), files=detail.numFiles)
    return True


def vacuum(session: SparkSession, ref: TableRef, retention: float) -> None:
    """Remove files that no version of the last `retention` seconds needs. The table's own setting applies if
    it is longer. Raises what Spark raises.

    Delta warns of less than 168 hours, because a query or commit that takes longer may miss its files. A user
    who sets less accepts that."""
    if exists(session, ref):
        own = literal(properties(session, ref).get("delta.deletedFileRetentionDuration", "0 days"))
        kept = f"SELECT unix_seconds(timestamp_seconds(0) + CAST({own} AS INTERVAL))"
        retention = max(retention, session.sql(kept).collect()[0][0])
        with settings(session, {f"spark.databricks.delta.{name}.enabled": "false" for name in _AS_TOLD}):
            session.sql(f"VACUUM {ref.sql} RETAIN {retention / 3600:f} HOURS").collect()


# ---- without Spark

_MOST_BYTES = 512 * 2**20
"""The most bytes that are rewritten in the worker's process."""
_TOGETHER = 32 * 2**20
"""The size up to which files become one. Files of half this size stay as they are."""
_MOST_MEMORY = 512 * 2**20
_PLACED = re.compile(r"[0-9A-Za-z]{2}|[^_.=][^=]*=.*")
"""Folders into which Spark writes files: of tables with column mapping, or that were partitioned. Others may
contain other tables."""
_UNCOMMITTED_MS = 3_600_000
"""The age up to which a commit may still add a file that no version has."""


def needs_optimize(files: Files, ref: TableRef, min_files: int) -> bool:
    """Whether a table has at least `min_files`, and they are small. True if its log's files do not say."""
    if ref.path is not None and not has_commits(files, ref.path):
        return False
    found = None if ref.path is None else snapshot_in_files(files, ref.path)
    if found is None:
        return True
    sizes = [each.size for each in found.files.values()]
    return len(sizes) >= min_files and sum(sizes) <= len(sizes) * LARGE


def optimized(table: NextVersion, ref: TableRef) -> bool:
    """Rewrite small files as larger ones. Returns False, with nothing changed, if Spark must do it. Raises
    OSError."""
    assert table.base is not None
    found = files_of(table.base, table.columns, ())
    if found is None or sum(each.size for each in found) > _MOST_BYTES:
        return False
    together = list(_together(found))
    if not together:
        return True
    removed = [each for some in together for each in some]
    try:
        rows = Rewrite(removed, _read(table, together))
        table.put("OPTIMIZE", {"predicate": "[]"}, rows=rows, changes_data=False)
    except MergeConflict:
        _log.info("delta_optimize_put_off", table=str(ref), files=len(removed))
    except (OnlySpark, pa.ArrowException) as error:
        _log.warning("optimize_without_spark_failed", table=str(ref), error=str(error))
        return False
    else:
        _log.info("delta_optimized", table=str(ref), files=len(removed))
    return True


def _together(found: Sequence[TableFile]) -> Iterator[list[TableFile]]:
    some: list[TableFile] = []
    for each in (*(each for each in found if each.size * 2 <= _TOGETHER), None):
        if each is None or sum(one.size for one in (*some, each)) > _TOGETHER:
            if len(some) > 1:
                yield some
            some = []
        if each is not None:
            some.append(each)


def _read(table: NextVersion, together: Sequence[Sequence[TableFile]]) -> Iterator[pa.Table]:
    few = table.few_files({}, _MOST_MEMORY)
    for some in together:
        rows = few.read(some, table.columns.named.names)
        if rows is None:
            raise OnlySpark(table.path, "has rows that are too large, or have dates of the former calendar")
        yield rows


def vacuumed(table: NextVersion, retention: float) -> bool:
    """Remove files that no version of the last `retention` seconds needs. The table's own setting applies if
    it is longer. Returns False, with nothing changed, if Spark must do it. Raises what the store raises."""
    assert table.base is not None
    own = duration_ms(table.base.metadata.configuration.get("delta.deletedFileRetentionDuration", "0 days"))
    now = time.time() * 1000
    before, removed = now - max(retention * 1000, own or 0), table.base.removed
    needed = {*table.base.files, *(path for path, moment in removed.items() if moment >= before)}
    needed, known = ({unquote(path) for path in each} for each in (needed, removed))
    if any(path.startswith("/") or scheme_of(path) for path in needed):
        return False  # of a shallow clone, or of a folder that has several names
    needed, known = ({f"{table.path}/{path}" for path in each} for each in (needed, known))
    entries = [*_entries(table.files, table.path)]
    if metadata_in_files(table.files, table.path) != table.base.metadata:
        return True  # another worker has moved another table here: these may be its files
    for path, modified in entries:
        limit = before if path in known else min(before, now - _UNCOMMITTED_MS)
        if path not in needed and 0 < modified < limit:
            table.files.delete(path)
    return True


def _entries(files: Files, folder: str, of: Entry | None = None) -> Iterator[tuple[str, int]]:
    """Yield a table's files and empty folders, with when they changed. `of`: the folder, if it is inside."""
    found = files.list(folder)
    if of is not None and not found:
        yield folder, of.modified_ms
    if of is not None and any(each.name == "_delta_log" for each in found):
        return  # another table
    for each in found:
        path = f"{folder}/{each.name}"
        if each.is_folder and _PLACED.fullmatch(each.name):
            yield from _entries(files, path, each)
        elif not each.is_folder and (is_temporary(each.name) or not each.name.startswith(("_", "."))):
            yield path, each.modified_ms
