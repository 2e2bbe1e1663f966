"""A source database with Canal: every statement changes rows and adds a message to the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from worker.demo.shop.canal_text import Column

Row = dict[str, Any]
Key = tuple[Any, ...]

# A Canal batch contains the current end of the binlog: several messages share its number.
_MESSAGES_PER_ID = 7


class Message(NamedTuple):
    """The value of one Kafka record."""

    table: str
    """Empty for a statement about the database."""
    rows: int
    """Its row changes, two for a row whose key changes; 0 for a statement."""
    value: bytes


class Place(NamedTuple):
    """One change of a table: its operation, its message's number in the stream, and its index in that
    message. A changed key is a delete of the old row and an insert of the new one."""

    op: str
    message: int
    row: int


class SourceTable:
    """The current rows of one table, and its history.

    `key` is empty for a table without a primary key. Its rows are stored under sequential numbers.
    """

    def __init__(self, name: str, key: Sequence[str], columns: Sequence[Column]) -> None:
        self.name = name
        self.key = tuple(key)
        self.columns = list(columns)
        self.defaults: Row = {}
        """Of columns that a statement may omit; null for columns without a default."""
        self.rows: dict[Key, Row] = {}
        self.history: list[Place] = []
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
        ops: list[str] = []
        for changed in old or [{}] * len(rows):
            ops += [kind.lower()] if changed.keys().isdisjoint(table.key) else ["delete", "insert"]
        table.history += [Place(op, self._messages, row) for row, op in enumerate(ops)]
        self.changes += len(ops)
        self._put(fields, table.name, kind, len(ops))

    def _state(self, sql: str, kind: str, table: SourceTable | None = None, op: str = "") -> None:
        nothing = dict.fromkeys(("data", "mysqlType", "old", "pkNames", "sqlType"))
        if table is not None:
            table.history.append(Place(op, self._messages, 0))
        self._put({**nothing, "isDdl": True, "sql": sql}, "" if table is None else table.name, kind, 0)

    def _put(self, fields: Mapping[str, Any], table: str, kind: str, rows: int) -> None:
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
        self._pending.append(Message(table, rows, value))
        self._messages += 1


def _place(table: SourceTable, column: str) -> int:
    return [known.name for known in table.columns].index(column)
