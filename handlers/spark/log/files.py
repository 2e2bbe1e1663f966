"""What the segment log asks of a store, and which store a place belongs to."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = [
    "AlreadyThere",
    "Entry",
    "Files",
    "FilesError",
    "Spark",
    "files_for",
    "is_temporary",
    "scheme_of",
    "temporary_name",
]

# The leading dot hides it from Spark, as from `ls`.
_TEMPORARY = re.compile(r"\.binlane-[0-9a-f]{32}\.tmp")


class FilesError(OSError):
    """A store refused; the message names the path, what happened and what to do."""

    is_outage = False
    """Whether the store is full or out of order: it is not about this path, and passes."""


class AlreadyThere(FileExistsError):
    """There is something at the target's place; nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is there already")
        self.path = path


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, or folder, in a folder."""

    name: str
    size: int
    """Bytes; 0 for a folder."""
    modified_ms: int
    """Milliseconds since 1970 in UTC by the store's clock; 0 where it does not tell."""
    is_folder: bool


class Files(Protocol):
    """A store. Paths are given whole, as Spark takes them: URIs, or plain paths.

    Safe to use from several threads. Besides what is told below, each method raises FilesError when the store
    refuses, and the store's own error when its connection is gone.
    """

    def prove(self, folder: str) -> None:
        """See to it, once, that the store refuses a put of what is there; else before the first put. Raises
        FilesError (StoreOverwrites) when it does not."""

    def list(self, folder: str) -> Sequence[Entry]:
        """What is directly in a folder, in any order; nothing when there is no such folder."""

    def read(self, path: str) -> bytes:
        """A whole file. Raises FileNotFoundError."""

    def open(self, path: str) -> AbstractContextManager[pa.NativeFile]:
        """A file to read at any place, so that a Parquet footer costs one small read. Raises
        FileNotFoundError."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        """Make a file, and its folder when there is none.

        Nobody ever sees it half written, and when this returns, it outlives a loss of power. Of several that
        put the same path at once, one does; for the others, and when it was there before, this raises
        AlreadyThere.
        """

    def delete(self, path: str) -> None:
        """Remove a file; one that is not there is no fault."""

    def retire(self, path: str) -> None:
        """Give a file the time stamp 1970-01-01, where the store can: readers then pass over it, while those
        that were about to read it still find it. One that is not there is no fault."""

    def delete_tree(self, folder: str) -> None:
        """Remove a folder with all in it; one that is not there is no fault."""

    def rename(self, source: str, target: str) -> None:
        """Give a folder another place. Raises AlreadyThere, and FileNotFoundError without the source."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""


class Spark(Protocol):
    """What is asked of the worker's Spark (`handlers.spark.session.SharedSpark`)."""

    @property
    def session(self) -> SparkSession: ...

    @property
    def is_classic(self) -> bool:
        """True with a Java process of its own; False for a client of Spark Connect."""


def files_for(uri: str, spark: Spark) -> Files:
    """The store of a place as Spark takes it.

    The worker's own file system for plain paths and `file:`; any other through Spark's Hadoop libraries, as
    the session is configured for it, or, where there is no Java process (Spark Connect), through obstore. A
    plain path belongs to Hadoop's default file system (`fs.defaultFS`), as it does for Spark itself; with
    Connect, where it cannot be asked, to the worker's own. Raises FilesError for a scheme that nobody
    knows, and for a store that cannot be reached.
    """
    scheme = scheme_of(uri)
    if spark.is_classic:
        from handlers.spark.log.hadoop_files import HadoopFiles, hadoop_conf  # noqa: PLC0415 (Java only here)

        conf: Any = hadoop_conf(spark.session)
        if (scheme or scheme_of(conf.get("fs.defaultFS", "file:///"))) != "file":
            return HadoopFiles(spark.session, uri)
    elif scheme not in ("", "file"):
        from handlers.spark.log.object_files import ObjectFiles  # noqa: PLC0415 (only for Spark Connect)

        return ObjectFiles(uri)
    from handlers.spark.log.local_files import LocalFiles  # noqa: PLC0415 (as its brothers)

    return LocalFiles()


def scheme_of(uri: str) -> str:
    """`s3a` of s3a://bucket/lake; empty for a plain path."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.\-]*):", uri)
    return found[1].lower() if found else ""


def temporary_name() -> str:
    """A name that Spark does not read and nobody else has."""
    return f".binlane-{uuid.uuid4().hex}.tmp"


def is_temporary(name: str) -> bool:
    """Whether a file is what a writer was about to put: left over, when it is old."""
    return _TEMPORARY.fullmatch(name) is not None
