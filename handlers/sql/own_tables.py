"""Tables of the target that the handler or the server needs: no source table may be replicated to them.

Otherwise rows of a source table with that name would be read as marks, or its TRUNCATE would empty them. A
record of a table `mysql.user` would create users in the target. Also checks that the account has the rights
that the handler needs, without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from handlers.sql.naming import Naming
from handlers.sql.options import SqlOptions
from handlers.sql.target.known_tables import TableName

REBUILDING = "_binlane_rebuilding"
"""Temporary name of a table that is rebuilt in SQLite or DuckDB."""
_MYSQL = frozenset(("mysql", "information_schema", "performance_schema", "sys"))
_OF_SERVER = {
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "postgresql": frozenset(("pg_catalog", "pg_toast", "information_schema")),
    "duckdb": frozenset(("pg_catalog", "information_schema")),
}
"""Dialect -> schemas of the server."""


@dataclass(frozen=True, slots=True)
class OwnTables:
    """`marks` is (schema, table) of the table of marks. A target table without a schema counts as in that
    schema, so at worst an allowed table is refused."""

    marks: TableName
    dialect: str
    lowers: bool = False
    """Whether MySQL's lower_case_table_names is not 0."""

    @classmethod
    def of(cls, connection: sa.Connection, marks: sa.Table) -> OwnTables:
        """Return the tables for an existing table of marks, as the target resolves its name."""
        dialect = connection.dialect
        schema: str | None = marks.schema
        if schema is None and dialect.name == "postgresql":
            # The table may be in any schema of search_path.
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
        """Return the same name for all names of one table."""
        schema, table = target
        if self.lowers:
            return schema and schema.lower(), table.lower()
        if self.dialect in ("sqlite", "duckdb"):  # only ASCII letters
            return schema and schema.encode().lower().decode(), table.encode().lower().decode()
        return target

    def why_not(self, target: TableName) -> str:
        """Return why no source table may use this target table; empty if one may."""
        schema, table = target
        names = self._alike(schema or self.marks[0] or ""), self._alike(table)
        shown = ".".join(filter(None, target))
        if names == (self._alike(self.marks[0] or ""), self._alike(self.marks[1])):
            return (
                f"its rows would be in {shown}, where this handler stores what it has applied; set table, "
                "schema or marks_table to make the two differ, or route it to another handler"
            )
        if names[0] in _OF_SERVER.get(self.dialect, ()):
            return (
                f"its rows would be in {shown}, in a schema of the server itself; set schema, or change match"
            )
        if self.dialect in ("sqlite", "duckdb") and names[1] == REBUILDING:
            return f"its rows would be in {shown}, in which this handler rebuilds tables; set table"
        return ""

    def _alike(self, name: str) -> str:
        # Names ignore case in SQLite and DuckDB, and in MySQL on some systems. PostgreSQL's do not, because
        # they are always quoted.
        return name if self.dialect == "postgresql" else name.casefold()


def insert_if_missing(dialect: str, table: sa.Table) -> Any:
    """Return an INSERT that skips rows whose key exists. `table` must have the column `shard`."""
    match dialect:
        case "postgresql" | "duckdb":
            return postgresql.insert(table).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(table).on_conflict_do_nothing()
    # Not INSERT IGNORE, which would also turn other errors into warnings.
    return mysql.insert(table).on_duplicate_key_update(shard=table.c.shard)


def check_rights(connection: sa.Connection, options: SqlOptions, naming: Naming) -> str | None:
    """Return a sentence about a missing right, or None if this check finds none.

    It does not check rights on existing tables. Raises SQLAlchemy's errors."""
    match connection.dialect.name:
        case "postgresql":
            return _postgresql(connection, options, naming)
        case "sqlite" | "duckdb":
            return None  # connecting has opened the file for writing
    return _mysql(connection, options)


def _postgresql(connection: sa.Connection, options: SqlOptions, naming: Naming) -> str | None:
    database, schema, may_create, is_standby = connection.exec_driver_sql(
        "SELECT current_database(), current_schema(), "
        "has_database_privilege(current_database(), 'CREATE'), pg_is_in_recovery()"
    ).one()
    if is_standby:
        return "it is a standby, which accepts no writes"
    if options.create and "{" in (naming.schema or "") and not may_create:
        return (
            f"the account may not create schemas; GRANT CREATE ON DATABASE {database}, or set schema to one "
            "that exists"
        )
    marks_schema, _, marks = options.marks_table.rpartition(".")
    home = marks_schema or schema
    if home is None or not sa.inspect(connection).has_schema(home):
        return f"no schema {home or 'on the search path'} exists for the table {marks}"
    if not sa.inspect(connection).has_table(marks, schema=home) and not _schema_right(connection, home):
        return f"the account may not create the table {marks}; GRANT CREATE ON SCHEMA {home}"
    named = naming.schema
    if options.create and named and "{" not in named and sa.inspect(connection).has_schema(named):
        return None if _schema_right(connection, named) else f"GRANT CREATE ON SCHEMA {named} is missing"
    return None


def _schema_right(connection: sa.Connection, schema: str) -> bool:
    found = connection.execute(sa.text("SELECT has_schema_privilege(:schema, 'CREATE')"), {"schema": schema})
    return bool(found.scalar_one())


def _mysql(connection: sa.Connection, options: SqlOptions) -> str | None:
    if connection.exec_driver_sql("SELECT @@read_only").scalar_one() not in (0, "OFF"):  # MariaDB 12: OFF
        return "it is read only"
    role = connection.exec_driver_sql("SELECT CURRENT_ROLE()").scalar_one()
    if role not in (None, "NONE"):
        return None  # a role's rights are listed elsewhere
    grantee = """CONCAT("'", REPLACE(CURRENT_USER(), '@', "'@'"), "'")"""
    tables = ("user_privileges", "schema_privileges", "table_privileges")
    rights = {
        str(right).upper()
        for right in connection.exec_driver_sql(
            " UNION ".join(
                f"SELECT privilege_type FROM information_schema.{table} WHERE grantee = {grantee}"
                for table in tables
            )
        ).scalars()
    }
    needed = ["SELECT", "INSERT", "UPDATE", "DELETE", *(["CREATE", "ALTER"] if options.create else [])]
    lacking = [right for right in needed if right not in rights]
    return f"the account lacks the right to {', '.join(lacking)}" if lacking else None
