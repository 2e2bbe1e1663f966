"""The keys of Debezium's records, the images of their rows, and the records of a changed key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from handlers import Change
from handlers.api import Operation
from worker.formats.debezium.connect.schema import BEGIN, Envelopes
from worker.formats.debezium.rows import RowShape
from worker.formats.images import NOTHING, Image, changes_from, deleted, lacking, tells_more, updated
from worker.formats.interface import Record, UndecodableRecord, known_headers
from worker.formats.json_rows import DECODE_ERRORS
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


def image_of(sent: Image, key: tuple[str, ...] | None, shape: RowShape) -> Image:
    """Complete the image of a row. `sent`: the record's own image, without columns that have placeholders.

    Raises UndecodableRecord for a row whose key is unknown."""
    op, before, after, lacks, *_ = sent
    postgresql, lacks = shape.postgresql, lacks or NOTHING
    if postgresql is not None:
        for row in (before, after):
            postgresql.in_calendar(row, key or ())
    if op == "delete" and before is not None:
        if postgresql is not None and key:
            before = postgresql.deleted(before, key)
        return deleted(before, key, shape.columns | lacks if lacks else shape.columns)
    if op != "update" or after is None:
        return sent
    if postgresql is not None:
        sent_columns = after.keys()
        after = postgresql.updated(after)
        lacks |= lacking(sent_columns, after)
    lacks |= lacking(shape.columns, after)
    if before is None:
        return Image(op, None, after, lacks)
    if lacks:
        # Columns that `after` lacks did not change: take their old values, but no NULLs and no fillers.
        is_filler = postgresql.is_filler if postgresql is not None else lambda _, value: value is None
        known = {name: before[name] for name in lacks & before.keys() if not is_filler(name, before[name])}
        after, lacks = {**after, **known}, lacks.difference(known)
    is_whole = not lacking(shape.columns, before)
    if postgresql is not None:
        is_same = all(before.get(name) == after.get(name) for name in key or ())
        is_whole = is_whole and is_same and tells_more(before, key)
    return Image(op, before, after, lacks, is_whole)


# ---- changed keys

# Debezium writes a changed key as two records, a delete and an insert. Their headers have the other key.
# https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-primary-key-updates
# With PostgreSQL, the insert lacks large unchanged values (TOAST), but the row under the old key has them. If
# both records are in one partition, the insert's record becomes both changes, and the delete's is skipped.
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def of_changed_key(change: Change, shape: RowShape, record: Record) -> Sequence[Change]:
    """Split an update whose old key differs. Debezium itself writes two records for it. It is one record only
    if a transform chose other key columns. Raises UndecodableRecord."""
    before, after, key = change.before or {}, change.after or {}, change.key_columns or ()
    rows = shape.postgresql
    if rows is not None and all(rows.is_filler(name, before.get(name)) for name in key):
        return (change,)  # the record does not contain the old key
    return changes_from(
        updated(before, after, key, lacks=change.lacks, before_is_whole=change.before_is_whole),
        record,
        key=key,
        types=change.types,
        time_ms=change.source_time_ms,
        transaction=change.transaction,
    )


def of_moved_row(
    change: Change, shape: RowShape, record: Record, envelopes: Envelopes, *, is_ordered: bool
) -> tuple[Change, ...]:
    """Adapt a change whose headers name another key. `is_ordered`: both records are in one partition.

    A key of fillers (see PostgresRows) adds no delete of the old key. Raises UndecodableRecord."""
    rows, key, headers = shape.postgresql, change.key_columns, known_headers(record)
    # A flattened record without an operation counts as an update.
    if not headers or not key or (change.op == "update" and change.before is not None):
        return (change,)
    wanted = _NEW_KEY if change.op == "delete" else _OLD_KEY
    found = plain_object(next((value for name, value in headers if name == wanted), None), envelopes)
    if found is None:
        return (change,)
    after, lacks = change.after, change.lacks or NOTHING
    if rows is not None and after is not None:
        after = rows.updated(after)
        lacks |= lacking((change.after or {}).keys(), after)
    op: Operation = "delete" if after is None else "insert"
    change = msgspec.structs.replace(change, op=op, after=after, lacks=lacks, moves_key=True)
    if rows is None or not is_ordered:
        return (change,)
    if change.op == "delete":
        return (change,) if change.before is None or rows.is_zero(change.before, key) else ()
    old = shape.typed(found)
    if old.keys() != set(key) or rows.is_zero(old, key):
        return (change,)
    rows.in_calendar(old, key)
    gone = msgspec.structs.replace(
        change, op="delete", before=old, after=None, lacks=NOTHING, before_is_whole=False
    )
    return gone, msgspec.structs.replace(change, index=1)
