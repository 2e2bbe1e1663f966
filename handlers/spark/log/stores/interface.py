"""What the segment log asks of a store."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

# The leading dot hides it from Spark, as from `ls`.
_TEMPORARY = re.compile(r"\.binlane-[0-9a-f]{32}\.tmp")


class FilesError(OSError):
    """A store refused; the message names the path, what happened and what to do."""

    is_outage = False
    """Whether the store is full or out of order: it is not about this path, and passes."""


class AlreadyThere(FileExistsError):
    """There is something at the target's place; nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} already exists")
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
    refuses, and the store's own error when its connection is gone."""

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
        AlreadyThere."""

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
