"""Records and changes in a file, as sequences that read what is asked for. Memory has offsets and lengths."""

from __future__ import annotations

import itertools
import marshal
import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import msgspec
from confluent_kafka import Message

from handlers import Change
from offsets.types import TopicPartition
from worker.formats.interface import Record


class Readable(Protocol):
    def read(self, begin: int, length: int) -> bytes:
        """Raises OSError."""
        ...

    def joined(self) -> None:
        """Two sequences have become one."""
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
        return cls(file, begin, array("q", itertools.accumulate(map(len, items))))

    def start(self, place: int) -> int:
        return self.ends[place - 1] if place else self.first

    def part(self, places: slice) -> Span:
        first, _, _ = places.indices(len(self.ends))
        return Span(self.file, self.begin, self.ends[places], self.start(first))

    def precedes(self, other: Span) -> bool:
        """Whether the other's items begin where these end."""
        end = self.begin + self.ends[-1] if self.ends else None
        return self.file is other.file and end == other.begin + other.first

    def join(self, other: Span) -> None:
        """Add the items of the span that it precedes."""
        shift = other.begin - self.begin
        self.ends.extend(end + shift for end in other.ends)
        self.file.joined()

    def item(self, place: int) -> bytes:
        """Raises OSError."""
        start = self.start(place)
        return self.file.read(self.begin + start, self.ends[place] - start)

    def items(self) -> Iterator[bytes]:
        """Read all at once. Raises OSError."""
        if not self.ends:
            return
        first = start = self.first
        data = self.file.read(self.begin + first, self.ends[-1] - first)
        for end in self.ends:
            yield data[start - first : end - first]
            start = end


@dataclass(slots=True, eq=False)
class ParkedRecords(Sequence[Record]):
    """Records of one partition, in offset order. To read them may raise OSError."""

    span: Span
    partition: TopicPartition
    offsets: array[int]
    lengths: array[int]
    """The values' lengths, in bytes."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int):
            return self._record(self.span.item(range(len(self))[place]))
        return ParkedRecords(self.span.part(place), self.partition, self.offsets[place], self.lengths[place])

    def __iter__(self) -> Iterator[Record]:
        return map(self._record, self.span.items())

    def join(self, other: ParkedRecords) -> None:
        """Add the records that follow in the file."""
        self.span.join(other.span)
        self.offsets.extend(other.offsets)
        self.lengths.extend(other.lengths)

    def _record(self, data: bytes) -> Record:
        offset, key, value, headers, time = marshal.loads(data)
        topic, partition = self.partition
        fields = {"key": key, "value": value, "headers": headers, "timestamp": time}
        return cast(Record, Message(topic=topic, partition=partition, offset=offset, **fields))


@dataclass(slots=True, eq=False)
class ParkedChanges(Sequence[Change]):
    """Changes of decoded records, in source order. To read them may raise OSError."""

    span: Span
    types: list[Mapping[str, str] | None]
    """Those of each change. Changes share them, so they stay in memory."""

    def __len__(self) -> int:
        return len(self.types)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, int):
            place = range(len(self))[place]
            return _change(self.span.item(place), self.types[place])
        return ParkedChanges(self.span.part(place), self.types[place])

    def join(self, other: ParkedChanges) -> None:
        """Add the changes that follow in the file."""
        self.span.join(other.span)
        self.types.extend(other.types)

    def __iter__(self) -> Iterator[Change]:
        return map(_change, self.span.items(), self.types)


def _change(data: bytes, types: Mapping[str, str] | None) -> Change:
    change: Change = pickle.loads(data)
    return msgspec.structs.replace(change, types=types)
