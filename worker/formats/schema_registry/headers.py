"""Debezium's records whose schemas are named in headers (`ids_in: header`).

Each is read as one that names its schema before its bytes. A value alone does not say what it is then, so
that `route` leaves every record to `explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from worker.formats.interface import Record, Route, Skip, UndecodableRecord
from worker.formats.schema_registry.format import DebeziumWithRegistry
from worker.formats.schema_registry.ids import framed
from worker.formats.schema_registry.schemas import Schemas

if TYPE_CHECKING:
    from worker.formats.debezium.settings import DebeziumSettings

_MOST_TABLES = 10_000


class DebeziumWithHeaders(DebeziumWithRegistry):
    """Likewise without a lock."""

    def __init__(self, settings: DebeziumSettings | None, schemas: Schemas) -> None:
        super().__init__(settings, schemas)
        self.route = self._refuse
        self._heads = schemas.heads
        self._explained: set[tuple[bytes | None, str, str]] = set()
        """(head, database, table) of records that are Debezium's, and of a connector that is read."""

    def _refuse(self, _value: bytes | None) -> NoReturn:
        raise LookupError("its headers say what it is")

    def ready(self, records: Sequence[Record]) -> int:
        """See `NamesSchemas`."""
        wanted = dict[bytes, int]()
        first = len(records)
        for place, record in enumerate(records):
            try:
                whole = framed(record)
            except UndecodableRecord:  # `explain` has to say
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
        except Exception:  # whatever it raises: the record is looked at as a whole
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
    """What reads Debezium's records with these schemas."""
    return (DebeziumWithHeaders if schemas.heads.in_headers else DebeziumWithRegistry)(settings, schemas)
