"""What was written to Kafka, and what of it has been handled: the truth that the oracles compare with."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter

__all__ = ["Ledger", "Part", "Unit", "Written"]


@dataclass(slots=True, eq=False)
class Written:
    """One record."""

    number: int
    part: Part
    offset: int
    unit: Unit
    place: int
    """In its unit."""
    poison: bool = False
    """Handlers refuse it."""
    handled: int = 0
    """How often a handler has returned from it."""
    applied: int = 0
    """When its owner handled it last, as a number that grows; 0: only others did."""
    excused: str = ""
    """Why it need not be handled: Kafka no longer has it."""
    gone: bool = False
    """Kafka no longer has it, whether it was handled or not."""

    @property
    def source_ms(self) -> int:
        """When it happened in its source, in milliseconds since 1970."""
        return 1_763_000_000_000 + self.number

    @property
    def settled(self) -> bool:
        return bool(self.handled or self.excused)


@dataclass(slots=True, eq=False)
class Unit:
    """What is handled in order: a table, or a row of one, of one partition."""

    name: str
    records: list[Written] = field(default_factory=list)
    head: int = 0
    """The place of the first that is not settled."""

    def first_stale(self) -> tuple[Written, Written] | None:
        """(a record, one before it that was handled once more after it): the target has old values."""
        newest: Written | None = None
        for record in self.records:
            if not record.applied or record.gone:
                continue
            if newest is not None and record.applied < newest.applied:
                return record, newest
            newest = record
        return None

    def open_from(self, place: int) -> int:
        """The place of the first one from there on that is not settled."""
        while place < len(self.records) and self.records[place].settled:
            place += 1
        return place

    def settle(self) -> None:
        self.head = self.open_from(self.head)


@dataclass(slots=True, eq=False)
class Part:
    """One partition of one topic, as long as that has its id."""

    topic_id: str
    topic: str
    number: int
    anew: bool = False
    """Its topic took the place of one that was deleted: until the worker notices, it reads on in the new one,
    and then all of that from its beginning."""
    records: list[Written] = field(default_factory=list)
    head: int = 0

    def __str__(self) -> str:
        return f"{self.topic}[{self.number}]"

    def first_open(self) -> Written | None:
        """The first record that is neither handled nor excused."""
        while self.head < len(self.records) and self.records[self.head].settled:
            self.head += 1
        return self.records[self.head] if self.head < len(self.records) else None

    def between(self, first: int, end: int) -> list[Written]:
        begin = bisect_left(self.records, first, key=attrgetter("offset"))
        return self.records[begin : bisect_left(self.records, end, key=attrgetter("offset"))]


class Ledger:
    def __init__(self) -> None:
        self.written: list[Written] = []
        self.parts: dict[tuple[str, int], Part] = {}
        """By topic id and number."""
        self._units: dict[tuple[str, int, str], Unit] = {}

    def part(self, topic_id: str, topic: str, number: int) -> Part:
        key = topic_id, number
        if key not in self.parts:
            anew = any(each.topic == topic and each.topic_id != topic_id for each in self.parts.values())
            self.parts[key] = Part(topic_id, topic, number, anew)
        return self.parts[key]

    def add(self, part: Part, offset: int, unit_name: str) -> Written:
        key = part.topic_id, part.number, unit_name
        unit = self._units.get(key)
        if unit is None:
            unit = self._units[key] = Unit(unit_name)
        record = Written(len(self.written), part, offset, unit, len(unit.records))
        self.written.append(record)
        part.records.append(record)
        unit.records.append(record)
        return record

    def excuse(self, records: list[Written], why: str) -> None:
        for record in records:
            record.gone = True
            if not record.handled:
                record.excused = why
                record.unit.settle()

    def open(self) -> list[Written]:
        """Those that nobody has handled yet."""
        return [
            each
            for part in self.parts.values()
            if part.first_open()
            for each in part.records
            if not each.settled
        ]

    def units(self) -> list[Unit]:
        return list(self._units.values())

    @property
    def is_settled(self) -> bool:
        return all(part.first_open() is None for part in self.parts.values())
