"""Whether several workers may write the tables of a place: what their logs and Delta's commits stand on."""

from __future__ import annotations

from typing import Any

from handlers.spark.log.store_choice import default_scheme
from handlers.spark.log.stores.interface import FilesError, scheme_of

_S3 = {"s3", "s3a", "s3n"}
# Where of two renames to one name, or of two creations of it, one fails, whoever asks: Delta's commits and
# segments are made so.
_ONE_WINS = {"", "file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs", "abfs", "abfss", "gs"}
# On S3 all of these look first and put then; the first is Delta's default there.
_LOOK_AND_PUT = ("S3SingleDriverLogStore", "HDFSLogStore", "GCSLogStore", "AzureLogStore", "LocalLogStore")
_ONE_WORKER = (
    "never run two workers at once (in Kubernetes use a StatefulSet with one replica), and confirm that with "
    "spark: {single_writer: true}"
)


class UnsafeForSeveral(FilesError):
    """Of two workers in this place, one could undo the other's commits."""


def check_several_writers(root: str, spark: Any, *, assume_local: bool = False) -> None:
    """See to it that the tables below `root`, a URI or plain path, can be written by several workers, or that
    the configuration promises that there is one.

    `spark`: the worker's (`handlers.spark.runtime.session.SharedSpark`); `assume_local`: see `files_for`.
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
                f"{root}: Delta's commits on S3 are only safe for one writing Spark: {name} checks whether a "
                "commit's number is free and then writes, so if two workers commit at once, one commit is "
                f"lost without an error. Either {_ONE_WORKER}; or set a log store for several clusters, "
                f"spark.delta.logStore.{scheme}.impl: io.delta.storage.S3DynamoDBLogStore, under spark.conf; "
                "or give spark.warehouse a place in HDFS, Azure or Google Cloud Storage"
            )
    elif scheme not in _ONE_WINS:
        raise UnsafeForSeveral(
            f"{root}: Delta's commits and binlane's segments need a store in which one of two renames to the "
            f"same name fails, and that is unknown for {scheme}:. Either {_ONE_WORKER}; or give "
            "spark.warehouse a place in HDFS, Azure or Google Cloud Storage"
        )


def _log_store(session: Any, scheme: str) -> str:
    """The class that makes Delta's commits; as Delta looks for it."""
    for key in ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme}.impl"):
        found = session.conf.get(key, None)
        if found:
            return str(found)
    return "io.delta.storage.S3SingleDriverLogStore"
