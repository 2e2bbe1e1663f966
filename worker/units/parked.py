"""Records and changes in a file, as sequences that read what is asked for. Memory has offsets and lengths."""

from __future__ import annotations

import marshal
import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast, overload

import msgspec
from confluent_kafka import Message

if TYPE_CHECKING:
    from handlers import Change
    from offsets.types import TopicPartition
    from worker.formats.interface import Record


class Readable(Protocol):
    def read(self, begin: int, length: int) -> bytes:
        """Raises OSError."""
        ...


@dataclass(slots=True)
class Span:
    """Consecutive items in a file."""

    file: Readable
    begin: int
    ends: array[int]
    """Where each item ends, relative to `begin`."""
    first: int = 0
    """Where the first item begins, relative to `begin`."""

    @classmethod
    def of(cls, file: Readable, begin: int, items: Sequence[bytes]) -> Span:
        ends, end = array("q"), 0
        for item in items:
            end += len(item)
            ends.append(end)
        return cls(file, begin, ends)

    def start(self, place: int) -> int:
        return self.ends[place - 1] if place else self.first

    def part(self, places: slice) -> Span:
        first, _, _ = places.indices(len(self.ends))
        return Span(self.file, self.begin, self.ends[places], self.start(first))

    def item(self, place: int) -> bytes:
        """Raises OSError."""
        start = self.start(place)
        return self.file.read(self.begin + start, self.ends[place] - start)

    def items(self) -> Iterator[bytes]:
        """Read all at once. Raises OSError."""
        if not self.ends:
            return
        start = self.first
        data = self.file.read(self.begin + start, self.ends[-1] - start)
        for end in self.ends:
            yield data[start - self.first : end - self.first]
            start = end


@dataclass(slots=True, eq=False)
class ParkedRecords(Sequence["Record"]):
    """Records of one partition, in offset order. To read them may raise OSError."""

    span: Span
    partition: TopicPartition
    offsets: array[int]
    lengths: array[int]
    """The values' lengths, in bytes."""

    def __len__(self) -> int:
        return len(self.offsets)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> ParkedRecords: ...
    def __getitem__(self, place: int | slice) -> Record | ParkedRecords:
        if isinstance(place, int):
            return self._record(self.span.item(range(len(self))[place]))
        return ParkedRecords(self.span.part(place), self.partition, self.offsets[place], self.lengths[place])

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, self.span.items())

    def _record(self, data: bytes) -> Record:
        offset, key, value, headers, time = marshal.loads(data)
        topic, partition = self.partition
        made = Message(
            topic=topic,
            partition=partition,
            offset=offset,
            key=key,
            value=value,
            headers=headers,
            timestamp=time,
        )
        return cast("Record", made)


@dataclass(slots=True, eq=False)
class ParkedChanges(Sequence["Change"]):
    """Changes of decoded records, in source order. To read them may raise OSError."""

    span: Span
    types: Sequence[Mapping[str, str] | None]
    """Those of each change. Changes share them, so they stay in memory."""

    def __len__(self) -> int:
        return len(self.types)

    @overload
    def __getitem__(self, place: int) -> Change: ...
    @overload
    def __getitem__(self, place: slice) -> ParkedChanges: ...
    def __getitem__(self, place: int | slice) -> Change | ParkedChanges:
        if isinstance(place, int):
            place = range(len(self))[place]
            return _change(self.span.item(place), self.types[place])
        return ParkedChanges(self.span.part(place), self.types[place])

    def __iter__(self) -> Iterator[Change]:
        return map(_change, self.span.items(), self.types)


def _change(data: bytes, types: Mapping[str, str] | None) -> Change:
    change: Change = pickle.loads(data)
    return msgspec.structs.replace(change, types=types)
