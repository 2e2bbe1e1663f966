"""The keys of Debezium's records: their columns and values."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from worker.formats.debezium.connect.schema import BEGIN, Envelopes
from worker.formats.interface import UndecodableRecord
from worker.formats.json_values import DECODE_ERRORS
from worker.formats.table_history import TableDefinition

_MAX_TOPICS = 10_000
_SHOWN = 40
_HEADS = (BEGIN, b"\0", b"\1", b"\2", b"\3")
"""The first bytes of keys with a schema or a schema's id (see `schema_registry.ids`)."""

_ADDED = "__dbz__"
"""Prefix of the key column that ByLogicalTableRouter adds to distinguish the tables of a topic."""

_read_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_values = msgspec.json.Decoder(dict[str, Any]).decode


class Known(NamedTuple):
    """The first bytes of a table's keys, and the columns of the keys that begin with these bytes."""

    begin: bytes
    columns: tuple[str, ...] | None
    has_schema: bool
    """False: `begin` has the form `{"id":`. Only a key without further quotes has just this column."""


class Keys:
    """A reader of keys. Threads share it without a lock, because each access is one dict operation."""

    def __init__(self, envelopes: Envelopes) -> None:
        self._envelopes = envelopes
        self._recent: dict[str, Known] = {}
        """Topic -> the entry of its last key, which nearly always fits the next one."""

    def columns(
        self, key: bytes | None, topic: str, definition: TableDefinition | None
    ) -> tuple[str, ...] | None:
        """Return the key's columns, in its order. If the record has no key, or its key is not a JSON object,
        take them from the table's definition.

        Raises UndecodableRecord for a key with unknown columns, because its rows would have no key."""
        if key is None:
            return None if definition is None else definition.key_columns
        known = self._recent.get(topic)
        if (
            known is not None
            and key.startswith(known.begin)
            and (known.has_schema or key.find(b'"', len(known.begin)) < 0)
        ):
            return known.columns
        head, payload = self._envelopes.split(key) if key.startswith(_HEADS) else (None, key)
        try:
            columns = tuple(name for name in _read_names(payload) if not name.startswith(_ADDED))
        except DECODE_ERRORS:
            if definition is not None and definition.key_columns:
                return definition.key_columns
            shown = repr(key if len(key) <= _SHOWN else key[:_SHOWN] + b"...")[1:]
            raise UndecodableRecord(
                f"the record's key is not a JSON object with the key columns: {shown}; let the connector "
                "write it with key.converter=org.apache.kafka.connect.json.JsonConverter, and without a "
                "transform that changes its form"
            ) from None
        if head is not None and head.schema != b"null":
            self._know(topic, Known(head.bytes, columns, True))
        elif head is None and len(columns) == 1 and key.startswith(begin := b'{"%b":' % columns[0].encode()):
            self._know(topic, Known(begin, columns, False))
        return columns or None

    def _know(self, topic: str, known: Known) -> None:
        if len(self._recent) >= _MAX_TOPICS:
            self._recent.clear()
        self._recent[topic] = known

    def tells_tables_apart(self, key: bytes | None) -> bool:
        """Whether a column of the key identifies the row's table among those of the topic."""
        return any(name.startswith(_ADDED) for name in plain_object(key, self._envelopes) or ())

    def values(self, key: bytes | None) -> dict[str, Any] | None:
        """The key's columns with plain JSON values, or None if it has no columns."""
        values = plain_object(key, self._envelopes) or {}
        return {name: value for name, value in values.items() if not name.startswith(_ADDED)} or None


def plain_object(value: bytes | None, envelopes: Envelopes) -> dict[str, Any] | None:
    """Read the JSON object in a key or header. None for any other content."""
    try:
        return None if value is None else _read_values(envelopes.split(value).payload)
    except DECODE_ERRORS:
        return None
