"""A source database with Canal: every statement changes rows and adds a message to the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from handlers.mysql.types import MySQLType, read_type
from handlers.values.change_json import duration_text

Row = dict[str, Any]
Key = tuple[Any, ...]

# A Canal batch contains the current end of the binlog: several messages share its number.
_MESSAGES_PER_ID = 7
# java.sql.Types as Canal reports them. An enum is its index (an int), a set its bit mask.
_SQL_TYPES = {
    "tinyint": -6, "smallint": 5, "mediumint": 4, "int": 4, "bigint": -5, "decimal": 3, "double": 8,
    "date": 91, "time": 92, "datetime": 93, "timestamp": 93, "year": 12, "char": 1, "varchar": 12,
    "text": 2005, "json": 12, "binary": 2004, "enum": 4, "set": -7,
}  # fmt: skip


class Message(NamedTuple):
    """The value of one Kafka record."""

    table: str
    """Empty for a statement about the database."""
    value: bytes


class SourceTable:
    """The current rows of one table, and its history.

    `key` is empty for a table without a primary key. Its rows are stored under sequential numbers."""

    def __init__(self, name: str, key: Sequence[str], columns: Sequence[Column]) -> None:
        self.name = name
        self.key = tuple(key)
        self.columns = list(columns)
        self.defaults: Row = {}
        """Of columns that a statement may omit; null for columns without a default."""
        self.rows: dict[Key, Row] = {}
        self.history: list[str] = []
        """The operations of its changes. A changed key is a delete and an insert."""
        self._numbers = 0

    def key_of(self, row: Row) -> Key:
        if self.key:
            return tuple(row[column] for column in self.key)
        self._numbers += 1
        return (self._numbers,)


class SourceDatabase:
    """Tables and the stream of their messages. `clock`: the commit times, in ms since 1970."""

    def __init__(self, name: str, tables: Iterable[SourceTable], clock: Callable[[], int]) -> None:
        self.name = name
        self.tables: Mapping[str, SourceTable] = {table.name: table for table in tables}
        self.changes = 0
        """Row changes so far."""
        self._clock = clock
        self._messages = 0
        self._pending: list[Message] = []

    def take(self) -> list[Message]:
        """Return the messages since the last call."""
        taken, self._pending = self._pending, []
        return taken

    def insert(self, name: str, *rows: Row) -> None:
        table, wholes = self.tables[name], []
        for row in rows:
            given = {**table.defaults, **row}
            whole = {column.name: given.get(column.name) for column in table.columns}
            table.rows[table.key_of(whole)] = whole
            wholes.append(whole)
        self._emit(table, "INSERT", wholes)

    def update(self, name: str, changes: Mapping[Key, Row]) -> None:
        """Run one UPDATE: key -> the columns that it sets. Unchanged rows are not in the binlog."""
        table = self.tables[name]
        after, old = [], []
        for key, values in changes.items():
            row = table.rows[key]
            changed = {column: row[column] for column, value in values.items() if row[column] != value}
            if not changed:
                continue
            new = {**row, **values}
            del table.rows[key]
            table.rows[table.key_of(new)] = new
            after.append(new)
            old.append(changed)
        if after:
            self._emit(table, "UPDATE", after, old)

    def delete(self, name: str, *keys: Key) -> None:
        table = self.tables[name]
        self._emit(table, "DELETE", [table.rows.pop(key) for key in keys])

    def truncate(self, name: str) -> None:
        table = self.tables[name]
        table.rows.clear()
        self._state(f"TRUNCATE TABLE {name}", "TRUNCATE", table, "truncate")

    def add_column(self, name: str, column: Column, default: str, after: str) -> None:
        """Run ALTER TABLE ... ADD COLUMN. Existing rows get the default."""
        table = self.tables[name]
        table.columns.insert(_place(table, after) + 1, column)
        table.defaults[column.name] = default
        for row in table.rows.values():
            row[column.name] = default
        what = f"{column.name} {column.mysql_type} NOT NULL DEFAULT '{default}' AFTER {after}"
        self._state(f"ALTER TABLE {name} ADD COLUMN {what}", "ALTER", table, "ddl")

    def rename_column(self, name: str, old: str, new: str) -> None:
        """Run ALTER TABLE ... RENAME COLUMN, for a column outside the key."""
        table = self.tables[name]
        place = _place(table, old)
        table.columns[place] = Column(new, table.columns[place].mysql_type)
        for row in table.rows.values():
            row[new] = row.pop(old)
        self._state(f"ALTER TABLE {name} RENAME COLUMN {old} TO {new}", "ALTER", table, "ddl")

    def widen_column(self, name: str, column: Column) -> None:
        """Run ALTER TABLE ... MODIFY COLUMN, to a type that contains all values of the old one."""
        table = self.tables[name]
        table.columns[_place(table, column.name)] = column
        sql = f"ALTER TABLE {name} MODIFY COLUMN {column.name} {column.mysql_type}"
        self._state(sql, "ALTER", table, "ddl")

    def statement(self, sql: str) -> None:
        self._state(sql, "QUERY")

    def _emit(
        self, table: SourceTable, kind: str, rows: Sequence[Row], old: Sequence[Row] | None = None
    ) -> None:
        columns = table.columns
        encoders = {column.name: column.text for column in columns}
        data = [{column.name: column.text(row.get(column.name)) for column in columns} for row in rows]
        fields = {
            "data": data,
            "isDdl": False,
            "mysqlType": {column.name: column.mysql_type for column in columns},
            "old": old and [{name: encoders[name](value) for name, value in row.items()} for row in old],
            "pkNames": list(table.key) or None,
            "sql": "",
            "sqlType": {column.name: column.sql_type for column in columns},
        }
        before = len(table.history)
        for changed in old or [{}] * len(rows):
            moves = not changed.keys().isdisjoint(table.key)
            table.history += ["delete", "insert"] if moves else [kind.lower()]
        self.changes += len(table.history) - before
        self._put(fields, table.name, kind)

    def _state(self, sql: str, kind: str, table: SourceTable | None = None, op: str = "") -> None:
        nothing = dict.fromkeys(("data", "mysqlType", "old", "pkNames", "sqlType"))
        if table is not None:
            table.history.append(op)
        self._put({**nothing, "isDdl": True, "sql": sql}, "" if table is None else table.name, kind)

    def _put(self, fields: Mapping[str, Any], table: str, kind: str) -> None:
        moment = self._clock()
        message = {
            **fields,
            "database": self.name,
            "es": moment // 1000 * 1000,  # the binlog has whole seconds
            "gtid": "",
            "id": self._messages // _MESSAGES_PER_ID + 1,
            "table": table,
            "ts": moment,
            "type": kind,
        }
        # Sorted by name, as Canal writes them.
        value = msgspec.json.encode(dict(sorted(message.items())))
        self._pending.append(Message(table, value))
        self._messages += 1


def _place(table: SourceTable, column: str) -> int:
    return [known.name for known in table.columns].index(column)


@dataclass(frozen=True)
class Column:
    """A column of the source. `text(value)` is the text that Canal sends."""

    name: str
    mysql_type: str
    text: Callable[[Any], str | None] = field(init=False, repr=False, compare=False)
    sql_type: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        mysql_type = read_type(self.mysql_type)
        encode = _encoder(mysql_type)
        object.__setattr__(self, "text", lambda value: None if value is None else encode(value))
        object.__setattr__(self, "sql_type", _SQL_TYPES[mysql_type.name])


def _encoder(mysql_type: MySQLType) -> Callable[[Any], str]:
    name, sizes = mysql_type.name, mysql_type.sizes
    if name == "enum":
        return lambda label: str(mysql_type.labels.index(label) + 1)
    if name == "set":
        bits = {label: 1 << bit for bit, label in enumerate(mysql_type.labels)}
        return lambda labels: str(sum(bits[label] for label in labels))
    if name in ("datetime", "timestamp"):
        return partial(_datetime, digits=sizes[0] if sizes else 0)
    return _TEXTS.get(name, str)


def _datetime(value: datetime, digits: int) -> str:
    text = f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{text}.{value.microsecond:06d}"[: len(text) + 1 + digits] if digits else text


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "decimal": lambda value: format(value, "f"),
    "time": duration_text,
    # One character per byte. Canal drops trailing zeros.
    "binary": lambda value: value.rstrip(b"\0").decode("latin-1"),
    # As MySQL prints it: with a space after each colon and comma.
    "json": partial(msgspec.json.format, indent=0),
}
