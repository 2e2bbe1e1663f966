"""The `files` handler: writes changes as JSON lines or Parquet, in files for loaders to pick up."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from handlers.api import Batch, Handler, HandlerContext, Rejected, TargetUnavailable
from handlers.failures import OF_THE_DISK, UnfitPlace
from handlers.files.table_file import TableFile, check_writable, recover, safe_name
from handlers.hanging_calls import Background
from handlers.logs import get_logger
from handlers.options.shared import Options
from handlers.options.templates import place_of
from handlers.options.values import PositiveDuration, PositiveSize, Shaped, duration, size
from handlers.values.change_json import line

if TYPE_CHECKING:
    from handlers.files.parquet_writing import ParquetFiles

_MAX_OPEN = 256

log = get_logger("handlers.files")

_OF_LINES = ("rotate_bytes", "rotate_every", "compress")
_OF_PARQUET = ("prefix", "topic_again")
_STORES = ("s3", "s3a", "gs", "abfss")


class FilesOptions(Options):
    """The keys of a `type: files` entry."""

    directory: str = Field(min_length=1)
    """The folder of the files, relative to the configuration file's folder. With format: parquet also a place
    in an object store: s3://bucket/path, gs://..., abfss://..."""
    format: Literal["jsonl", "parquet"] = "jsonl"
    """jsonl: appends lines. parquet: a file for each batch, exactly once."""
    rotate_bytes: PositiveSize = size("64MiB")
    """Size on disk at which a file is finished. For jsonl."""
    rotate_every: PositiveDuration = duration("10m")
    """Age at which a file is finished, also if its table is idle. For jsonl."""
    compress: Literal["none", "gzip"] = "none"
    """gzip: one member for each batch. For jsonl; Parquet uses zstd."""
    prefix: Annotated[str, Shaped(r"[A-Za-z_][A-Za-z0-9_]*", "a letter or _, then letters, digits and _")] = (
        "_"
    )
    """Prefix of the columns that binlane adds. For parquet."""
    topic_again: dict[str, list[str]] = Field(default={})
    """Id of a topic that is in use again after a fail-over to another cluster and back -> the ids that it
    follows. For parquet."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        of_others = _OF_PARQUET if self.format == "jsonl" else _OF_LINES
        for key in of_others:
            if key in self.model_fields_set:
                raise ValueError(f"{key} is not for format: {self.format}; leave it out")
        scheme, is_uri, _ = self.directory.partition("://")
        if is_uri and self.format == "jsonl":
            raise ValueError(
                "directory: lines are appended to files in a folder; an object store needs format: parquet"
            )
        if is_uri and scheme not in _STORES:
            stores = ", ".join(f"{store}://" for store in _STORES)
            raise ValueError(f"directory: {scheme}:// is not a store; allowed: a folder, {stores}")
        return self


class FilesHandler(Handler):
    """Appends each change as a line to `<directory>/<database>/<table>/<time>.jsonl`, or writes each batch as
    a Parquet file (`handlers.files.parquet_writing`).

    Batches of different tables are written in parallel: only the list of tables has a common lock."""

    options_model: ClassVar[type[FilesOptions]] = FilesOptions
    in_worker: ClassVar[bool] = True  # its start finishes files that another process may be writing

    def __init__(self, **options: Any) -> None:
        self._options = FilesOptions.model_validate(options)
        self._suffix = ".jsonl.gz" if self._options.compress == "gzip" else ".jsonl"
        self._directory = Path(self._options.directory)
        self._lock = Lock()  # guards _files and _open
        self._files: dict[tuple[str, str], TableFile] = {}
        self._open: OrderedDict[TableFile, None] = OrderedDict()  # the least recently used first
        self._rotation: Background | None = None
        self._interval = min(self._options.rotate_every / 4, 60.0)
        self._parquet: ParquetFiles | None = None
        if (chosen := self._options).format == "parquet":
            from handlers.files.parquet_writing import ParquetFiles  # noqa: PLC0415 (loads Arrow if needed)

            self._parquet = ParquetFiles(chosen.directory, chosen.prefix, chosen.topic_again)
        self.clock: Callable[[], float] = time.time
        """Seconds since 1970."""

    def open(self, context: HandlerContext) -> None:
        """Finish files that a crashed worker left open. Raises OSError."""
        if self._parquet is not None:
            self._parquet.open(context)
            return
        self._directory = context.folder / self._options.directory
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in recover(self._directory):
            log.info("file_recovered", handler=context.handler, path=str(path))
        self._rotation = Background(f"{context.handler}-rotation", self._rotate)
        self._rotation.start()

    def handle(self, batch: Batch) -> None:
        """Write the batch to disk.

        Raises Rejected if a value has no JSON form or does not fit its Parquet column. Raises
        TargetUnavailable if the disk is full or broken, or if the store is unreachable. Raises UnfitPlace if
        the system or the store refuses for any other reason, such as a missing permission."""
        if self._parquet is not None:
            self._parquet.handle(batch)
            return
        lines = b"".join(_lines(batch))
        if not lines:
            return
        file = self._file_of(batch)
        try:
            size = file.write(lines, self.clock())
        except OSError as error:
            if error.errno in OF_THE_DISK:
                raise TargetUnavailable(f"{self._directory}: {error.strerror}") from error
            raise UnfitPlace(str(error)) from error
        if size >= self._options.rotate_bytes:
            # The batch is on disk: a failed rename must not cause it to be written again.
            self._finish(file)

    def _rotate(self) -> None:
        while self._rotation is not None and not self._rotation.stopped.wait(self._interval):
            try:
                self.rotate_old()
            except Exception:  # the next round may succeed, so the thread must survive
                log.exception("rotation_failed")

    def rotate_old(self) -> None:
        """Finish the files that are older than `rotate_every`."""
        self._finish_all(opened_before=self.clock() - self._options.rotate_every)

    def release(self, partitions: Collection[tuple[str, int]]) -> None:
        """Finish the open files, or drop what is known of these partitions': another worker continues."""
        if self._parquet is not None:
            self._parquet.release(partitions)
        else:
            self._finish_all()

    def close(self) -> None:
        """Finish every file. If some could not be renamed, raise OSError at the end."""
        if self._rotation is not None:
            self._rotation.end()
            self._rotation.ended()
        failed = self._finish_all().count(False)
        with self._lock:
            self._files.clear()
            self._open.clear()
        if failed:
            raise OSError(f"{failed} files keep their .part name; the next start finishes them")

    def check(self, context: HandlerContext) -> None:
        """Test that the directory, or its nearest existing parent, is writable. Raises OSError."""
        if self._parquet is not None:
            self._parquet.check(context)
            return
        check_writable(context.folder / self._options.directory)

    def _file_of(self, batch: Batch) -> TableFile:
        key = (batch.database, batch.name)
        with self._lock:
            file = self._files.get(key)
            if file is None:
                folder = self._directory / safe_name(batch.database) / safe_name(batch.name)
                file = self._files[key] = TableFile(folder, self._suffix)
            self._open[file] = None
            self._open.move_to_end(file)
            surplus = list(self._open)[: max(0, len(self._open) - _MAX_OPEN)]
            for other in surplus:
                del self._open[other]
        for other in surplus:
            if not other.release():
                with self._lock:
                    self._open.setdefault(other)
        return file

    def _finish_all(self, *, opened_before: float | None = None) -> list[bool]:
        with self._lock:
            files = list(self._files.values())
        return [self._finish(file, opened_before=opened_before) for file in files]

    def _finish(self, file: TableFile, *, opened_before: float | None = None) -> bool:
        try:
            file.finish(opened_before=opened_before)
        except OSError as error:
            log.warning("file_not_finished", error=str(error))
            return False
        return True


def _lines(batch: Batch) -> Iterator[bytes]:
    for at, change in enumerate(batch.changes):
        try:
            yield line(change, batch.database, batch.name)
        except TypeError as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}", at=at) from None
