"""Write rows to MySQL and MariaDB. pymysql builds statements of many rows (at most 1 MB each)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from handlers.sql.target.known_tables import KnownColumn, KnownTable
from handlers.sql.writers.writer import Columns, Rows, Writer, names, unchanged

_KEYS = 1000
"""Most keys in one DELETE."""


class MySQLWriter(Writer):
    def upsert(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        if rows.count == 1:
            # Its UPDATE and INSERT make the server name the index of a conflicting row.
            self.merge(connection, rows, key)
        else:
            super().upsert(connection, rows, key)

    def upsert_sql(self, rows: Rows, key: Columns) -> str:
        return _upsert(rows.table, rows.columns, key, rows.untold, rows.renewed)

    def delete(self, connection: sa.Connection, keys: Rows) -> None:
        rows = keys.by_row()
        for start in range(0, len(rows), _KEYS):
            piece = rows[start : start + _KEYS]
            parameters = tuple(value for row in piece for value in row)
            if any(column.exactly for column in keys.columns):
                parameters *= 2
            connection.exec_driver_sql(_delete(keys.table, keys.columns, len(piece)), parameters)

    def one_sql(self, table: KnownTable, verb: str, columns: Columns) -> str:
        return f"{verb} WHERE {self.alike(columns)} LIMIT 1"

    def alike(self, columns: Columns) -> str:
        return " AND ".join(map(_same, columns))


def _same(column: KnownColumn) -> str:
    # In MySQL, JSON never equals text. In MariaDB, JSON is text.
    given = "CAST(%s AS JSON)" if isinstance(column.sql_type, mysql.JSON) else "%s"
    return column.same(given, "<=>")


@lru_cache(maxsize=1000)
def _upsert(table: KnownTable, columns: Columns, key: Columns, untold: Columns, renewed: Columns) -> str:
    # VALUES(): MySQL prefers an alias for the row, but MariaDB has none.
    rest = tuple(one for one in columns if one not in key)
    sets = [f"{one.quoted} = VALUES({one.quoted})" for one in rest]
    sets += [f"{one.quoted} = DEFAULT" for one in untold]
    sets += unchanged(renewed, rest + untold)
    values = ", ".join(["%s"] * len(columns))
    into = f"INSERT INTO {table.quoted} ({names(columns)}) VALUES ({values})"
    return f"{into} ON DUPLICATE KEY UPDATE {', '.join([_own_row(key), *sets])}"


def _own_row(key: Columns) -> str:
    """Assign a key column to itself, and fail unless the row has the given key.

    ON DUPLICATE KEY uses the row that any unique index finds. That index may be new, of a prefix or of an
    expression, or ignore case. The failure is an overflow (error 1690), which no sql_mode turns into a
    warning. It depends on a value, so no server computes it beforehand."""
    pairs = [(_bytes(one, one.quoted), _bytes(one, f"VALUES({one.quoted})")) for one in key]
    is_own = " AND ".join(f"{own} <=> {given}" for own, given in pairs)
    fails = f"~0 + (1 + LENGTH(VALUES({key[0].quoted})))"
    return f"{key[0].quoted} = IF(IF({is_own}, 1, {fails}), {key[0].quoted}, {key[0].quoted})"


def _bytes(column: KnownColumn, value: str) -> str:
    return f"CAST({value} AS BINARY)" if isinstance(column.sql_type, sa.String) else value


@lru_cache(maxsize=1000)
def _delete(table: KnownTable, key: Columns, count: int) -> str:
    rows = _in(key, count, [(column.quoted, "%s") for column in key])
    if any(column.exactly for column in key):
        forms = [column.exactly or "{}" for column in key]
        pairs = [(form.format(one.quoted), form.format("%s")) for form, one in zip(forms, key, strict=True)]
        rows += f" AND {_in(key, count, pairs)}"
    return f"DELETE FROM {table.quoted} WHERE {rows}"


def _in(key: Columns, count: int, pairs: Sequence[tuple[str, str]]) -> str:
    left, one = map(", ".join, zip(*pairs, strict=True))
    if len(key) > 1:
        left, one = f"({left})", f"({one})"
    return f"{left} IN ({', '.join([one] * count)})"
