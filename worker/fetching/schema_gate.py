"""Records that name a schema which is not known yet: held until the registry has answered.

What is held was not registered: after a restart it comes again. The partition is paused meanwhile, so that as
much is held as was fetched already; the others are read on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from confluent_kafka import Message

from handlers.logs import get_logger
from worker.formats.interface import NamesSchemas, Record
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignment

__all__ = ["SchemaGate"]

log = get_logger("fetcher")


class _Held:
    __slots__ = ("end", "records")

    def __init__(self, records: list[Record]) -> None:
        self.records = records
        self.end: Message | None = None
        """That the partition is read to its end, told after these."""


class SchemaGate:
    """The fetcher's own."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self._held: dict[Assignment, _Held] = {}

    def __bool__(self) -> bool:
        """Whether anything is held."""
        return bool(self._held)

    def add(self, assignment: Assignment, records: list[Record]) -> list[Record]:
        """Take a poll's records of one partition. Returns those that may go on: the first ones, in order."""
        format_ = assignment.format
        if not isinstance(format_, NamesSchemas):
            return records
        held = self._held.get(assignment)
        if held is not None:
            held.records += records
            held.end = None
            return []
        count = format_.ready(records)
        if count == len(records):
            return records
        self._held[assignment] = _Held(records[count:])
        self._tell()
        return records[:count]

    def due(self) -> Iterator[tuple[Assignment, list[Record]]]:
        """What may go on now."""
        before = len(self._held)
        for assignment, held in list(self._held.items()):
            format_ = assignment.format
            assert isinstance(format_, NamesSchemas)
            count = format_.ready(held.records)
            if not count:
                continue
            passed = list(islice(held.records, count))
            del held.records[:count]
            yield assignment, passed
        if any(not held.records and held.end is None for held in self._held.values()):
            self._held = {a: held for a, held in self._held.items() if held.records or held.end is not None}
        if len(self._held) != before:
            self._tell()

    def keeps_end(self, assignment: Assignment, end: Message) -> bool:
        """The partition is read to its end. True: not before what is held of it, and `ends` has it then."""
        held = self._held.get(assignment)
        if held is None or not held.records:
            return False
        held.end = end
        return True

    def ends(self) -> list[Message]:
        """The ends of partitions of which nothing is held any more."""
        found = {a: held.end for a, held in self._held.items() if not held.records and held.end is not None}
        for assignment in found:
            del self._held[assignment]
        if found:
            self._tell()
        return list(found.values())

    def forget(self, gone: Iterable[Assignment]) -> None:
        """These partitions left; what is held of them comes again elsewhere."""
        found = [assignment for assignment in gone if self._held.pop(assignment, None) is not None]
        if found:
            self._tell()

    def _tell(self) -> None:
        self._pauses.unknown_schemas(self._held)
