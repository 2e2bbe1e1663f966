"""Which test modules share one Spark: they run one after the other in one process of `make test`.

A JVM that has done a thing before does it in a third of the time, and each process has one of its own.
"""

from __future__ import annotations

from pathlib import PurePath

from xdist.scheduler import LoadFileScheduling

__all__ = ["OneSpark", "shares_spark"]

_FOLDERS = ("spark_delta", "spark_ddl", "spark_engine", "spark_view")
_MODULES = (
    "test_example_aggregates.py",
    "test_log_spark.py",
    "test_pieces_spark.py",
    "test_postgres_delta.py",
    "test_several_writers.py",
    "test_spark_function.py",
)


def shares_spark(path: PurePath) -> bool:
    """Does the module ask for the Spark of `spark_keeper`, and leave it running?"""
    return path.parent.name in _FOLDERS or path.name in _MODULES


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """Gives a whole file to a process, and all files with the shared Spark to one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "the shared Spark" if shares_spark(PurePath(file)) else file
