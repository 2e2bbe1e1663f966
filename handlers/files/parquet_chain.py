"""The chain of files of one source: each file starts where the previous one ends, and its name says where.

A source is one partition's changes to one table. With `order_by: row`, each shard is its own source. The
files are `<table>/source=<topic>-<partition>/hour=<hour>/<generation>-<offset>-<index>.parquet`. The offset
and index are the place after the last change of the previous file. The hour is that of the file's first
change in the source, but never earlier than the hour of the previous file. Both depend only on the existing
files and on the changes. Two workers may have the same changes, if one has lost the partition and does not
know it yet. Both then choose the same name, and the store gives it to only one, whatever their batches are.
The other reads in that file's footer how far it goes.

A recreated topic starts at offset 0 again, so its generation is one higher."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from handlers.files.table_file import safe_name
from handlers.progress import BEFORE_ALL, WHOLE, Place, TopicId
from handlers.spark.log.stores.interface import Files
from handlers.spark.rows.parquet_files import writing

_VERSION = 1
_FOOTER = b"binlane"
_HOUR = re.compile(r"hour=(\d{4,5}-\d\d-\d\d-\d\d)")
_NAME = re.compile(r"(\d{4,})-(\d{20})-(\d{6,})\.parquet")
_UNREADABLE = (pa.ArrowException, OSError, msgspec.MsgspecError)


class BrokenFile(RuntimeError):
    """The newest file of a source was not written by this handler. The message says what to do."""


class Source(NamedTuple):
    """The origin of a table's changes."""

    topic: str
    partition: int
    shard: int
    """WHOLE, unless the batches are of one shard."""

    @property
    def folder(self) -> str:
        shard = "" if self.shard == WHOLE else f"-s{self.shard}"
        return f"source={safe_name(self.topic)}-{self.partition}{shard}"


@dataclass(frozen=True, slots=True)
class Chain:
    """The state of a source's files."""

    folder: str
    """The source's folder, including its table's."""
    last: Place = BEFORE_ALL
    """The place of the last change in a file."""
    hour: str = ""
    """The hour of the newest file; empty if no file exists."""
    generation: int = 0
    topic_id: TopicId = field(default_factory=TopicId)
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)
    """The schema of the newest file."""
    key: tuple[str, ...] = ()
    """The key columns of its rows."""
    newest: str = ""
    """The path of the newest file; empty if no file exists."""

    def path(self, source_time_ms: int) -> tuple[str, str]:
        """Return the hour and path of the next file, whose first change has this source time."""
        hour = max(self.hour, _hour(source_time_ms))
        offset, index = (0, 0) if self.last == BEFORE_ALL else (self.last[0], self.last[1] + 1)
        return hour, f"{self.folder}/hour={hour}/{self.generation:04d}-{offset:020d}-{index:06d}.parquet"

    def grown(self, path: str, last: Place, hour: str, schema: pa.Schema, key: tuple[str, ...]) -> Chain:
        """Return the chain with one more file."""
        return replace(self, newest=path, last=last, hour=hour, schema=schema, key=key)


class _Footer(msgspec.Struct):
    version: int
    last: Place
    generation: int
    topic_id: str | None
    former_topic_ids: tuple[str, ...]
    key: tuple[str, ...]


_read_footer = msgspec.json.Decoder(_Footer).decode


def encoded(rows: pa.Table, chain: Chain) -> pa.Buffer:
    """Encode a file with these rows. `chain`: the chain that includes this file."""
    footer = _Footer(_VERSION, chain.last, chain.generation, *chain.topic_id, chain.key)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, compression="zstd", **writing(rows.schema)) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({_FOOTER: msgspec.json.encode(footer)})
    return sink.getvalue()


def find(files: Files, table: str, source: Source) -> Chain:
    """Read a source's chain from the store. This usually takes two listings and one footer.

    `table`: the folder of its table. Raises BrokenFile, and passes on the store's errors."""
    folder = f"{table}/{source.folder}"
    hours = [found[1] for entry in files.list(folder) if (found := _HOUR.fullmatch(entry.name))]
    for hour in sorted(hours, reverse=True):
        names = [entry.name for entry in files.list(f"{folder}/hour={hour}") if _NAME.fullmatch(entry.name)]
        if names:  # a crash may leave an empty folder
            return _read(files, folder, hour, max(names, key=_order))
    return Chain(folder)


def sources_below(files: Files, table: str, topic: str, partition: int) -> list[Source]:
    """List the sources of all shards of a partition that have files."""
    whole = Source(topic, partition, WHOLE).folder
    shards = re.compile(re.escape(whole) + r"-s(\d+)")
    return [
        Source(topic, partition, int(found[1]))
        for entry in files.list(table)
        if (found := shards.fullmatch(entry.name))
    ]


def _order(name: str) -> tuple[int, ...]:
    found = _NAME.fullmatch(name)
    return tuple(map(int, found.groups())) if found else ()


def _read(files: Files, folder: str, hour: str, name: str) -> Chain:
    path = f"{folder}/hour={hour}/{name}"
    try:
        with files.open(path) as file:
            metadata = pq.read_metadata(file)
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        texts: Mapping[bytes, bytes] = metadata.metadata or {}
        footer = _read_footer(texts.get(_FOOTER, b"{}"))
    except FileNotFoundError:
        raise
    except OSError as error:
        if not isinstance(error, pa.ArrowException):
            raise
        raise _broken(path) from error
    except _UNREADABLE as error:
        raise _broken(path) from error
    if footer.version != _VERSION:
        raise BrokenFile(
            f"{path} has version {footer.version} of this handler's files, and this binlane knows version "
            f"{_VERSION}: run the release that wrote it, or a later one"
        )
    topic_id = TopicId(footer.topic_id, footer.former_topic_ids)
    return Chain(folder, footer.last, hour, footer.generation, topic_id, schema, footer.key, path)


def _broken(path: str) -> BrokenFile:
    return BrokenFile(
        f"{path} does not say which changes it contains: it is damaged, or another program wrote it. Restore "
        "it, or move it away if its changes may be written again"
    )


def _hour(source_time_ms: int) -> str:
    """Format an hour in UTC, so that texts sort by time.

    >>> _hour(1_763_000_000_000), _hour(-60_000_000_000_000)
    ('2025-11-13-02', '0068-09-03-13')
    """
    try:
        moment = datetime.fromtimestamp(source_time_ms // 1000, UTC)
        return f"{moment.date().isoformat()}-{moment.hour:02d}"  # %Y has no zeros before a year on Linux
    except (ValueError, OverflowError):
        return "1970-01-01-00"
