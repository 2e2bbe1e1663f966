"""One segment as a Parquet file: its rows as Spark reads them, and in its footer what the log needs to know.

Encodings are plain and the compression zstd: typical rows take half the bytes and two thirds of the time that
Parquet's usual dictionaries with snappy take. Times are 64-bit microseconds, marked as UTC or as without a
zone; decimals are decimals."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.spark.log.marks import Marks, UnreadableMarks
from handlers.spark.log.statement import REPLACE, Statement
from handlers.spark.log.stores.interface import Files, FilesError
from handlers.spark.rows.parquet_files import writing

_VERSION = 1
_WITH_STATEMENTS = 2
"""Of statements, and of what is behind them: an earlier release would take neither for what it is."""
_GOES_ON = 3
"""Of what the log goes on behind in packs: an earlier release would not see that."""
_LOADED_AGAIN = 4
"""Of what replaces the table's rows: an earlier release would not follow it."""
_VERSIONS = (_VERSION, _WITH_STATEMENTS, _GOES_ON, _LOADED_AGAIN)
_FOOTER = b"binlane"
_UNREADABLE = (pa.ArrowException, OSError, UnicodeDecodeError)
"""What Arrow raises for bytes that are not what they should be."""
RESTORE = "restore it from a backup; without one, remove the table with its log and read the source again"
"""What to do about a file of the log."""
_FEW = 100
"""Rows whose times Python compares sooner than Arrow is called."""


class BrokenLog(RuntimeError):
    """A log does not hold what it must; the message names the file or folder and what to do."""


def missing(path: str) -> str:
    """What to do about a segment that is not there."""
    return f"{path} is missing, although binlane never removed it: {RESTORE}"


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the log."""

    number: int
    """From 1; consecutive."""
    path: str
    """As Spark takes it."""
    rows: int
    bytes: int
    """Of the file."""
    written_ms: int
    """When it was put, milliseconds since 1970 in UTC by the writer's clock."""
    first_source_ms: int | None
    """The earliest source time in its rows; None without rows."""
    last_source_ms: int | None
    """The latest."""
    partial: bool
    """Whether rows lack columns."""
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)
    """Of its file: binlane's columns and the source's."""
    key: tuple[str, ...] = ()
    """The key columns of its rows."""
    statement: Statement | None = None
    """What is to be followed when all before it is merged, and before its rows, if it has any."""

    @property
    def after(self) -> tuple[pa.Schema, tuple[str, ...]]:
        """The schema and the key of what is put behind it, as far as it tells."""
        if self.statement is None:
            return self.schema, self.key
        return self.statement.schema, self.statement.key


@dataclass(frozen=True, slots=True)
class Head:
    """A segment, and what its log was when it was the last."""

    segment: Segment
    marks: Marks
    """Of the table, up to and including it."""
    schema: pa.Schema
    key: tuple[str, ...]
    """The table's key columns; empty without a key."""
    is_behind: bool = False
    """Whether what is put next is behind a statement that may not be followed yet: see SegmentLog."""
    stream: str | None = None
    """The stream of packs that may hold what comes next: see handlers.spark.log.packs. None: nothing does."""


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
    """A segment's file. The table's second column is the rows' source time, as in every segment."""
    first, last = source_times(table)
    written = msgspec.Raw(marks.to_json().encode())
    version = _GOES_ON if stream is not None else _WITH_STATEMENTS if is_behind else _VERSION
    if statement is not None and statement.op == REPLACE:
        version = _LOADED_AGAIN
    rows = table.num_rows
    footer = _Footer(
        *(version, number, written, key, rows, first, last, partial, written_ms, statement, is_behind),
        stream,
    )
    schema = table.schema.remove_metadata()
    sink = pa.BufferOutputStream()
    options = {**writing(schema), "use_dictionary": False}
    with pq.ParquetWriter(sink, schema, compression="zstd", **options) as writer:
        writer.write_table(table.replace_schema_metadata(None))
        # Not as the schema's metadata, which Arrow would write a second time, in base64.
        writer.add_key_value_metadata({_FOOTER: msgspec.json.encode(footer)})
    data = sink.getvalue()
    return data, Head(_segment(footer, path, data.size, schema), marks, schema, key, is_behind, stream)


def read_head(files: Files, path: str, number: int, size: int) -> Head:
    """From the file's footer alone. Raises BrokenLog for a file that is no segment, and FileNotFoundError."""
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
        footer = msgspec.json.decode(text, type=_Footer)
        marks = Marks.from_json(bytes(footer.marks))
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        if footer.statement is not None:
            _ = footer.statement.schema  # Arrow's own form, looked into by whoever asks for it
    except UnreadableMarks as error:
        raise BrokenLog(f"the footer of {path} cannot be read: {error}") from None
    except (msgspec.MsgspecError, KeyError, *_UNREADABLE) as error:
        raise BrokenLog(f"the footer of {path} cannot be read ({str(error).strip()}): {RESTORE}") from None
    if footer.number != number:
        raise BrokenLog(
            f"{path} was written as segment {footer.number}: it was renamed. Restore its name, or move it "
            "out of the folder"
        )
    segment = _segment(footer, path, size, schema)
    return Head(segment, marks, schema, footer.key, footer.is_behind, footer.stream)


def _metadata(files: Files, path: str) -> pq.FileMetaData:
    """The file's own. Raises BrokenLog, and what the store raises."""
    try:
        with files.open(path) as file:
            return pq.read_metadata(file)
    except (FileNotFoundError, FilesError):
        raise
    except _UNREADABLE as error:
        # Arrow says OSError of bytes that it cannot read as well as of a store that does not answer.
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
    """The earliest and the latest of the rows, milliseconds since 1970."""
    if not table.num_rows:
        return None, None
    # As numbers: a time may be beyond what Python's datetime holds.
    chunks = [chunk.view(pa.int64()) for chunk in table.column(1).chunks]
    if table.num_rows <= _FEW:
        known = [time for chunk in chunks for time in chunk.to_pylist() if time is not None]
        first, last = min(known, default=None), max(known, default=None)
    else:
        times = pc.min_max(pa.chunked_array(chunks)).as_py()
        first, last = times["min"], times["max"]
    per_ms = {"s": 0.001, "ms": 1, "us": 1_000, "ns": 1_000_000}[table.schema.field(1).type.unit]
    return None if first is None else int(first // per_ms), None if last is None else int(last // per_ms)
