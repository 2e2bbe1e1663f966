"""Turns errors of Spark and the tables' store into errors for the code that handles the batch."""

from __future__ import annotations

import re

from handlers.api import Rejected, StopWorker, TargetUnavailable
from handlers.progress import FormerTopic
from handlers.spark.iceberg.catalog import is_outage
from handlers.spark.log.segment_file import REPLACE, RESTORE, BrokenLog, Statement
from handlers.spark.log.stores.interface import FilesError
from handlers.spark.runtime import errors
from handlers.spark.runtime.session import SharedSpark

# What Java says about a disk. It is no fault of the rows.
_FULL = re.compile("No space left on device|Disk quota exceeded|Read-only file system")
# What Spark says about a segment whose rows it cannot read.
_SEGMENT = re.compile(r"FAILED_READ_FILE.* file (\S+/\d{20}\.parquet)")
# What Delta, or Arrow for Iceberg, says about a row that the table's own declarations refuse.
_REFUSED = re.compile(
    "DELTA_(VIOLATE_CONSTRAINT|NOT_NULL_CONSTRAINT|EXCEED_CHAR_VARCHAR|CANNOT_MODIFY_APPEND_ONLY)"
    "|EXCEED_LIMIT_LENGTH|declared non-nullable"
)


class SparkFailure(RuntimeError):
    """Spark, or the tables' store, could not do its work. The message contains the problem, the table and the
    first offset."""


class LogFailure(SparkFailure):
    """The table's log is unreadable, does not belong to the table, or cannot be merged. It is no fault of the
    next batch."""


def cannot_follow(statement: Statement, where: str, error: Exception) -> LogFailure:
    """Return an error for a statement in the log, with what to do. `where`: its table and offset."""
    told = str(error)
    told = told if told.startswith(where) else f"{where}: {told}"
    if statement.op == REPLACE:
        return LogFailure(f"{told}. Later rows wait in the table's log")
    return LogFailure(
        f"{told}. The statement ({statement.sql or statement.op}) is in the table's log, and later rows wait "
        "there: apply the statement to the table by hand; or switch its kind off (`ddl`) and restart the "
        "worker, which then skips the statement"
    )


def explained(error: Exception, where: str, spark: SharedSpark) -> Exception:
    """Return the error for the code that handles the batch. `where`: its table and offsets."""
    if isinstance(error, StopWorker | TargetUnavailable | Rejected | SparkFailure | FormerTopic):
        return error
    if isinstance(error, BrokenLog):
        return LogFailure(f"{where}: {error}")
    if isinstance(error, FilesError):
        told = f"{where}: {error}"
        return TargetUnavailable(told) if error.is_outage else SparkFailure(told)
    try:
        spark.stop_worker_if_gone(error)
    except (StopWorker, TargetUnavailable) as gone:
        return gone
    told = f"{where}: {errors.told(error)}"
    return TargetUnavailable(told) if is_outage(error) else _of_spark(told)


def _of_spark(told: str) -> Exception:
    if (segment := _SEGMENT.search(told)) is not None:
        return LogFailure(f"{told}. Of {segment[1]}: {RESTORE}")
    if _REFUSED.search(told):
        return LogFailure(
            f"{told}. This row is in the table's log, and later rows wait there: change what the table "
            "declares (a constraint, NOT NULL, a length, delta.appendOnly)"
        )
    return TargetUnavailable(told) if _FULL.search(told) else SparkFailure(told)
