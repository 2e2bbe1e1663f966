"""What Spark and the file system of its tables say when they fail, for whoever handles the batch."""

from __future__ import annotations

import re

from handlers.api import Rejected, StopWorker, TargetUnavailable
from handlers.progress.topic_ids import FormerTopic
from handlers.spark.log.stores.interface import FilesError
from handlers.spark.runtime.session import SharedSpark

__all__ = ["SparkFailure", "explained"]

# What Java says of a disk that is no fault of what is written.
_FULL = re.compile("No space left on device|Disk quota exceeded|Read-only file system")


class SparkFailure(RuntimeError):
    """Spark, or the file system of its tables, could not do what it was asked; the message says what, for
    which table and from which offset on."""


def explained(error: Exception, where: str, spark: SharedSpark) -> Exception:
    """The error for whoever handles the batch; `where`: its table and offsets."""
    if isinstance(error, StopWorker | TargetUnavailable | Rejected | SparkFailure | FormerTopic):
        return error
    if isinstance(error, FilesError):
        told = f"{where}: {error}"
        return TargetUnavailable(told) if error.is_outage else SparkFailure(told)
    try:
        spark.stop_worker_if_gone(error)
    except (StopWorker, TargetUnavailable) as gone:
        return gone
    told = f"{where}: {spark.told(error)}"
    return TargetUnavailable(told) if _FULL.search(told) else SparkFailure(told)
