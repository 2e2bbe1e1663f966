"""Debezium's records that name their schemas in headers (`ids_in: header`).

The ids are moved before the bytes of key and value, and the records are read as usual. A value alone does not
identify its schema, so `route` leaves every record to `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Record, Route, Skip, UndecodableRecord
from worker.formats.schema_registry.format import DebeziumWithRegistry
from worker.formats.schema_registry.ids import framed
from worker.formats.schema_registry.schemas import Schemas

_MOST_TABLES = 10_000


class DebeziumWithHeaders(DebeziumWithRegistry):
    """Debezium's format with ids in headers. All threads share one object without a lock."""

    def __init__(self, settings: DebeziumSettings | None, schemas: Schemas) -> None:
        super().__init__(settings, schemas)
        self.route = self._refuse
        self._heads = schemas.heads
        self._explained: set[tuple[bytes | None, str, str]] = set()
        """(head, database, table) of records from a supported connector of Debezium."""

    def _refuse(self, _value: bytes | None) -> NoReturn:
        raise LookupError("its headers describe the record")

    def ready(self, records: Sequence[Record]) -> int:
        """See `NamesSchemas`."""
        wanted = dict[bytes, int]()
        first = len(records)
        for place, record in enumerate(records):
            try:
                whole = framed(record)
            except UndecodableRecord:  # `explain` raises it
                continue
            for text in (whole.value(), whole.key()):
                head = self._heads.of(text) if text else None
                if head is not None and not self._schemas.settled(head):
                    first = min(first, place)
                    wanted.setdefault(head, record.timestamp()[1])
        if wanted:
            self._schemas.want(wanted)
        return first

    def explain(self, record: Record) -> Route | Skip:
        """Route or skip any record. Raises UndecodableRecord."""
        whole = framed(record)
        value = whole.value()
        try:
            found = self._route(value)
        except Exception:  # after any exception, the slow path examines the whole record
            return super().explain(whole)
        known = None if value is None else self._heads.of(value), found.database, found.table
        if known in self._explained:
            return found
        explained = super().explain(whole)
        if not isinstance(explained, Skip):
            if len(self._explained) >= _MOST_TABLES:
                self._explained.clear()
            self._explained.add(known)
        return explained

    @staticmethod
    def _whole(record: Record) -> Record:
        return framed(record)


def debezium_with(schemas: Schemas, settings: DebeziumSettings | None) -> DebeziumWithRegistry:
    """Make the format for Debezium's records with these schemas."""
    return (DebeziumWithHeaders if schemas.heads.in_headers else DebeziumWithRegistry)(settings, schemas)
