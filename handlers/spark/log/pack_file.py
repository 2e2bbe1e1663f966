"""One pack as a file: pieces, each with the rows of one table as an Arrow stream, then an index. Streams are
folders of packs, which are numbered in the order in which one worker has put them.

A piece contains its log, the segment that it follows, and its place after that segment. So a piece is
obsolete when its log has a later segment, and a missing piece is noticed when a later one exists."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from handlers.spark.log.segment_file import RESTORE, BrokenLog
from handlers.spark.log.segment_folder import UsedUp
from handlers.spark.log.stores.interface import AlreadyThere, Entry, Files

SHARED = "_shared"
"""The folder of all streams, in the folder of all logs."""
_NAME = re.compile(r"(\d{20})\.pack")
_STREAM = re.compile(r"[0-9a-f]{32}")
_VERSION = 1
_MAGIC = b"binlane pack"
_TAIL = struct.Struct("<QIB12s")
"""The index's size in bytes, its checksum, the version, and the file's type."""
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one batch, or of a part of one, in a pack."""

    log: str
    """Its table's log, as a path below the folder of all logs."""
    after: int
    """The segment of that log that it follows."""
    place: int
    """Its place among the pieces after that segment, from 1."""
    begin: int
    """Its offset in the file."""
    size: int
    """In bytes."""
    checksum: int
    rows: int
    written_ms: int
    first_source_ms: int | None
    last_source_ms: int | None
    marks: str
    """The table's complete marks after this piece is applied."""


class Index(msgspec.Struct, frozen=True):
    stream: str
    number: int
    pieces: tuple[Piece, ...] = ()
    is_end: bool = False
    """Whether the stream ends here: nothing is ever put after it."""


_read_index = msgspec.msgpack.Decoder(Index).decode


@dataclass(frozen=True, slots=True)
class _Found:
    size: int
    checksum: int
    version: int


def body_of(rows: pa.Table, schema: bytes) -> bytes:
    """Encode rows as an Arrow stream. `schema`: theirs, as Arrow writes it (`rows.schema.serialize()`)."""
    batches = rows.combine_chunks().to_batches()
    return b"".join([schema, *(memoryview(each.serialize()) for each in batches), _END_OF_STREAM])


def rows_of(body: bytes) -> pa.Table:
    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()


def encoded(index: Index, bodies: Sequence[bytes]) -> bytes:
    """Encode a file. Each piece of the index contains the place of its body."""
    told = msgspec.msgpack.encode(index)
    tail = _TAIL.pack(len(told), zlib.crc32(told), _VERSION, _MAGIC)
    return b"".join([*bodies, told, tail])


def read_index(files: Files, path: str, stream: str, number: int) -> Index:
    """Read a pack's index. Raises BrokenLog for a file that is not this pack, and what the store raises."""
    with files.open(path) as file:
        size = file.size()
        found = _tail(path, _at(file, max(0, size - _TAIL.size), min(size, _TAIL.size)))
        begin = size - _TAIL.size - found.size
        told = _at(file, begin, found.size) if begin >= 0 else b""
    if zlib.crc32(told) != found.checksum or len(told) != found.size:
        raise BrokenLog(_damaged(path))
    try:
        index = _read_index(told)
    except msgspec.MsgspecError as error:
        raise BrokenLog(f"{_damaged(path)} ({error})") from None
    if (index.stream, index.number) != (stream, number):
        raise BrokenLog(
            f"{path} was written as number {index.number} of {index.stream}: it was renamed. Restore its name"
        )
    return index


def read_piece(files: Files, path: str, begin: int, size: int, checksum: int) -> bytes:
    """Read a piece's body. Raises BrokenLog, FileNotFoundError, and what the store raises."""
    with files.open(path) as file:
        body = _at(file, begin, size)
    if len(body) != size or zlib.crc32(body) != checksum:
        raise BrokenLog(_damaged(path))
    return body


def _at(file: pa.NativeFile, begin: int, size: int) -> bytes:
    file.seek(begin)
    return bytes(file.read(size))


def _tail(path: str, told: bytes) -> _Found:
    if len(told) < _TAIL.size:
        raise BrokenLog(_damaged(path))
    size, checksum, version, magic = _TAIL.unpack(told)
    if magic != _MAGIC:
        raise BrokenLog(_damaged(path))
    if version != _VERSION:
        raise BrokenLog(
            f"{path} has version {version} of packs, but this binlane knows version {_VERSION}: run the "
            "release that wrote it, or a later one"
        )
    return _Found(size, checksum, version)


def _damaged(path: str) -> str:
    return f"{path} is not a whole pack of binlane, although packs are written whole: {RESTORE}"


class StreamEnded(Exception):
    """The number was taken or used before: somebody has ended the stream."""


def is_stream(name: str) -> bool:
    """Whether a folder in SHARED is a stream's. A database may be called SHARED, too."""
    return _STREAM.fullmatch(name) is not None


class PackFolder:
    """Any thread. Each method raises what the store raises."""

    def __init__(self, files: Files, logs: str, stream: str) -> None:
        """`logs`: the folder of all logs."""
        self.path = f"{logs}/{SHARED}/{stream}"
        self._files = files
        self._used_up = UsedUp(files, self.path)

    def place(self, number: int) -> str:
        return f"{self.path}/{number:020d}.pack"

    def put(self, number: int, data: bytes) -> None:
        """Put a pack. It is durable and in the stream when this returns. Raises StreamEnded."""
        try:
            self._files.put(self.place(number), data)
        except AlreadyThere:
            raise StreamEnded(self.path) from None
        if number <= self.removed():
            self._files.delete(self.place(number))
            raise StreamEnded(self.path)

    def found(self) -> dict[int, Entry]:
        """The existing packs, by number."""
        entries = self._files.list(self.path)
        return {int(name[1]): each for each in entries if (name := _NAME.fullmatch(each.name)) is not None}

    def counting(self) -> dict[int, Entry]:
        """The same without the last removed pack. If that exists again, a frozen worker has put it, and will
        remove it."""
        found = self.found()
        found.pop(self.removed(), None)
        return found

    def removed(self) -> int:
        """The number up to which numbers may have been used, and their packs removed."""
        return self._used_up.last()

    def remove(self, numbers: Collection[int]) -> None:
        """Remove packs that nobody needs. The last one of a stream is removed only after its end."""
        if not numbers:
            return
        self._used_up.tell(max(numbers))
        for number in sorted(numbers):
            self._files.delete(self.place(number))
