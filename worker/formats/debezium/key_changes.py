"""A change of a PostgreSQL row's key, which Debezium writes as two records: a delete, and an insert that
lacks the large values that stayed as they were (TOAST).

Together they tell where these values are: in the row under the old key. So the insert's record becomes both
changes, and the delete's none.
"""

from __future__ import annotations

import msgspec

from handlers import Change
from worker.formats.debezium.connect.schema import Envelopes
from worker.formats.debezium.rows import RowShape
from worker.formats.debezium.source import DECODE_ERRORS, Row
from worker.formats.interface import Record

__all__ = ["in_one_record"]

_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
_read_key = msgspec.json.Decoder(dict[str, object]).decode


def in_one_record(
    change: Change, shape: RowShape, record: Record, envelopes: Envelopes
) -> tuple[Change, ...]:
    """What becomes of a record's change where both are in one partition, and so in the order of the log.

    A key that may not be told (see PostgresRows) is left as it is. Raises UndecodableRecord.
    """
    rows, key = shape.postgresql, change.key_columns
    if rows is None or not key or change.op not in ("insert", "delete"):
        return (change,)
    found = _header(record, _NEW_KEY if change.op == "delete" else _OLD_KEY, envelopes)
    if found is None:
        return (change,)
    if change.op == "delete":
        return (change,) if change.before is None or rows.is_zero(change.before, key) else ()
    old = shape.typed(found)
    if old.keys() != set(key) or rows.is_zero(old, key):
        return (change,)
    before, _ = rows.meant("update", old, None, key, lambda: (found, None))
    gone = msgspec.structs.replace(change, op="delete", before=before, after=None)
    return gone, msgspec.structs.replace(change, index=1)


def _header(record: Record, name: str, envelopes: Envelopes) -> Row | None:
    raw = next((value for header, value in record.headers() or () if header == name), None)
    if raw is None:
        return None
    try:
        return _read_key(envelopes.split(raw).payload)
    except DECODE_ERRORS:
        return None
