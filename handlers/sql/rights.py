"""Check that the account has the rights that the handler needs, without changing anything."""

from __future__ import annotations

import sqlalchemy as sa

from handlers.sql.naming import Naming
from handlers.sql.options import SqlOptions


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
