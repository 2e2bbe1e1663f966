"""Three ways to apply the same batches to a PostgreSQL table, each with one commit a batch."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import psycopg
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.dialects import postgresql

from benchmarks.sql_rows import DATABASE, KEY, TYPES
from handlers import Batch, Change, HandlerContext
from handlers.api import Row
from handlers.sql import SqlHandler

__all__ = ["CopyAndUpsert", "ExecuteMany", "Handling", "Writer"]

_take = itemgetter(*TYPES)
_TYPES = """
    SELECT format_type(atttypid, -1) FROM pg_attribute
    WHERE attrelid = 'staging'::regclass AND attnum > 0 ORDER BY attnum
"""


class Writer(Protocol):
    """A writer with its own table, `table` in the schema DATABASE."""

    name: str
    table: str

    def apply(self, changes: Sequence[Change]) -> None:
        """Apply one batch and commit."""

    def close(self) -> None:
        """Close the connection."""


class Handling:
    """The `sql` handler. It creates its table, and stores marks of applied changes."""

    name = "binlane: the sql handler"
    table = "by_handler"

    def __init__(self, url: str) -> None:
        self._handler = SqlHandler(url=url)
        self._handler.open(HandlerContext(worker="bench", handler="sql", folder=Path()))

    def apply(self, changes: Sequence[Change]) -> None:
        self._handler.handle(Batch(f"{DATABASE}.{self.table}", changes, database=DATABASE, name=self.table))

    def close(self) -> None:
        self._handler.close()


class ExecuteMany:
    """SQLAlchemy as in its tutorial: an upsert and a delete with a list of parameters."""

    name = "SQLAlchemy executemany"
    table = "by_executemany"

    def __init__(self, url: str) -> None:
        self._engine = sa.create_engine(url)
        table = sa.Table(self.table, sa.MetaData(), schema=DATABASE, autoload_with=self._engine)
        insert = postgresql.insert(table)
        self._upsert = insert.on_conflict_do_update(
            index_elements=[table.c[KEY]],
            set_={one.name: insert.excluded[one.name] for one in table.c if one.name != KEY},
        )
        self._delete = sa.delete(table).where(table.c[KEY] == sa.bindparam("gone"))

    def apply(self, changes: Sequence[Change]) -> None:
        rows, gone = _last(changes)
        with self._engine.begin() as connection:
            if gone:
                connection.execute(self._delete, [{"gone": key} for key in gone])
            if rows:
                connection.execute(self._upsert, rows)

    def close(self) -> None:
        self._engine.dispose()


class CopyAndUpsert:
    """psycopg's binary COPY (faster than text) into a temporary table, then one upsert from there."""

    name = "COPY, then one upsert"
    table = "by_copy"

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url.replace("+psycopg", ""))
        target, key = sql.Identifier(DATABASE, self.table), sql.Identifier(KEY)
        columns = [sql.Identifier(column) for column in TYPES]
        sets = [sql.SQL("{0} = excluded.{0}").format(one) for one in columns if one != key]
        self._connection.execute(
            sql.SQL("CREATE TEMP TABLE staging (LIKE {}) ON COMMIT DELETE ROWS").format(target)
        )
        self._types = [name for (name,) in self._connection.execute(_TYPES)]
        self._connection.commit()
        self._copy = sql.SQL("COPY staging ({}) FROM STDIN (FORMAT BINARY)").format(
            sql.SQL(", ").join(columns)
        )
        self._upsert = sql.SQL(
            "INSERT INTO {} SELECT * FROM staging ON CONFLICT ({}) DO UPDATE SET {}"
        ).format(target, key, sql.SQL(", ").join(sets))
        self._delete = sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(target, key)

    def apply(self, changes: Sequence[Change]) -> None:
        rows, gone = _last(changes)
        with self._connection.cursor() as cursor:
            if gone:
                cursor.execute(self._delete, [gone])
            if rows:
                with cursor.copy(self._copy) as copy:
                    copy.set_types(self._types)
                    for row in rows:
                        copy.write_row(_take(row))
                cursor.execute(self._upsert)
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def _last(changes: Sequence[Change]) -> tuple[list[Row], list[Any]]:
    """Reduce a batch for the peers: the last row of each key, and the deleted keys."""
    last = {change.after[KEY] if change.after else change.before[KEY]: change.after for change in changes}  # type: ignore[index]  # a change has one of the two
    rows = [row for row in last.values() if row is not None]
    return rows, [key for key, row in last.items() if row is None]
