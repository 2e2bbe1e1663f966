"""Checks if several workers may write the tables of a place, with safe logs and Delta commits."""

from __future__ import annotations

from typing import Any

from handlers.spark.log.store_choice import default_scheme
from handlers.spark.log.stores.interface import FilesError, scheme_of

_S3 = {"s3", "s3a", "s3n"}
# Stores in which only one of two competing renames to a name, or creations of it, succeeds. Delta's commits
# and segments depend on this.
_ONE_WINS = {"", "file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs", "abfs", "abfss", "gs"}
# On S3, all of these check first and put then. The first is Delta's default there.
_LOOK_AND_PUT = ("S3SingleDriverLogStore", "HDFSLogStore", "GCSLogStore", "AzureLogStore", "LocalLogStore")
_ONE_WORKER = (
    "let no two workers run at a time (in Kubernetes a StatefulSet with one replica), and say so "
    "with spark: {single_writer: true}"
)


class UnsafeForSeveral(FilesError):
    """With two workers in this place, one could undo the other's commits."""


def check_several_writers(root: str, spark: Any, *, assume_local: bool = False) -> None:
    """Check that several workers can write the tables below `root`, a URI or plain path, or that the
    configuration promises a single one.

    `spark`: the worker's (`handlers.spark.runtime.session.SharedSpark`). `assume_local`: see `files_for`.
    Raises UnsafeForSeveral, and what Spark raises."""
    if not spark.section.single_writer:
        check_store(root, spark, assume_local=assume_local)


def check_store(root: str, spark: Any, *, assume_local: bool = False) -> None:
    """The same, whatever the configuration promises."""
    scheme = scheme_of(root) or ("file" if assume_local else default_scheme(spark))
    if scheme in _S3:
        name = _log_store(spark.session, scheme).rpartition(".")[2]
        if name in _LOOK_AND_PUT:
            raise UnsafeForSeveral(
                f"{root}: Delta's commits on S3 are made for one writing Spark: {name} looks whether a "
                f"commit's number is free and puts then, so of two workers' commits at one moment one is "
                f"lost, and nobody is told. Either {_ONE_WORKER}; or set a log store for several clusters, "
                f"spark.delta.logStore.{scheme}.impl: io.delta.storage.S3DynamoDBLogStore, under spark.conf; "
                f"or give spark.warehouse a place in HDFS, Azure or Google Cloud Storage"
            )
    elif scheme not in _ONE_WINS:
        raise UnsafeForSeveral(
            f"{root}: Delta's commits and binlane's segments need a store in which of two renames to one "
            f"name one fails, and of {scheme}: that is not known. Either {_ONE_WORKER}; or give "
            f"spark.warehouse a place in HDFS, Azure or Google Cloud Storage"
        )


def _log_store(session: Any, scheme: str) -> str:
    """Return the class that makes Delta's commits, with the search that Delta uses."""
    for key in ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme}.impl"):
        found = session.conf.get(key, None)
        if found:
            return str(found)
    return "io.delta.storage.S3SingleDriverLogStore"
