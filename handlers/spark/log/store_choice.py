"""Which store a place belongs to, and whether several workers may write the tables there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from handlers.spark.log.stores.interface import Files, FilesError, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_S3 = {"s3", "s3a", "s3n"}
# Stores in which only one of two competing renames to a name, or creations of it, succeeds. Delta's commits
# and segments depend on this.
_ONE_WINS = {"", "file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs", "abfs", "abfss", "gs"}
# On S3, all of these check first and put then. The first is Delta's default there.
_LOOK_AND_PUT = ("S3SingleDriverLogStore", "HDFSLogStore", "GCSLogStore", "AzureLogStore", "LocalLogStore")
_ONE_WORKER = (
    "never run two workers at once (in Kubernetes use a StatefulSet with one replica), and confirm that with "
    "spark: {single_writer: true}"
)


class Spark(Protocol):
    """The required part of the worker's Spark (`handlers.spark.runtime.session.SharedSpark`)."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def is_classic(self) -> bool:
        """True with a Java process of its own, False for a client of Spark Connect."""


@dataclass(frozen=True, slots=True)
class AnySpark:
    """Any session, in the form that `files_for` needs."""

    session: SparkSession

    @property
    def is_classic(self) -> bool:
        return not type(self.session).__module__.startswith("pyspark.sql.connect")


def files_for(uri: str, spark: Spark, *, assume_local: bool = False) -> Files:
    """Return the store of a place as Spark takes it. `assume_local`: plain paths are the worker's own, and
    Spark is not asked.

    Plain paths and `file:` use the worker's own file system. Others use Spark's Hadoop libraries with the
    session's configuration, or obstore if there is no Java process (Spark Connect). A plain path belongs to
    Hadoop's default file system (`fs.defaultFS`), as in Spark. With Connect, which cannot be asked, it is the
    worker's own. Raises FilesError for an unknown scheme, and for a store that cannot be reached."""
    scheme = scheme_of(uri) or ("file" if assume_local else default_scheme(spark))
    if scheme != "file" and spark.is_classic:
        from handlers.spark.log.stores.hadoop import HadoopFiles  # noqa: PLC0415 (Java only here)

        return HadoopFiles(spark.session, uri)
    return files_without_java("file:" if scheme == "file" else uri)


def files_without_java(uri: str) -> Files:
    """Return the store of a place, without Spark's configuration: plain paths are local, and credentials of
    object stores come from the environment. Raises FilesError for a store that only Spark reaches."""
    if scheme_of(uri) in ("", "file"):
        from handlers.spark.log.stores.local import LocalFiles  # noqa: PLC0415 (as its brothers)

        return LocalFiles()
    from handlers.spark.log.stores.object_stores import ObjectFiles  # noqa: PLC0415 (only without Java)

    return ObjectFiles(uri)


def default_scheme(spark: Spark) -> str:
    """The scheme of plain paths. With Connect they are the worker's own."""
    if not spark.is_classic:
        return "file"
    from handlers.spark.log.stores.hadoop import hadoop_conf  # noqa: PLC0415 (Java only here)

    conf: Any = hadoop_conf(spark.session)
    return scheme_of(conf.get("fs.defaultFS", "file:///"))


def commits_are_safe(root: str, spark: Any, *, assume_local: bool = False) -> bool:
    """Whether commits by puts on condition go well with those of Spark. `assume_local`: see `files_for`.

    Delta's log stores for S3 overwrite what they did not see, or keep their own list of commits. Through
    Hadoop's libraries, reading files takes too long."""
    scheme = scheme_of(root) or ("file" if assume_local else default_scheme(spark))
    if scheme == "file" or spark.is_classic:
        return scheme == "file"
    if scheme in _S3:
        others = any(name.startswith("spark.delta.logStore.") for name in spark.section.conf)
        return bool(spark.section.single_writer) and not others
    return scheme in _ONE_WINS


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
    """Return the class that makes Delta's commits, with the search that Delta uses."""
    for key in ("spark.delta.logStore.class", f"spark.delta.logStore.{scheme}.impl"):
        found = session.conf.get(key, None)
        if found:
            return str(found)
    return "io.delta.storage.S3SingleDriverLogStore"
