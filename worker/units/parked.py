"""Records and changes in a file, as sequences that read what is asked for. Memory has offsets and lengths."""

from __future__ import annotations

import marshal
import pickle
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from confluent_kafka import Message

from handlers import Change
from offsets.types import TopicPartition
from worker.formats.interface import Record, any_headers
from worker.units.parking_files import ParkingLot, Span


@dataclass(slots=True, eq=False)
class ParkedRecords(Sequence[Record]):
    """Records of one partition, in offset order. To read them may raise OSError."""

    span: Span
    partition: TopicPartition
    offsets: array[int]
    lengths: array[int]
    """The values' lengths, in bytes."""

    @classmethod
    def write(
        cls, lot: ParkingLot, owner: object, partition: TopicPartition, records: Sequence[Record]
    ) -> ParkedRecords:
        """Write records of one partition and table (`owner`). Raises OSError."""
        records = list(records)
        fields = ((r.offset(), r.key(), r.value(), any_headers(r), r.timestamp()) for r in records)
        offsets = array("q", [record.offset() for record in records])
        span = lot.append(owner, map(marshal.dumps, fields))
        return cls(span, partition, offsets, array("q", map(len, records)))

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

    @classmethod
    def write(cls, lot: ParkingLot, owner: object, changes: Sequence[Change]) -> ParkedChanges:
        """Write changes of a table (`owner`). Raises OSError."""
        changes = list(changes)
        bare = (msgspec.structs.replace(change, types=None) for change in changes)
        data = [pickle.dumps(change, pickle.HIGHEST_PROTOCOL) for change in bare]
        span = lot.append((owner, "changes"), data)  # in one piece with the former ones
        return cls(span, [change.types for change in changes])

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
