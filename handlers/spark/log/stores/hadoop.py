"""Segments in any store that Spark's Hadoop libraries reach: HDFS, S3, Azure, Google Cloud Storage ..."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from handlers.spark.log.stores.interface import (
    AlreadyThere,
    Entry,
    FilesError,
    Proof,
    RandomAccess,
    temporary_name,
)
from handlers.spark.runtime.java_process import java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# https://hadoop.apache.org/docs/r3.5.0/api/org/apache/hadoop/fs/Options.CreateFileOptionKeys.html
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_ABORTABLE = "fs.capability.outputstream.abortable"
# Stores in which a whole file appears when its stream is closed. A rename would copy it.
_OBJECT_STORES = {"s3a", "s3", "s3n", "gs"}
# Stores in which a create without overwriting first checks, then puts.
_NEED_A_CONDITION = {"s3a", "s3", "s3n"}
_TAKEN = {
    "org.apache.hadoop.fs.FileAlreadyExistsException",
    "org.apache.hadoop.fs.s3a.RemoteFileChangedException",
    "java.nio.file.FileAlreadyExistsException",
}
_MISSING = {"java.io.FileNotFoundException", "java.nio.file.NoSuchFileException"}
# Names and texts of Java errors for a store that is away, full, or asks to wait.
_OUTAGE = re.compile(
    r"Connect|Timeout|TimedOut|NoRouteToHost|UnknownHost|SafeMode|Retriable|Throttl|AWSClientIO|SdkClient"
    r"|Quota|No space left"
)
_CHUNK = 4 << 20
"""Bytes passed to Java at once, which keeps them as text for a moment."""


class HadoopFiles:
    """One of Hadoop's file systems, with the session's configuration, through py4j.

    How it puts a file only if absent depends on the store. If the store supports it (S3A of Hadoop 3.4.2 and
    later reports so), it uses a conditional create. In Google Cloud Storage, it uses a create without
    overwriting, which is atomic there. Anywhere else, it uses a temporary file and a rename without
    overwriting, as Delta's log stores do. This is atomic in HDFS and Azure. (Hadoop's driver of `file:`
    checks first, so `LocalFiles` replaces it.)"""

    def __init__(self, session: SparkSession, uri: str) -> None:
        """`uri`: any place in the file system. Raises FilesError if it cannot be reached."""
        gateway: Any = session.sparkContext._gateway
        self._path: Any = java_class(session, "org.apache.hadoop.fs.Path")
        self._contexts: Any = java_class(session, "org.apache.hadoop.fs.FileContext")
        self._filter: Any = java_class(session, "org.apache.hadoop.fs.GlobFilter")
        self._conf = hadoop_conf(session)
        # FileSystem.rename of one file over another depends on the store. FileContext's never overwrites.
        option = java_class(session, "org.apache.hadoop.fs.Options$Rename")
        self._no_options, self._over = gateway.new_array(option, 0), gateway.new_array(option, 1)
        self._over[0] = option.OVERWRITE
        with _explained(uri, "reach"):
            place = self._path(uri)
            self._fs = place.getFileSystem(self._conf)
            self._root = self._fs.getUri()
            self._is_conditional = bool(self._fs.hasPathCapability(place, _IF_ABSENT))
        scheme = self._root.getScheme()
        self._lands_whole = self._is_conditional or scheme in _OBJECT_STORES
        self._looks_first = scheme in _NEED_A_CONDITION and not self._is_conditional
        self._proof = Proof(self._put, self.read, self.delete)

    def prove(self, folder: str) -> None:
        if self._looks_first:
            raise FilesError(
                f"cannot write {folder}: Hadoop's connector does not put on condition that the file does not "
                "exist, but looks first: one worker could overwrite what another has acknowledged. Use "
                "s3a:// of Hadoop 3.4.2 or later, with the default of fs.s3a.create.conditional.enabled"
            )
        self._proof.once(folder)

    @cached_property
    def _context(self) -> Any:
        return self._contexts.getFileContext(self._root, self._conf)

    def list(self, folder: str) -> Sequence[Entry]:
        return [*self.list_after(folder, "")]

    def list_after(self, folder: str, name: str) -> Iterator[Entry]:
        with suppress(FileNotFoundError), _explained(folder, "list"):
            # Java filters: each entry costs several calls.
            after = ",".join(f"{name[:at]}[^ -{letter}]*" for at, letter in enumerate(name))
            found = self._fs.listStatus(self._path(folder), self._filter(f"{{{name}?*,{after}}}"))
            yield from sorted(map(_entry, found), key=lambda each: each.name)

    def read(self, path: str) -> bytes:
        with _explained(path, "read"):
            stream = self._fs.open(self._path(path))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        with _explained(path, "read"):
            place = self._path(path)
            size = int(self._fs.getFileStatus(place).getLen())
            stream = self._fs.open(place)

        def read_at(start: int, length: int) -> bytes:
            with _explained(path, "read"):
                stream.seek(start)
                return bytes(stream.readNBytes(length))

        try:
            with pa.PythonFile(RandomAccess(size, read_at), mode="r") as file:
                yield file
        finally:
            stream.close()

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        self.prove(path.rpartition("/")[0])
        self._put(path, data)

    def replace(self, path: str, data: bytes) -> None:
        with _explained(path, "write"):
            if self._lands_whole:
                self._write(self._fs.create(self._path(path), True), data)
            else:
                self._put_by_rename(self._path(path), data, self._over)

    def delete(self, path: str) -> None:
        with _explained(path, "remove"):
            self._fs.delete(self._path(path), False)

    def retire(self, path: str) -> None:
        """Works in HDFS. Does nothing in object stores."""
        with suppress(FileNotFoundError), _explained(path, "change the time of"):
            self._fs.setTimes(self._path(path), 0, -1)

    def delete_tree(self, folder: str) -> None:
        with _explained(folder, "remove"):
            self._fs.delete(self._path(folder), True)

    def rename(self, source: str, target: str) -> None:
        old, new = self._path(source), self._path(target)
        with _explained(target, "write"):
            self._fs.getFileStatus(old)
            self._fs.mkdirs(new.getParent())
            self._context.rename(old, new, self._no_options)

    def exists(self, path: str) -> bool:
        with _explained(path, "find"):
            return bool(self._fs.exists(self._path(path)))

    def _put(self, path: str, data: bytes | pa.Buffer) -> None:
        target = self._path(path)
        try:
            with _explained(path, "write"):
                if self._lands_whole:
                    self._write(self._created(target), data)
                else:
                    self._put_by_rename(target, data)
        except AlreadyThere:
            if not self.exists(path):  # the folder's place is taken
                raise FilesError(f"cannot write {path}: a file has the name of its folder") from None
            raise

    def _put_by_rename(self, target: Any, data: bytes | pa.Buffer, options: Any = None) -> None:
        temporary = self._path(target.getParent(), temporary_name())
        try:
            self._write(self._fs.create(temporary, False), data)
            self._context.rename(temporary, target, self._no_options if options is None else options)
        except BaseException:
            with suppress(Exception):  # it is hidden, and removed when it is old
                self._fs.delete(temporary, False)
            raise

    def _created(self, target: Any) -> Any:
        builder = self._fs.createFile(target).create().recursive()
        if self._is_conditional:
            return builder.must(_IF_ABSENT, True).build()
        return builder.overwrite(False).build()

    def _write(self, stream: Any, data: bytes | pa.Buffer) -> None:
        rest = memoryview(data)
        try:
            for start in range(0, len(rest), _CHUNK):
                stream.write(bytes(rest[start : start + _CHUNK]))
            if stream.hasCapability("hsync"):
                stream.hsync()
        except BaseException:
            with suppress(Exception):  # the first error is raised
                if stream.hasCapability(_ABORTABLE):
                    stream.abort()  # closing would create a partial file
                stream.close()
            raise
        stream.close()


def hadoop_conf(session: SparkSession) -> Any:
    """Hadoop's configuration with the session's settings."""
    return session._jsparkSession.sessionState().newHadoopConf()


def _entry(status: Any) -> Entry:
    is_folder = bool(status.isDirectory())
    size = 0 if is_folder else int(status.getLen())
    return Entry(status.getPath().getName(), size, int(status.getModificationTime()), is_folder)


@contextmanager
def _explained(path: str, what: str) -> Iterator[None]:
    """Raise Java's errors as Python's. A connection error to Java is not changed."""
    try:
        yield
    except Py4JJavaError as error:
        cause = error.java_exception
        name = cause.getClass().getName()
        if name in _TAKEN:
            raise AlreadyThere(path) from None
        if name in _MISSING:
            raise FileNotFoundError(f"{path} does not exist") from None
        raise _failed(path, what, name, cause.getMessage()) from None
    except PySparkException as error:
        raise _failed(path, what, type(error).__name__, str(error)) from None


def _failed(path: str, what: str, kind: str, message: str | None) -> FilesError:
    is_outage = bool(_OUTAGE.search(f"{kind}: {message}"))
    kind = kind.rpartition(".")[2]
    first = (message or "").strip().partition("\n")[0]
    said = f"{kind}: {first}" if first else kind
    if kind == "UnsupportedFileSystemException" or "ClassNotFoundException" in first:
        advice = "name the store's connector under spark.packages, and its classes under spark.conf"
    elif kind == "AccessControlException":
        advice = "let the worker's user write there"
    elif "Quota" in kind or "No space left" in first:
        advice = "free space there, or raise the quota"
    else:
        advice = "make sure that Spark can use that place (credentials, rights, space)"
    return FilesError(f"cannot {what} {path}: {said}; {advice}", is_outage=is_outage)
