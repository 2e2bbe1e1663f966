"""Write rows: the statements that all databases share, and the order of the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import sqlalchemy as sa

from handlers.sql.target.errors import DATABASE_ERRORS, Fault, fault_of
from handlers.sql.target.known_tables import KnownColumn, KnownTable, UnfitColumn, row_id

Columns = tuple[KnownColumn, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table that set the same columns."""

    table: KnownTable
    columns: Columns
    values: Sequence[Sequence[Any]]
    """For each column the values of all rows, not encoded."""
    count: int
    untold: Columns = ()
    """Columns that get their default if the row exists already."""
    renewed: Columns = ()
    """Columns of the source that an UPDATE changes unless it sets them."""

    def by_row(self) -> list[tuple[Any, ...]]:
        """Return all rows, encoded for the driver. Raises UnfitColumn."""
        return list(zip(*map(KnownColumn.encode, self.columns, self.values), strict=True))

    def compared(self) -> list[tuple[Any, ...]]:
        """Return all rows as parameters of conditions (see KnownColumn.same). Raises UnfitColumn."""
        given = []
        for column, values in zip(self.columns, self.values, strict=True):
            given += [column.encode(values)] * (2 if column.exactly else 1)
        return list(zip(*given, strict=True))

    def only(self, columns: Columns) -> Rows:
        """Return the same rows with only these columns, in this order."""
        found = dict(zip(self.columns, self.values, strict=True))
        return Rows(self.table, columns, [found[column] for column in columns], self.count)


class Writer:
    """The statements of one database. `key` is a unique key of the table; the rows set its columns.

    All methods raise SQLAlchemy's errors or the driver's, and UnfitColumn."""

    placeholder: ClassVar[str] = "%s"
    equal: ClassVar[str] = "IS NOT DISTINCT FROM"
    """The operator that also compares NULL."""

    def upsert(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        """Insert the rows. If a key exists, set the row's columns."""
        connection.exec_driver_sql(self.upsert_sql(rows, key), rows.by_row())

    def upsert_sql(self, rows: Rows, key: Columns) -> str:
        insert = _insert(rows.table, rows.columns, self.placeholder)
        return f"{insert} {on_conflict(rows.columns + rows.untold, key)}"

    def merge(self, connection: sa.Connection, rows: Rows, key: Columns) -> None:
        """Update each existing row, one by one. Insert the other rows."""
        rest = settable(rows.columns, key)
        update = _update(rows.table, rest, key, self.placeholder, rows.untold, renewed=rows.renewed)
        exists = _exists(rows.table, key, self.placeholder)
        set_values = rows.only(key).compared()
        if rest:
            set_values = [
                row + of_key for row, of_key in zip(rows.only(rest).by_row(), set_values, strict=True)
            ]
        missing = []
        for place, parameters in enumerate(set_values):
            if rest or rows.untold:
                found = connection.exec_driver_sql(update, parameters).rowcount > 0
            else:
                found = connection.exec_driver_sql(exists, parameters).first() is not None
            if not found:
                missing.append(place)
        if missing:
            values = [[column[place] for place in missing] for column in rows.values]
            new = Rows(rows.table, rows.columns, values, len(missing))
            computed = [column for column in key if column.is_generated]
            try:
                self.insert(connection, new.only(tuple(one for one in rows.columns if one not in computed)))
            except DATABASE_ERRORS as error:
                if fault_of(error) is Fault.UNIQUE and any(column.exactly for column in key):
                    error.add_note(_alike(key))
                raise
            for parameters in new.only(key).compared() if computed else ():
                if connection.exec_driver_sql(exists, parameters).first() is None:
                    why = "the target computes another value for it than the source sent"
                    raise UnfitColumn(computed[0].name, why)

    def insert(self, connection: sa.Connection, rows: Rows) -> None:
        connection.exec_driver_sql(_insert(rows.table, rows.columns, self.placeholder), rows.by_row())

    def delete(self, connection: sa.Connection, keys: Rows) -> None:
        """Delete the rows with these keys, if they exist."""
        connection.exec_driver_sql(_delete(keys.table, keys.columns, self.placeholder), keys.compared())

    def exists(self, connection: sa.Connection, key: Rows) -> bool:
        """Return whether a row with the one key of `key` exists."""
        sql = _exists(key.table, key.columns, self.placeholder)
        return connection.exec_driver_sql(sql, key.compared()[0]).first() is not None

    def move(self, connection: sa.Connection, old: Rows, new: Rows) -> None:
        """Set the columns of `new` in the row with the one key of `old`."""
        sql = _update(old.table, new.columns, old.columns, self.placeholder, renewed=new.renewed)
        connection.exec_driver_sql(sql, new.by_row()[0] + old.compared()[0])

    def copy(self, connection: sa.Connection, old: Rows, new: Rows) -> None:
        """Insert the one row of `new`. Copy the columns that it does not set from the row with the one key of
        `old`."""
        sql = _copy(old.table, new.columns, old.columns, self.placeholder)
        connection.exec_driver_sql(sql, new.by_row()[0] + old.compared()[0])

    def delete_one(self, connection: sa.Connection, old: Rows) -> bool:
        """Delete one row that equals the row of `old`. Return False if none exists."""
        sql = self.one_sql(old.table, f"DELETE FROM {old.table.quoted}", old.columns)
        return connection.exec_driver_sql(sql, old.compared()[0]).rowcount > 0

    def update_one(self, connection: sa.Connection, old: Rows, new: Rows) -> bool:
        """Update one row that equals the row of `old`. Return False if none exists."""
        sets = [f"{column.quoted} = {column.given(self.placeholder)}" for column in new.columns]
        sets += unchanged(new.renewed, new.columns)
        sql = self.one_sql(old.table, f"UPDATE {old.table.quoted} SET {', '.join(sets)}", old.columns)
        return connection.exec_driver_sql(sql, new.by_row()[0] + old.compared()[0]).rowcount > 0

    def update_current(self, connection: sa.Connection, rows: Rows, key: Columns, end: KnownColumn) -> None:
        """Set the rows' columns in the version of each key that has no end."""
        rest = settable(rows.columns, key)
        sql = _update(rows.table, rest, key, self.placeholder, rows.untold, renewed=rows.renewed)
        sets = zip(rows.only(rest).by_row(), rows.only(key).compared(), strict=True)
        given = [row + of_key for row, of_key in sets]
        connection.exec_driver_sql(f"{sql} AND {end.quoted} IS NULL", given)

    def copy_current(self, connection: sa.Connection, old: Rows, new: Rows, end: KnownColumn) -> None:
        """As `copy`, of the version without an end, except the columns of `new.untold`."""
        sql = _copy(old.table, new.columns, old.columns, self.placeholder, new.untold)
        given = new.by_row()[0] + old.compared()[0]
        connection.exec_driver_sql(f"{sql} AND {end.quoted} IS NULL", given)

    def is_current(self, connection: sa.Connection, row: Rows, end: KnownColumn) -> bool:
        """Return whether a version without an end equals the row."""
        sql = f"SELECT 1 FROM {row.table.quoted} WHERE {self.alike(row.columns)} AND {end.quoted} IS NULL"
        return connection.exec_driver_sql(sql, row.compared()[0]).first() is not None

    def alike(self, columns: Columns) -> str:
        """Return the condition that a row has the columns' values, NULL included."""
        return " AND ".join(one.same(one.given(self.placeholder), self.equal) for one in columns)

    def one_sql(self, table: KnownTable, verb: str, columns: Columns) -> str:
        """Return `verb` for one row that equals the parameters, for SQLite and DuckDB."""
        place, same = row_id(table.columns, columns[0].dialect), self.alike(columns)
        return f"{verb} WHERE {place} = (SELECT {place} FROM {table.quoted} WHERE {same} LIMIT 1)"


class SQLiteWriter(Writer):
    """Runs one statement per row, which is cheap without a network."""

    placeholder: ClassVar[str] = "?"
    equal: ClassVar[str] = "IS"


class OfCurrent(NamedTuple):
    """Statements about the version of a key that has no end."""

    end: str
    """Set its end."""
    keep: str
    """Insert the version again, with an end."""
    last: str
    """What to read after SELECT: the time of its last change, and how many versions have no end."""


@lru_cache(maxsize=1000)
def of_current(
    placeholder: str, table: KnownTable, key: Columns, start: KnownColumn, end: KnownColumn
) -> OfCurrent:
    of_key = _equal(key, placeholder)
    current = f"{of_key} AND {end.quoted} IS NULL"
    copied = (end, *(one for one in table.columns.values() if one is not end and not one.is_generated))
    into, values = insert_into(table, copied), names(copied[1:])
    last = f"max(coalesce({end.quoted}, {start.quoted})), count(*) - count({end.quoted})"
    renewed = tuple(one for one in table.columns.values() if one.is_renewed)
    return OfCurrent(
        _update(table, (end,), key, placeholder, renewed=renewed) + f" AND {end.quoted} IS NULL",
        f"{into} SELECT {end.given(placeholder)}, {values} FROM {table.quoted} WHERE {current}",
        f"{last} FROM {table.quoted} WHERE {of_key}",
    )


def names(columns: Columns) -> str:
    return ", ".join(column.quoted for column in columns)


@lru_cache(maxsize=1000)
def _insert(table: KnownTable, columns: Columns, placeholder: str) -> str:
    return f"{insert_into(table, columns)} VALUES ({', '.join(one.given(placeholder) for one in columns)})"


def insert_into(table: KnownTable, columns: Columns) -> str:
    is_numbered = any(column.is_numbered for column in table.columns.values())
    overriding = " OVERRIDING SYSTEM VALUE" if is_numbered else ""
    return f"INSERT INTO {table.quoted} ({names(columns)}){overriding}"


@lru_cache(maxsize=1000)
def _copy(table: KnownTable, columns: Columns, key: Columns, placeholder: str, untold: Columns = ()) -> str:
    others = (one for one in table.columns.values() if one not in columns + untold)
    rest = tuple(one for one in others if not one.is_generated)
    values = ", ".join([one.given(placeholder) for one in columns] + [one.quoted for one in rest])
    into = insert_into(table, columns + rest)
    return f"{into} SELECT {values} FROM {table.quoted} WHERE {_equal(key, placeholder)}"


def settable(columns: Columns, key: Columns) -> Columns:
    """Return the columns that an UPDATE by the key may set."""
    return tuple(one for one in columns if one not in key and not one.is_numbered)


@lru_cache(maxsize=1000)
def on_conflict(columns: Columns, key: Columns) -> str:
    """For PostgreSQL, SQLite and DuckDB. `excluded` also has the defaults of columns not inserted."""
    sets = ", ".join(f"{one.quoted} = excluded.{one.quoted}" for one in settable(columns, key))
    return f"ON CONFLICT ({names(key)}) DO {f'UPDATE SET {sets}' if sets else 'NOTHING'}"


@lru_cache(maxsize=1000)
def _update(
    table: KnownTable,
    columns: Columns,
    key: Columns,
    placeholder: str,
    untold: Columns = (),
    *,
    renewed: Columns = (),
) -> str:
    sets = [f"{column.quoted} = {column.given(placeholder)}" for column in columns]
    sets += [f"{column.quoted} = {column.default}" for column in untold]
    sets += unchanged(renewed, columns + untold)
    return f"UPDATE {table.quoted} SET {', '.join(sets)} WHERE {_equal(key, placeholder)}"


def unchanged(renewed: Columns, others: Columns) -> list[str]:
    """Return assignments that keep the columns unchanged, except those in `others`, which are set."""
    return [f"{one.quoted} = {one.quoted}" for one in renewed if one not in others]


@lru_cache(maxsize=1000)
def _delete(table: KnownTable, key: Columns, placeholder: str) -> str:
    return f"DELETE FROM {table.quoted} WHERE {_equal(key, placeholder)}"


@lru_cache(maxsize=1000)
def _exists(table: KnownTable, key: Columns, placeholder: str) -> str:
    return f"SELECT 1 FROM {table.quoted} WHERE {_equal(key, placeholder)}"


def _alike(key: Columns) -> str:
    named = ", ".join(column.name for column in key if column.exactly)
    return (
        f"the collation of {named} may treat keys as equal that differ in case, accents or spaces at the "
        "end: give the column one that compares bytes"
    )


def _equal(key: Columns, placeholder: str) -> str:
    return " AND ".join(column.same(column.given(placeholder)) for column in key)
