"""What the errors of each database are taken for."""

from __future__ import annotations

import sqlite3

import duckdb
import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from handlers.sql.target.errors import Fault, fault_of, told

POSTGRESQL = {
    Fault.UNAVAILABLE: "08006 28P01 3D000 53100 53300 57P01 57P03 58030 25006 25P03 F0000",
    Fault.TABLE: "42501 58P01 XX001 XX002",
    Fault.LOCKED: "55P03",
    Fault.CONFLICT: "40001 40P01 42P07",
    Fault.STALE: "42703 42P01",
    Fault.DATA: "22001 23502 23514 44000 54000",
    Fault.UNIQUE: "23505 23P01",
    Fault.REFERENCE: "23001 23503",
    Fault.OTHER: "0A000 55000 57014 P0001 XX000",
}
MYSQL = {
    Fault.UNAVAILABLE: "1021 1040 1041 1045 1047 1053 1114 1130 1158 1159 1160 1161 1180 1206 1290 1297 1665 "
    "1698 1792 1820 1836 1862 2003 2006 2013 2055 3032 3100 3118 4151 9001",
    Fault.TABLE: "1036 1044 1142 1143 1194 1356 1449 1785 1932 3098 3750",
    Fault.LOCKED: "1205 3572",
    Fault.CONFLICT: "1213 3101",
    Fault.STALE: "1146 1054",
    Fault.DATA: "1048 1118 1153 1264 1267 1270 1271 1406 1526 3037 3140 3616 3617 3643 3773 3819 4025",
    Fault.UNIQUE: "1022 1062",
    Fault.REFERENCE: "1216 1217 1451 1452",
    Fault.OTHER: "1064 1317 1644 1969 3024",
}
SQLITE = {
    Fault.UNAVAILABLE: "FULL IOERR_WRITE CANTOPEN READONLY CORRUPT NOTADB NOMEM PERM",
    Fault.LOCKED: "BUSY BUSY_RECOVERY",
    Fault.CONFLICT: "LOCKED",
    Fault.STALE: "SCHEMA",
    Fault.DATA: "CONSTRAINT_NOTNULL CONSTRAINT_CHECK TOOBIG MISMATCH",
    Fault.UNIQUE: "CONSTRAINT_UNIQUE CONSTRAINT_PRIMARYKEY",
    Fault.REFERENCE: "CONSTRAINT_FOREIGNKEY",
    Fault.OTHER: "INTERNAL",
}


def of_sqlite(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError("told")
    error.sqlite_errorname = f"SQLITE_{name}"
    return error


def named(error: Exception) -> str:
    """The code by which a database names the error, or its text."""
    found = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    return str(found or error.args[0])


CASES: list[tuple[Exception, Fault]] = [
    *((psycopg.errors.lookup(code)(), fault) for fault, all_ in POSTGRESQL.items() for code in all_.split()),
    *(
        (pymysql.err.OperationalError(int(code), "told"), fault)
        for fault, all_ in MYSQL.items()
        for code in all_.split()
    ),
    *((of_sqlite(name), fault) for fault, all_ in SQLITE.items() for name in all_.split()),
    (psycopg.OperationalError("connection failed"), Fault.UNAVAILABLE),
    (pymysql.err.InterfaceError(0, ""), Fault.UNAVAILABLE),
    (pymysql.err.OperationalError(2013, "Lost connection during query (timed out)"), Fault.OTHER),
    (pymysql.err.InternalError(1030, 'Got error 28 "No space left on device"'), Fault.UNAVAILABLE),
    (pymysql.err.InternalError(1030, "Got error 139 from storage engine"), Fault.DATA),
    (pymysql.err.InternalError(1030, "Got error 127 from storage engine"), Fault.TABLE),
    (pymysql.err.ProgrammingError("nan can not be used with MySQL"), Fault.DATA),
    (duckdb.IOException("no space"), Fault.UNAVAILABLE),
]


@pytest.mark.parametrize(("error", "fault"), CASES, ids=[named(error) for error, _ in CASES])
def test_errors_are_told_apart(error: Exception, fault: Fault) -> None:
    wrapped = sa.exc.DBAPIError("INSERT 'hidden'", None, error)
    assert (fault_of(error), fault_of(wrapped)) == (fault, fault)
    assert "hidden" not in told(wrapped)


@pytest.mark.parametrize(
    ("sql", "value", "fault"),
    [
        ("INSERT INTO t (id) VALUES (?)", "1", Fault.UNIQUE),
        ("INSERT INTO t (id, code) VALUES (3, ?)", "one", Fault.UNIQUE),
        ("INSERT INTO child VALUES (?)", "9", Fault.REFERENCE),
        ("DELETE FROM t WHERE id = CAST(? AS int)", "2", Fault.REFERENCE),
        ("INSERT INTO t (id, must) VALUES (3, CAST(? AS int))", None, Fault.DATA),
        ("INSERT INTO t (id, must) VALUES (3, ?)", "-1", Fault.DATA),
        ("INSERT INTO t (id) VALUES (?)", "Duplicate key in a text", Fault.DATA),
        ("INSERT INTO t (id) VALUES (?)", "Violates foreign key constraint in a text", Fault.DATA),
        ("INSERT INTO t (id) VALUES (?)", "it already exists", Fault.DATA),
        ("INSERT INTO t (id) VALUES (?)", "99999999999", Fault.DATA),
        ("INSERT INTO gone VALUES (?)", "1", Fault.STALE),
        ("INSERT INTO t (gone) VALUES (?)", "1", Fault.STALE),
    ],
)
def test_errors_of_duckdb_are_told_apart_by_no_value(sql: str, value: str | None, fault: Fault) -> None:
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE t (id int PRIMARY KEY, code text UNIQUE, must int DEFAULT 1 NOT NULL CHECK (must > 0))"
    )
    connection.execute("INSERT INTO t VALUES (1, 'one', 1), (2, 'Duplicate key', 1)")
    connection.execute("CREATE TABLE child (id int REFERENCES t)")
    connection.execute("INSERT INTO child VALUES (2)")
    with pytest.raises(duckdb.Error) as raised:
        connection.execute(sql, [value])
    assert fault_of(raised.value) is fault


def test_an_unknown_error_that_cost_the_connection_is_an_outage() -> None:
    error = sa.exc.DBAPIError("x", None, pymysql.err.InternalError(1105, "?"), connection_invalidated=True)
    assert fault_of(error) is Fault.UNAVAILABLE
    assert fault_of(error.orig or error) is Fault.OTHER
