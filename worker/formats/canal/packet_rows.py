"""The changes of packets, whose rows are lists of columns, each with its name, type and text.

Every column contains its type. It is nearly always the same as in the previous entry. So each shape (names,
types, key) is looked up once per entry, and all rows of the entry are read with it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Any

from handlers import Change
from handlers.api import Operation
from worker.formats.canal.packet_entries import (
    ROW_EVENTS,
    explain,
    place_of,
    read_content,
    read_entry,
    row_change,
    transactions,
)
from worker.formats.canal.rows import converter_for, refuse_sql, refuse_statement
from worker.formats.images import NOTHING, Image, changes_from, deleted, lacking, statement_from, updated
from worker.formats.interface import Record, Skip, UndecodableRecord, in_calendar, shortened, wrong_value
from worker.formats.json_rows import Row, Shapes

_TRUNCATE = 8
_ShapeKey = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
"""Column names, types, names of key columns."""


class _Shape:
    """The converters for rows of one shape. Immutable."""

    __slots__ = ("columns", "key_columns", "names", "types")

    def __init__(self, names: tuple[str, ...], types: tuple[str, ...], key: tuple[str, ...]) -> None:
        self.names = names
        self.types = dict(zip(names, types, strict=True)) or None
        self.key_columns = key or None
        self.columns: dict[str, tuple[str, Callable[[str], Any] | None]] = {}
        """Name -> (the same string, which all rows share; converter of its text, or None to keep it)."""
        for name, type_text in zip(names, types, strict=True):
            converter = converter_for(name, type_text)
            self.columns[name] = name, None if converter is None else converter.read

    def row(self, columns: Any) -> Row:
        """Make a row from columns. Raises UndecodableRecord."""
        row: Row = {}
        known = self.columns.get
        for column in columns:
            found = known(column.name)
            if found is None:
                raise UndecodableRecord(
                    f"not a Canal packet: column {shortened(column.name)!r} is in one row of an entry, and "
                    "not in the first"
                )
            name, read = found
            try:
                row[name] = None if column.is_null else column.value if read is None else read(column.value)
            except (ValueError, ArithmeticError) as error:
                raise wrong_value(name, (self.types or {})[name], repr(column.value), error) from None
        return row


class Packets:
    """A reader of packets. Threads share it without a lock."""

    def __init__(self) -> None:
        self._shapes = Shapes[_ShapeKey, _Shape]()

    explain = staticmethod(explain)
    transactions = staticmethod(transactions)

    def source_time_ms(self, value: bytes) -> int | None:
        """The time of the packet's first entry in milliseconds, or None. Raises UndecodableRecord."""
        entries = read_content(value).entries
        return read_entry(entries[0]).header.execute_time if entries else None

    def changes(self, value: bytes, record: Record) -> list[Change]:
        """The changes of a packet of one table, in order. Raises UndecodableRecord."""
        found: list[Change] = []
        tables: dict[tuple[str, str], None] = {}
        content = read_content(value)
        for data, first_index in zip(content.entries, content.first_index, strict=True):
            entry = read_entry(data)
            place = place_of(entry)
            if not isinstance(place, Skip):
                tables[place.database, place.table] = None
                change = row_change(entry)
                if change.is_ddl is not place.alone:
                    raise UndecodableRecord(
                        "not a Canal packet: its header and `isDdl` contradict each other"
                    )
                found += self._of_entry(entry.header, change, record, first_index)
        if len(tables) > 1:  # the caller splits such a packet first
            names = ", ".join(map(".".join, tables))
            raise UndecodableRecord(f"a Canal packet with changes of several tables: {names}")
        return found

    def _of_entry(self, header: Any, change: Any, record: Record, first_index: int) -> list[Change]:
        time_ms, gtid = in_calendar(header.execute_time), header.gtid or None
        if change.is_ddl:
            is_truncate, sql = change.event_type == _TRUNCATE, change.sql
            is_empty = not (is_truncate or sql.strip())
            refuse_statement("Canal packet", has_rows=bool(change.row_datas), is_empty=is_empty)
            return statement_from(
                sql, record, truncates=is_truncate, time_ms=time_ms, transaction=gtid, index=first_index
            )
        op = ROW_EVENTS.get(change.event_type)
        if not change.row_datas:
            if op is not None:
                refuse_sql("Canal packet", change.sql)
            return []
        if op is None:
            raise UndecodableRecord(f"not a Canal packet: it has rows, but event type {change.event_type}")
        shape = self._shape(change.row_datas[0], op)
        return changes_from(
            _images(op, change.row_datas, shape),
            record,
            key=shape.key_columns,
            types=shape.types,
            time_ms=time_ms,
            transaction=gtid,
            first_index=first_index,
        )

    def _shape(self, row: Any, op: Operation) -> _Shape:
        columns = row.before_columns if op == "delete" else row.after_columns
        if op == "update":
            columns = [*columns, *_not_in(row.before_columns, {column.name for column in columns})]
        names = tuple([column.name for column in columns])
        types = tuple([column.mysql_type for column in columns])
        key = tuple([column.name for column in columns if column.is_key])
        shape = self._shapes.get((names, types, key))
        if shape is None:
            shape = _Shape(names, types, key)
            self._shapes.add((names, types, key), shape, len(names))
        return shape


def _images(op: Operation, rows: Any, shape: _Shape) -> Iterable[Image]:
    if op == "insert":
        return [Image(op, None, after) for row in rows if (after := shape.row(row.after_columns))]
    if op == "delete":
        befores = [shape.row(row.before_columns) for row in rows]
        return [deleted(before, shape.key_columns, shape.columns.keys()) for before in befores if before]
    return [image for row in rows for image in _update(row, shape)]


def _not_in(columns: Any, names: Container[str]) -> list[Any]:
    return [column for column in columns if column.name not in names]


def _update(row: Any, shape: _Shape) -> Iterable[Image]:
    """The images of an updated row. As for flat messages, only columns that changed have old values. If the
    key changed, the images are a delete under the old key and an insert under the new key."""
    after = shape.row(row.after_columns)
    if not after:
        raise UndecodableRecord("not a Canal packet: an update without the row after it")
    count, kept = len(after), _not_in(row.before_columns, after)
    after |= shape.row(kept)
    # If the images are not FULL, the table's other columns are unknown.
    is_known = len(row.before_columns) in (0, count + len(kept))
    lacks = lacking(shape.columns.keys(), after) if is_known else None
    if not row.before_columns:  # the source did not log the old values
        return updated(None, after, shape.key_columns, lacks=lacks)
    changed = {column.name for column in row.after_columns if column.updated}
    old = shape.row([column for column in row.before_columns if column.name in changed])
    return updated({**after, **old}, after, shape.key_columns, lacks=lacks, before_is_whole=lacks == NOTHING)
