"""The changes of one flat message of Canal: from its rows or its statement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from handlers import Change
from handlers.api import Operation
from worker.formats.canal.rows import Message, RowShape, TiDB, refuse_sql, refuse_statement
from worker.formats.images import Image, changes_from, deleted, lacking, statement_from, updated
from worker.formats.interface import Record, UndecodableRecord
from worker.formats.json_values import DECODE_ERRORS
from worker.formats.row_struct import Row

OPERATIONS: Mapping[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}


def changes_of(
    rows: list[Row] | None, message: Message[Any], shape: RowShape, record: Record
) -> Iterable[Change]:
    """The changes of one message. Raises UndecodableRecord."""
    if message.tidb is not None:
        _refuse_part(message.tidb, message.type)
    if message.is_ddl:
        return _statement(message, rows, record)
    op = OPERATIONS.get(message.type)
    if not rows:
        if op is not None:
            refuse_sql("Canal message", message.sql)
        return ()
    if op is None:
        raise UndecodableRecord(f"not a Canal message: it has rows, but type {message.type!r}")
    key, types = shape.key_columns, shape.types
    ms, gtid = message.es, message.gtid or None
    topic, partition, offset = record.topic(), record.partition(), record.offset()
    if op == "insert":
        return [
            Change(op, None, row, key, None, ms, topic, partition, offset, index, gtid, types)
            for index, row in enumerate(rows)
        ]
    if op == "delete":
        columns = (types or {}).keys()
        images: Iterable[Image] = [deleted(row, key, columns) for row in rows]
    else:
        images = _updates(rows, message, shape)
    return changes_from(images, record, key=key, types=types, time_ms=ms, transaction=gtid)


def _refuse_part(tidb: TiDB, type_: str) -> None:
    """Raise UndecodableRecord if TiCDC sent only the row's key, because the row is large."""
    if type_ == "DELETE" or not (tidb.only_handle_key or tidb.claim_check_location):
        return
    raise UndecodableRecord(
        "TiCDC sent only the row's key, because the row is larger than its max-message-bytes: raise that and "
        "the topic's max.message.bytes, and set large-message-handle-option=none in the changefeed; "
        "handle-key-only and claim-check cannot be read"
    )


def _updates(rows: list[Row], message: Message[Any], shape: RowShape) -> Iterable[Image]:
    """The images of each updated row. `old` contains only the columns that changed. If the key is one of
    them, the images are a delete under the old key and an insert under the new key."""
    try:
        olds = shape.read_old(message.old)
    except DECODE_ERRORS as error:
        raise UndecodableRecord(f"not a Canal message: `old`: {error}") from None
    types = (shape.types or {}).keys()
    if olds is None:  # the source did not log the old values
        return [Image("update", None, row, lacking(types, row)) for row in rows]
    if len(olds) != len(rows):
        raise UndecodableRecord(f"not a Canal message: {len(rows)} rows in `data`, {len(olds)} in `old`")
    images: list[Image] = []
    for old, row in zip(olds, rows, strict=True):
        if not old and old is not None and not shape.key_columns:
            raise UndecodableRecord(
                "an update without a key and without old values: set binlog_row_image=FULL at the source"
            )
        before = {**row, **old} if old else None
        lacks = lacking(types, row)
        images += updated(before, row, shape.key_columns, lacks=lacks, before_is_whole=not lacks)
    return images


def _statement(message: Message[Any], rows: list[Row] | None, record: Record) -> list[Change]:
    truncates, sql = message.type == "TRUNCATE", message.sql or ""
    refuse_statement("Canal message", has_rows=bool(rows), is_empty=not (truncates or sql.strip()))
    return statement_from(
        sql, record, truncates=truncates, time_ms=message.es, transaction=message.gtid or None
    )
