"""The keys of Debezium's records: the columns that tell a row, and their values."""

from __future__ import annotations

from typing import Any

import msgspec

from worker.formats.connect_schema import BEGIN, Envelopes
from worker.formats.debezium_source import DECODE_ERRORS, Payload
from worker.formats.table_history import TableDefinition

__all__ = ["Keys"]

_MAX_SCHEMAS = 2_000

_read_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_values = msgspec.json.Decoder(dict[str, Any]).decode


class Keys:
    """Reads keys. Threads share it without a lock: each access is one dict operation."""

    def __init__(self) -> None:
        self._envelopes = Envelopes()
        self._columns: dict[bytes, tuple[str, ...] | None] = {}

    def columns(self, key: bytes | None, definition: TableDefinition | None) -> tuple[str, ...] | None:
        """The key's columns, in its order; of a record without one, or with one that is no JSON object, those
        of the table's definition."""
        columns = None
        if key is not None:
            columns = self._with_schema(key) if key.startswith(BEGIN) else _columns(key)
        if columns is None and definition is not None:
            return definition.key_columns
        return columns

    def values(self, key: bytes | None) -> dict[str, Any] | None:
        """The key's columns with plain JSON values; None where there are none."""
        try:
            return None if key is None else _read_values(self._envelopes.split(key).payload)
        except DECODE_ERRORS:
            return None

    def _with_schema(self, key: bytes) -> tuple[str, ...] | None:
        head, payload = self._envelopes.split(key)
        if head is None:
            return _columns(payload)
        columns = self._columns.get(head.schema)
        if columns is None or head.schema == b"null":
            columns = _columns(payload)
            if len(self._columns) >= _MAX_SCHEMAS:
                self._columns.clear()
            self._columns[head.schema] = columns
        return columns


def _columns(payload: Payload) -> tuple[str, ...] | None:
    try:
        return tuple(_read_names(payload)) or None
    except DECODE_ERRORS:
        return None
