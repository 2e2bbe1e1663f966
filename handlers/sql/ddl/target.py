"""Read and change the target's tables for DDL."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from handlers.api import Rejected
from handlers.mysql.ddl import ANY_DATABASE, TableName
from handlers.sql.kept_tables import Kept
from handlers.sql.naming import NameUnfit, Naming, check_name, check_names
from handlers.sql.target.catalogs import renewed_columns
from handlers.sql.target.reflecting import own_name, spelled
from handlers.sql.types.column_types import sql_type
from handlers.sql.types.mysql_sizes import fitting_types
from handlers.sql.types.values import encode, kind_of

KEY_INDEX = "_binlane_key"
"""Suffix of the unique index that replaces a primary key if rows lack its values."""


class TargetTable(NamedTuple):
    schema: str | None
    """None for the connection's default schema."""
    name: str


def alike(name: str, columns: Collection[str]) -> str | None:
    """Return the name among those of the columns, or else one that differs only in case, or None."""
    if name in columns:
        return name
    return next((one for one in columns if one.casefold() == name.casefold()), None)


@dataclass(slots=True)
class Target:
    """The target as one connection sees it. Nothing is cached, because DDL changes it at each step."""

    kept: Kept
    naming: Naming
    time_ms: int
    """Source time of the statement in milliseconds since 1970, UTC."""
    done: list[str]
    """All statements that ran."""
    is_again: bool = False
    """Whether an interrupted worker has begun the operation before."""
    end: str | None = None
    """In a history, the column with the end of versions. New columns are filled only where it is NULL."""

    @property
    def connection(self) -> sa.Connection:
        return self.kept.connection

    @property
    def family(self) -> str:
        """`postgresql`, `mysql` (MariaDB as well), `sqlite` or `duckdb`."""
        name = self.connection.dialect.name
        return "mysql" if name == "mariadb" else name

    @property
    def is_file(self) -> bool:
        """Whether it is SQLite or DuckDB, whose ALTER TABLE is limited."""
        return self.family in ("sqlite", "duckdb")

    # ---- names

    def table(self, name: TableName) -> TargetTable:
        """Return the target's table for a source table; it need not exist. Raises Rejected if the handler
        needs that table for itself, or if the target does not accept the name."""
        table = TargetTable(*self.naming.target(name.database, name.table))
        try:
            check_names((table.schema or None, table.name), self.family)
        except NameUnfit as error:
            raise Rejected(f"{name}: {error}") from error
        why_not = self.kept.own_tables.why_not(table)
        if why_not:
            raise Rejected(f"{name}: {why_not}")
        return table

    def named(self, name: TableName, own: TableName) -> TableName:
        """Return the source table that a statement means. In ANY_DATABASE it is the kept table that exists in
        the target, if any. `own` is the table of the statement's record. Raises Rejected if several tables
        match."""
        if name.database != ANY_DATABASE:
            return name
        databases = set(self.kept.databases_of(name.table))
        if name.table == own.table:
            databases.add(own.database)
        known = [TableName(database, name.table) for database in sorted(databases)]
        found = [one for one in known if self.exists(self.table(one))]
        if len({self.table(one) for one in found}) > 1:
            listed = ", ".join(map(str, found))
            raise Rejected(f"the statement does not name the database of {name.table}: {listed}")
        return found[0] if found else name

    # ---- spelling

    def quote(self, name: str) -> str:
        """Quote a name. Raises Rejected if the target would cut it or not return it unchanged."""
        # SQLAlchemy's quoting doubles a percent sign for statements with parameters.
        mark = "`" if self.family == "mysql" else '"'
        try:
            check_name(name, self.family)
        except NameUnfit as error:
            raise Rejected(str(error)) from error
        return mark + name.replace(mark, mark * 2) + mark

    def ref(self, table: TargetTable) -> str:
        """Return its qualified and quoted name."""
        parts = [self.quote(part) for part in table if part is not None]
        if self.family == "duckdb" and table.schema is not None:
            # Without the catalog, the schema's name could also mean a file (catalog).
            parts.insert(0, self.quote(getattr(self.connection.dialect, "catalog", "")))
        return ".".join(parts)

    def spell(self, type_: sa.types.TypeEngine[Any]) -> str:
        return type_.compile(dialect=self.connection.dialect)

    def stored(self, value: Any, type_: sa.types.TypeEngine[Any]) -> Any:
        """Encode a change's value for the driver and a column of this type."""
        return encode([value], kind_of(type_), self.connection.dialect.name)[0]

    def literal(self, value: Any, type_: sa.types.TypeEngine[Any]) -> str:
        """Return a change's value as an SQL literal, for PostgreSQL and MySQL."""
        found = self.stored(value, type_)
        if self.family == "postgresql":
            return "'" + str(found).replace("'", "''") + "'"
        if isinstance(found, bytes):
            return f"x'{found.hex()}'"
        driver: Any = self.connection.connection.driver_connection
        return str(driver.escape(found, driver.encoders))

    # ---- reading

    def exists(self, table: TargetTable) -> bool:
        # ANY_DATABASE is '' if no database has such a table. No schema has that name.
        return table.schema != "" and sa.inspect(self.connection).has_table(table.name, schema=table.schema)

    def columns(self, table: TargetTable) -> dict[str, sa.types.TypeEngine[Any]]:
        """Return column -> type; empty if the table does not exist."""
        if not self.exists(table):
            return {}
        found = sa.inspect(self.connection).get_columns(table.name, schema=table.schema)
        return {self._name(column["name"]): column["type"] for column in found}

    def column(self, table: TargetTable, name: str) -> str | None:
        """Return the column in the target's spelling (MySQL's names ignore case), or None."""
        return alike(name, self.columns(table))

    def key(self, table: TargetTable) -> tuple[str, ...]:
        name = spelled(self.connection, table.name)
        found = sa.inspect(self.connection).get_pk_constraint(name, schema=table.schema)
        return tuple(map(self._name, found["constrained_columns"]))

    def type_for(self, table: TargetTable, name: str, text: str) -> sa.types.TypeEngine[Any]:
        """Return the target type of a column for its source type. In MySQL it also depends on the other
        columns."""
        key = self.key(table)
        type_ = sql_type(text, self.connection.dialect.name, key_parts=len(key) if name in key else 0)
        if self.family != "mysql":
            return type_
        return fitting_types({**self.columns(table), name: type_}, key, (name,))[name]

    def _name(self, reflected: str) -> str:
        return own_name(reflected, self.connection.dialect.name)

    def key_name(self, table: TargetTable) -> str:
        """Return the name of the primary key's constraint, or ''."""
        return sa.inspect(self.connection).get_pk_constraint(table.name, schema=table.schema)["name"] or ""

    # ---- changing

    def run(self, sql: str, *, is_change: bool = True) -> sa.CursorResult[Any]:
        """Run a statement unchanged and without parameters: `%` and `:` have no special meaning."""
        if is_change:
            self.done.append(sql)
        return self.connection.exec_driver_sql(sql, execution_options={"no_parameters": True})

    def alter(self, table: TargetTable, *clauses: str) -> None:
        self.run(f"ALTER TABLE {self.ref(table)} {', '.join(clauses)}")

    def set_all(
        self, table: TargetTable, column: str, value: Any, type_: sa.types.TypeEngine[Any], where: str = ""
    ) -> None:
        """Set a quoted column in all rows, or in those of `where` (with a leading space)."""
        verb = f"UPDATE {self.ref(table)} SET {column}"
        if self.is_file:
            given = "?" if self.family == "sqlite" else f"CAST(? AS {self.spell(type_)})"
            self.connection.exec_driver_sql(f"{verb} = {given}{where}", (self.stored(value, type_),))
        else:
            sets = ", ".join([f"{verb} = {self.literal(value, type_)}", *self.unchanged(table)])
            self.run(f"{sets}{where}")

    def unchanged(self, table: TargetTable) -> list[str]:
        """Return assignments that keep columns which an UPDATE would set to the current time."""
        return [f"{one} = {one}" for one in map(self.quote, self.renewed(table))]

    def renewed(self, table: TargetTable) -> list[str]:
        return sorted(renewed_columns(self.connection, table.schema, table.name))

    def still_null(self, column: str) -> str:
        """Return the condition for rows that the source has now and whose quoted column has no value yet."""
        return " AND ".join(f"{one} IS NULL" for one in (column, *map(self.quote, filter(None, [self.end]))))

    def function(self, call: Callable[..., Any], *columns: str) -> str:
        """Return an expression that calls a function of Python with columns' values, in SQLite."""
        driver: Any = self.connection.connection.driver_connection
        driver.create_function("binlane_called", len(columns), call)
        return f"binlane_called({', '.join(map(self.quote, columns))})"

    def any_row(self, table: TargetTable, where: str) -> bool:
        return (
            self.run(f"SELECT 1 FROM {self.ref(table)} WHERE {where} LIMIT 1", is_change=False).first()
            is not None
        )
