"""The changelog: one Delta table for each source table, one row for each change."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException

from handlers.api import Batch, Change, HandlerContext, PartialFailure
from handlers.spark import session
from handlers.spark.old_delta import IncompatibleColumn, append
from handlers.spark.options import SparkOptions
from handlers.spark.rows import runs
from handlers.spark.section import SparkSection

__all__ = ["Changelog", "IncompatibleSchema", "SparkFailure", "path_safe"]


class IncompatibleSchema(RuntimeError):
    """A Delta table has a column of another type than its source's rows have now."""


class SparkFailure(RuntimeError):
    """Spark could not append a batch; the message says what Java said, without its stack."""


class Changelog:
    """Appends batches; several threads may, each with another table."""

    def __init__(self, options: SparkOptions, context: HandlerContext) -> None:
        section = SparkSection.model_validate(dict(context.spark))
        self._prefix = options.prefix
        path = options.path or f"{_braces(section.warehouse.rstrip('/'))}/{{database}}/{{table}}"
        self._path = session.place(path, context.folder, escape=_braces)
        self._spark = session.acquire(section, context.folder, context.worker)

    def close(self) -> None:
        session.release()

    def path(self, database: str, table: str) -> str:
        """Where the Delta table of a source table is."""
        return self._path.format(database=path_safe(database), table=path_safe(table))

    def append(self, batch: Batch) -> None:
        path = self.path(batch.database, batch.name)
        done = 0
        try:
            for run in runs(batch.changes, self._prefix):
                self._append(run.rows, path, run.changes[0], batch.table)
                done += len(run.changes)
        except Exception as error:
            self._spark.stop_worker_if_gone(error)
            cause = error
            if isinstance(error, Py4JError | PySparkException):
                # Spark's errors ask Java for their text, which may be gone when the text is wanted.
                cause = SparkFailure(f"{_beginning(batch.table, batch.changes[done])}: {_told(error)}")
            if done:
                raise PartialFailure(done, cause) from None
            raise cause from None

    def check(self) -> None:
        """Ask the tables' file system whether their folder is there; it need not be."""
        jvm: Any = self._spark.session.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(self._path.partition("{")[0])
        path.getFileSystem(self._spark.session._jsparkSession.sessionState().newHadoopConf()).exists(path)

    def _append(self, rows: pa.Table, path: str, first: Change, table: str) -> None:
        try:
            with self._spark.slots:
                append(self._spark.session, rows, path)
        except IncompatibleColumn as error:
            raise IncompatibleSchema(
                f"{_beginning(table, first)}: {error}. "
                f"Give the table another `path`, or change the Delta column"
            ) from error


def path_safe(name: str) -> str:
    """A database's or table's name as one path component; different names stay different.

    Letters and digits of any script, `_`, `-` and `.` stay; all else is percent-encoded, and so is a leading
    dot, so that no name leads out of its folder or is hidden in it.
    """
    return re.sub(r"[^\w.\-]|^\.", _percent_encoded, name)


def _beginning(table: str, first: Change) -> str:
    return f"{table} from {first.topic}[{first.partition}] offset {first.offset} on"


def _told(error: Exception) -> str:
    """What went wrong and its root, without the stack between."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JJavaError):
        lines = lines[1:]  # the first one only says that a call of Java failed
    roots = [line for line in lines if line.startswith("Caused by: ")]
    return " ".join([*lines[:1], *roots[-1:]]).lstrip(": ") or type(error).__name__


def _percent_encoded(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())


def _braces(text: str) -> str:
    """Text that stands for itself in a template."""
    return text.replace("{", "{{").replace("}", "}}")
