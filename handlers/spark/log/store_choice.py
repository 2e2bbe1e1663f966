"""Chooses the store of a place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from handlers.spark.log.stores.interface import Files, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    if scheme == "file":
        from handlers.spark.log.stores.local import LocalFiles  # noqa: PLC0415 (as its brothers)

        return LocalFiles()
    if spark.is_classic:
        from handlers.spark.log.stores.hadoop import HadoopFiles  # noqa: PLC0415 (Java only here)

        return HadoopFiles(spark.session, uri)
    from handlers.spark.log.stores.object_stores import ObjectFiles  # noqa: PLC0415 (only for Spark Connect)

    return ObjectFiles(uri)


def default_scheme(spark: Spark) -> str:
    """The scheme of plain paths. With Connect they are the worker's own."""
    if not spark.is_classic:
        return "file"
    from handlers.spark.log.stores.hadoop import hadoop_conf  # noqa: PLC0415 (Java only here)

    conf: Any = hadoop_conf(spark.session)
    return scheme_of(conf.get("fs.defaultFS", "file:///"))
