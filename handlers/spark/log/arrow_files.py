"""Segments in object stores, without Java: for workers whose Spark is behind Spark Connect."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyarrow import fs

from handlers.spark.log.files import AlreadyThere, Entry, FilesError, temporary_name

__all__ = ["ArrowFiles"]

_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
# Stores in which a file appears, whole, when its stream is closed; there are no folders, a rename copies.
_OBJECT_STORES = {"s3", "gcs", "abfs"}


class ArrowFiles:
    """One store of Arrow's, with the credentials, region and endpoint that its environment tells it
    (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` ...; https://arrow.apache.org/docs/python/filesystems.html).

    Arrow cannot put on condition that nothing is there: a put looks first and puts then, as Delta's log store
    for a single driver does. Of two workers that put the same path within the same moment (a worker that has
    not yet noticed that it lost a partition, and its successor) both may believe to have done it. Where that
    matters, run Spark in the worker, whose Hadoop libraries have conditional puts.
    """

    def __init__(self, uri: str) -> None:
        """`uri`: any place in the store. Raises FilesError when Arrow does not know or reach it."""
        scheme, separator, rest = uri.partition("://")
        self._prefix = f"{scheme}://{rest.partition('/')[0]}"
        known = f"{_SCHEMES.get(scheme, scheme)}{separator}{rest.partition('/')[0]}/"
        try:
            # Of the bucket alone: Arrow would decode percent signs in paths, and Spark does not.
            self._fs, root = fs.FileSystem.from_uri(known)
        except (OSError, pa.ArrowInvalid) as error:
            raise FilesError(
                f"cannot reach {uri}: {error}; with Spark Connect the warehouse is a folder that is mounted "
                "here, or of scheme s3a, gs or abfss, with credentials in the worker's environment"
            ) from None
        self._root = root.rstrip("/")
        self._is_object_store = self._fs.type_name in _OBJECT_STORES
        # Guards the moment between looking and putting, among the threads of this worker.
        self._putting = threading.Lock()

    def list(self, folder: str) -> Sequence[Entry]:
        with _explained(folder, "list"):
            found = self._fs.get_file_info(fs.FileSelector(self._path(folder), allow_not_found=True))
        return [
            Entry(
                one.base_name,
                one.size or 0,
                (one.mtime_ns or 0) // 1_000_000,
                one.type == fs.FileType.Directory,
            )
            for one in found
        ]

    def read(self, path: str) -> bytes:
        with self.open(path) as file:
            data: bytes = file.read()
        return data

    @contextmanager
    def open(self, path: str) -> Iterator[pa.NativeFile]:
        with _explained(path, "read"):
            file = self._fs.open_input_file(self._path(path))
        with file:
            yield file

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        target = self._path(path)
        with self._putting, _explained(path, "write"):
            if self._is_there(target):
                raise AlreadyThere(path)
            if self._is_object_store:
                self._write(target, data)
                return
            folder = target.rpartition("/")[0]
            self._fs.create_dir(folder, recursive=True)
            temporary = f"{folder}/{temporary_name()}"
            try:
                self._write(temporary, data)
                self._fs.move(temporary, target)
            except BaseException:
                with suppress(OSError):  # it is hidden, and removed when it is old
                    self._fs.delete_file(temporary)
                raise

    def delete(self, path: str) -> None:
        with _explained(path, "remove"), suppress(FileNotFoundError):
            self._fs.delete_file(self._path(path))

    def retire(self, path: str) -> None:
        """Arrow sets no time stamps, and object stores have none to set."""

    def delete_tree(self, folder: str) -> None:
        with _explained(folder, "remove"), suppress(FileNotFoundError):
            self._fs.delete_dir(self._path(folder))

    def rename(self, source: str, target: str) -> None:
        """In an object store all files are copied, then the old ones removed: after a crash in between, both
        places hold some, and the target has to be removed by hand before it can be tried again."""
        old, new = self._path(source), self._path(target)
        with _explained(target, "write"):
            if not self._is_there(old):
                raise FileNotFoundError(f"there is no {source}")
            if self._is_there(new):
                raise AlreadyThere(target)
            if self._is_object_store:
                fs.copy_files(old, new, source_filesystem=self._fs, destination_filesystem=self._fs)
                self._fs.delete_dir(old)
                return
            self._fs.create_dir(new.rpartition("/")[0], recursive=True)
            self._fs.move(old, new)

    def exists(self, path: str) -> bool:
        with _explained(path, "find"):
            return self._is_there(self._path(path))

    def _path(self, path: str) -> str:
        return f"{self._root}{path.removeprefix(self._prefix)}"

    def _is_there(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def _write(self, path: str, data: bytes | pa.Buffer) -> None:
        with self._fs.open_output_stream(path) as stream:
            stream.write(data)


@contextmanager
def _explained(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except (FilesError, AlreadyThere, FileNotFoundError):
        raise
    except OSError as error:
        raise FilesError(
            f"cannot {what} {path}: {error}; see to it that the worker reaches that place "
            "(credentials, rights, space)"
        ) from error
