"""Tables of the target that the handler or the server needs for itself: no source table is kept in them.

Else rows of a source table of that name would be read as marks, or its TRUNCATE would empty them; and a
record of a table `mysql.user` would make users of the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from handlers.sql.target.known_tables import TableName

REBUILDING = "_binlane_rebuilding"
"""Of SQLite and DuckDB: what a table is while it gets other columns."""
_MYSQL = frozenset(("mysql", "information_schema", "performance_schema", "sys"))
_OF_SERVER = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": frozenset(("pg_catalog", "pg_toast", "information_schema")),
    "duckdb": frozenset(("pg_catalog", "information_schema")),
}
"""Dialect -> schemas."""


@dataclass(frozen=True, slots=True)
class OwnTables:
    """`marks`: (schema, table) of the table of marks. A target's table without a schema is in that schema,
    too: in the worst case a table that could be kept is refused."""

    marks: TableName
    dialect: str
    lowers: bool = False
    """MySQL with lower_case_table_names."""

    @classmethod
    def of(cls, connection: sa.Connection, marks: sa.Table) -> OwnTables:
        """As the target finds the marks, which are there."""
        dialect = connection.dialect
        schema: str | None = marks.schema
        if schema is None and dialect.name == "postgresql":
            # Any schema of search_path.
            schema = connection.scalar(
                sa.text(
                    "SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
                    "WHERE c.relname = :name AND pg_table_is_visible(c.oid)"
                ),
                {"name": marks.name},
            )
        elif schema is None and dialect.name != "sqlite":
            schema = dialect.default_schema_name
        is_mysql = dialect.name in ("mysql", "mariadb")
        lowers = is_mysql and connection.exec_driver_sql("SELECT @@lower_case_table_names").scalar_one() != 0
        return cls((schema, marks.name), dialect.name, lowers)

    def folded(self, target: TableName) -> TableName:
        """The name that all names of a table have in common."""
        schema, table = target
        if self.lowers:
            return schema and schema.lower(), table.lower()
        if self.dialect in ("sqlite", "duckdb"):  # ASCII's letters alone
            return schema and schema.encode().lower().decode(), table.encode().lower().decode()
        return target

    def why_not(self, target: TableName) -> str:
        """Why no source table may be kept in this table of the target; empty: it may."""
        schema, table = target
        names = self._alike(schema or self.marks[0] or ""), self._alike(table)
        shown = ".".join(filter(None, target))
        if names == (self._alike(self.marks[0] or ""), self._alike(self.marks[1])):
            return (
                f"it would be kept in {shown}, where this handler writes down what it has applied; "
                "set table, schema or marks_table so that the two differ, or lead it to another handler"
            )
        if names[0] in _OF_SERVER.get(self.dialect, ()):
            return (
                f"it would be kept in {shown}, in a schema of the server itself; set schema, or match others"
            )
        if self.dialect in ("sqlite", "duckdb") and names[1] == REBUILDING:
            return f"it would be kept in {shown}, in which this handler rebuilds tables; set table"
        return ""

    def _alike(self, name: str) -> str:
        # SQLite's and DuckDB's names know no case, MySQL's on some systems; PostgreSQL's do, as they are
        # always quoted.
        return name if self.dialect == "postgresql" else name.casefold()


def insert_if_missing(dialect: str, table: sa.Table) -> Any:
    """A statement that leaves rows whose key is there. `table` has the column `shard`."""
    match dialect:
        case "postgresql" | "duckdb":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    # Not INSERT IGNORE, which would take other errors for warnings, too.
    return mysql.insert(table).on_duplicate_key_update(shard=table.c.shard)
