"""What `binlane verify` reads from the source database."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from servers.postgres_server import PostgresServer

from handlers.sql.target.engine import check_url
from worker.verifying.source import Source

VALUES = {
    "double precision": "0.30000000000000004",
    "real": "16777.217",
    "interval": "-1 mons -2 days +03:00:00",
    "bytea[]": '{"\\\\x00ff"}',
}


def test_values_are_whole_whatever_the_databases_settings(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database("set_otherwise")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for setting in ("extra_float_digits = 0", "intervalstyle = sql_standard", "bytea_output = escape"):
            connection.exec_driver_sql(f"ALTER DATABASE set_otherwise SET {setting}")
        columns = ", ".join(
            f"CAST('{value}' AS {type_}) AS v{place}" for place, (type_, value) in enumerate(VALUES.items())
        )
        connection.exec_driver_sql(f"CREATE TABLE kept AS SELECT 1 AS id, {columns}")
    engine.dispose()
    source = Source(check_url(url), tmp_path)
    [table] = source.tables()
    [row] = source.rows(table, list(table.columns), {"id": False})
    source.close()
    assert row == (1, *VALUES.values())


def test_a_policy_hides_no_rows_without_an_error(postgres: PostgresServer, tmp_path: Path) -> None:
    url = sa.make_url(postgres.new_database("set_otherwise"))
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        for statement in (
            "CREATE TABLE kept AS SELECT 1 AS id, 'north' AS tenant UNION SELECT 2, 'south'",
            "ALTER TABLE kept ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY own ON kept USING (tenant = 'north')",
            "DROP ROLE IF EXISTS auditor",
            "CREATE ROLE auditor LOGIN PASSWORD 'one'",
            "GRANT SELECT ON kept TO auditor",
        ):
            connection.exec_driver_sql(statement)
        own = url.set(username="auditor", password="one").render_as_string(hide_password=False)
        source = Source(check_url(own), tmp_path)
        [table] = source.tables()
        with pytest.raises(sa.exc.ProgrammingError, match="row-level security"):
            list(source.rows(table, list(table.columns), {"id": False}))
        source.close()
        connection.exec_driver_sql("DROP OWNED BY auditor; DROP ROLE auditor")
    engine.dispose()
