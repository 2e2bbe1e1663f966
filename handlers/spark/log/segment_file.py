"""One segment as a Parquet file: its rows as Spark reads them, and the log's information in its footer.

Encodings are plain and the compression is zstd. Typical rows take half the bytes and two thirds of the time
of Parquet's usual dictionaries with snappy. Times are 64-bit microseconds, marked as UTC or as without a
zone. Decimals are decimals.

A statement of the source may be in it, too. It is followed in the log's order, while rows are merged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.api import Change, Operation
from handlers.spark.log.marks import Marks, UnreadableMarks
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.rows.parquet_files import writing

REPLACE: Literal["replace"] = "replace"
"""The operation of an entry that gives a reloaded table its new rows."""


class Statement(msgspec.Struct, frozen=True):
    """DDL, a truncate, or the replacement of a table's rows, with everything that any worker needs to follow
    it."""

    op: Operation | Literal["replace"]
    sql: str | None
    """For `replace`: the place of the table with the new rows, below the folder of all tables."""
    source_time_ms: int
    topic: str
    partition: int
    offset: int
    index: int
    topics: tuple[str, ...]
    """The topic's names in records of finished steps (`Marks.names`)."""
    key_before: tuple[str, ...]
    key: tuple[str, ...]
    """The key columns of later rows."""
    columns: bytes
    """The schema of later segments, as `columns_of` writes it."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of later segments."""
        return pa.ipc.read_schema(pa.py_buffer(self.columns))

    @property
    def change(self) -> Change:
        """The change that arrived. Not for `replace`, which has none."""
        assert self.op != REPLACE
        return Change(
            self.op,
            None,
            None,
            None,
            self.sql,
            self.source_time_ms,
            self.topic,
            self.partition,
            self.offset,
            self.index,
            None,
            None,
        )


def columns_of(schema: pa.Schema) -> bytes:
    """Encode a schema for a statement."""
    return bytes(schema.serialize())


_VERSION = 1
_WITH_STATEMENTS = 2
"""Version of statements and of segments after them. An earlier release would misread both."""
_GOES_ON = 3
"""Version of segments after which the log continues in packs. An earlier release would not see the packs."""
_LOADED_AGAIN = 4
"""Version of an entry that replaces the table's rows. An earlier release would not follow it."""
_VERSIONS = (_VERSION, _WITH_STATEMENTS, _GOES_ON, _LOADED_AGAIN)
_FOOTER = b"binlane"
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""Errors that Arrow raises for invalid bytes."""
RESTORE = "restore it from a backup; without one, remove the table with its log and read the source again"
"""What to do about a broken file of the log."""
_FEW = 100
"""Up to this number of rows, Python compares their times faster than Arrow."""


class BrokenLog(RuntimeError):
    """A log does not contain what it must. The message names the file or folder, and what to do."""


def missing(path: str) -> str:
    """Return an error text for a missing segment, with what to do."""
    return f"{path} is missing, although binlane never removed it: {RESTORE}"


@dataclass(frozen=True, slots=True)
class Segment:
    number: int
    """From 1, without gaps."""
    path: str
    """As Spark takes it."""
    rows: int
    bytes: int
    """Size of the file."""
    written_ms: int
    """When it was put, milliseconds since 1970 in UTC by the writer's clock."""
    first_source_ms: int | None
    """The earliest source time of its rows. None without rows."""
    last_source_ms: int | None
    """The latest source time."""
    partial: bool
    """Whether rows lack columns."""
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)
    """Of its file: binlane's columns and the source's."""
    key: tuple[str, ...] = ()
    """The key columns of its rows."""
    statement: Statement | None = None
    """A statement to follow when everything before it is merged, and before its own rows, if any."""

    @property
    def after(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The schema and the key of the next segments, as far as this one says."""
        if self.statement is None:
            return self.schema, self.key
        return self.statement.schema, self.statement.key


@dataclass(frozen=True, slots=True)
class Head:
    """A segment, and its log's state when it was the last one."""

    segment: Segment
    marks: Marks
    """The table's marks, including this segment."""
    is_behind: bool = False
    """Whether the next segment follows a statement that may not be followed yet. See SegmentLog."""
    stream: str | None = None
    """The stream of packs that may contain the next rows (handlers.spark.log.pack_file). None without one."""


class _Footer(msgspec.Struct):
    version: int
    number: int
    marks: msgspec.Raw
    key: tuple[str, ...]
    rows: int
    first_source_ms: int | None
    last_source_ms: int | None
    partial: bool
    written_ms: int
    statement: Statement | None = None
    is_behind: bool = False
    stream: str | None = None


_read_footer = msgspec.json.Decoder(_Footer).decode


def encoded(
    table: pa.Table,
    marks: Marks,
    *,
    number: int,
    path: str,
    key: tuple[str, ...],
    partial: bool,
    written_ms: int,
    statement: Statement | None = None,
    is_behind: bool = False,
    stream: str | None = None,
) -> tuple[pa.Buffer, Head]:
    """Encode a segment's file. The table's second column is the rows' source time, as in every segment."""
    first, last = source_times(table)
    written = msgspec.Raw(marks.to_json().encode())
    version = _GOES_ON if stream is not None else _WITH_STATEMENTS if is_behind else _VERSION
    if statement is not None and statement.op == REPLACE:
        version = _LOADED_AGAIN
    rows = table.num_rows
    footer = _Footer(
        *(version, number, written, key, rows, first, last, partial, written_ms, statement, is_behind), stream
    )
    schema = table.schema.remove_metadata()
    sink = pa.BufferOutputStream()
    options = {**writing(schema), "use_dictionary": False}
    with pq.ParquetWriter(sink, schema, compression="zstd", **options) as writer:
        writer.write_table(table.replace_schema_metadata(None))
        # Not as the schema's metadata, which Arrow would write a second time, in base64.
        writer.add_key_value_metadata({_FOOTER: msgspec.json.encode(footer)})
    data = sink.getvalue()
    return data, Head(_segment(footer, path, data.size, schema), marks, is_behind, stream)


def read_head(files: Files, path: str, number: int, size: int) -> Head:
    """Read the file's footer. Raises BrokenLog for a file that is no segment, and FileNotFoundError."""
    metadata = _metadata(files, path)
    text = (metadata.metadata or {}).get(_FOOTER)
    if text is None:
        raise BrokenLog(f"{path} was not written by binlane: move it out of the folder")
    try:
        version = msgspec.json.decode(text, type=dict[str, msgspec.Raw])["version"]
        if bytes(version) not in [b"%d" % each for each in _VERSIONS]:
            raise BrokenLog(
                f"{path} has version {bytes(version).decode()} of the log's format, but this binlane knows "
                f"versions up to {max(_VERSIONS)}: run the release that wrote it, or a later one"
            )
        footer = _read_footer(text)
        marks = Marks.from_json(bytes(footer.marks))
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        if footer.statement is not None:
            _ = footer.statement.schema  # Arrow's own format: check that it can be read
    except UnreadableMarks as error:
        raise BrokenLog(f"the footer of {path} cannot be read: {error}") from None
    except (msgspec.MsgspecError, KeyError, *_UNREADABLE) as error:
        raise BrokenLog(f"the footer of {path} cannot be read ({str(error).strip()}): {RESTORE}") from None
    if footer.number != number:
        raise BrokenLog(
            f"{path} was written as segment {footer.number}: it was renamed. Restore its name, or move it "
            "out of the folder"
        )
    return Head(_segment(footer, path, size, schema), marks, footer.is_behind, footer.stream)


def _metadata(files: Files, path: str) -> pq.FileMetaData:
    """Read the file's own metadata. Raises BrokenLog, and what the store raises."""
    try:
        with files.open(path) as file:
            return pq.read_metadata(file)
    except (FileNotFoundError, FilesError):
        raise
    except _UNREADABLE as error:
        # Arrow raises OSError both for invalid bytes and for a store that does not answer.
        data = files.read(path)
        try:
            return pq.read_metadata(pa.BufferReader(data))
        except _UNREADABLE:
            raise BrokenLog(
                f"{path} is not a whole Parquet file ({str(error).strip()}). Segments are written whole, so "
                f"another program wrote or cut it: {RESTORE}"
            ) from None


def _segment(footer: _Footer, path: str, size: int, schema: pa.Schema) -> Segment:
    return Segment(
        number=footer.number,
        path=path,
        rows=footer.rows,
        bytes=size,
        written_ms=footer.written_ms,
        first_source_ms=footer.first_source_ms,
        last_source_ms=footer.last_source_ms,
        partial=footer.partial,
        schema=schema,
        key=footer.key,
        statement=footer.statement,
    )


def source_times(table: pa.Table) -> tuple[int | None, int | None]:
    """Return the earliest and the latest source time of the rows, milliseconds since 1970."""
    if not table.num_rows:
        return None, None
    # As numbers: a time may be beyond the range of Python's datetime.
    chunks = [chunk.view(pa.int64()) for chunk in table.column(1).chunks]
    if table.num_rows <= _FEW:
        known = [time for chunk in chunks for time in chunk.to_pylist() if time is not None]
        first, last = min(known, default=None), max(known, default=None)
    else:
        times = pc.min_max(pa.chunked_array(chunks)).as_py()
        first, last = times["min"], times["max"]
    per_ms = {"s": 0.001, "ms": 1, "us": 1_000, "ns": 1_000_000}[table.schema.field(1).type.unit]
    return None if first is None else int(first // per_ms), None if last is None else int(last // per_ms)
