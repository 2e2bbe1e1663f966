"""Rewrites small files as larger ones, removes unneeded files, and records when it last did so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from pyspark.sql import SparkSession

from handlers.logs import get_logger
from handlers.spark.delta.commits.exactly_once import STRICT, is_conflict, settings
from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.delta.evolving import properties
from handlers.spark.delta.statements import literal
from handlers.spark.log.stores.interface import AlreadyThere, Files
from handlers.spark.table_ref import TableRef

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
