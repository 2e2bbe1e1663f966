"""Classify errors of the database by what they mean for the batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import psycopg
import sqlalchemy as sa

DATABASE_ERRORS = (sa.exc.SQLAlchemyError, psycopg.Error)
"""The PostgreSQL writer calls psycopg directly, so SQLAlchemy does not wrap those errors."""


class Fault(Enum):
    UNAVAILABLE = "unavailable"
    """The database refuses logins or is down, restarting, read-only, full or busy. All its tables wait."""
    TABLE = "table"
    """The account lacks a right on the table, or the table is damaged. It waits, others continue."""
    LOCKED = "locked"
    """Another session's lock lasted longer than the timeout. The table waits, others continue."""
    CONFLICT = "conflict"
    """Another transaction conflicted. A retry may succeed."""
    STALE = "stale"
    """A table or a column differs from the cached one."""
    DATA = "data"
    """The database refuses a value or a row."""
    UNIQUE = "unique"
    """Another row has the value of a unique key."""
    REFERENCE = "reference"
    """The row that a foreign key refers to is missing, or rows still refer to a deleted one."""
    OTHER = "other"
    """Any other error. The table's `retry` rule applies."""


ROWS = (Fault.DATA, Fault.UNIQUE, Fault.REFERENCE)
"""Faults that single rows cause."""


# https://www.postgresql.org/docs/current/errcodes-appendix.html: classes, then single codes
_POSTGRESQL = {
    **dict.fromkeys(("08", "28", "3D", "53", "57P", "58", "F0"), Fault.UNAVAILABLE),
    "25006": Fault.UNAVAILABLE,  # read-only: a standby
    "25P03": Fault.UNAVAILABLE,  # the session idled in a transaction because this process stood still
    # No right, no replica identity for a published table; its file is missing, it or its index is damaged.
    **dict.fromkeys(("42501", "55000", "58P01", "XX001", "XX002"), Fault.TABLE),
    "55P03": Fault.LOCKED,
    **dict.fromkeys(("57014", "25P04"), Fault.OTHER),  # a statement, a transaction: slow or cancelled
    "40": Fault.CONFLICT,
    # Another worker has just created the table, the schema or the column.
    **dict.fromkeys(("42P07", "42P06", "42701"), Fault.CONFLICT),
    # Another type; no such table, column, unique key, schema; a prepared statement whose table has changed.
    **dict.fromkeys(("42804", "42P01", "42703", "42P10", "3F000", "0A000"), Fault.STALE),
    **dict.fromkeys(("22", "23", "44"), Fault.DATA),  # 44: WITH CHECK OPTION of a view
    "21000": Fault.DATA,  # ON CONFLICT met a row twice: keys that only the database treats as equal
    "54000": Fault.DATA,  # an index row is too large
    **dict.fromkeys(("23505", "23P01"), Fault.UNIQUE),  # a unique key, an exclusion constraint
    **dict.fromkeys(("23001", "23503"), Fault.REFERENCE),
}
# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html,
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_MYSQL = {
    # Disk, memory, connections, locks.
    **dict.fromkeys((1021, 1026, 1037, 1040, 1041, 1114, 1129, 1180, 1203, 1226, 1297), Fault.UNAVAILABLE),
    # Starting, stopping, read-only, log not writable, not primary, not in the cluster; session ended.
    **dict.fromkeys((1047, 1053, 1077, 1206, 1290, 1665, 1792, 1836, 1874, 1927), Fault.UNAVAILABLE),
    **dict.fromkeys((1158, 1159, 1160, 1161, 3032, 3100, 3169, 4031, 9001), Fault.UNAVAILABLE),
    # The account: unknown, its password changed or expired, locked, from another host.
    **dict.fromkeys((1045, 1130, 1698, 1820, 1862, 3118, 3955, 4151), Fault.UNAVAILABLE),
    # No right, a missing definer, a table without a key on a server that requires one.
    **dict.fromkeys((1044, 1142, 1143, 1227, 1356, 1370, 1449, 1785, 3098, 3750), Fault.TABLE),
    # Read-only, damaged, or its file is missing.
    **dict.fromkeys((1016, 1034, 1036, 1194, 1195, 1712, 1812, 1814, 1877, 1932), Fault.TABLE),
    **dict.fromkeys((1205, 1684, 3572), Fault.LOCKED),  # 1684: a statement of DDL alters the table
    **dict.fromkeys((1007, 1020, 1050, 1060, 1213, 3101), Fault.CONFLICT),
    **dict.fromkeys((1049, 1054, 1136, 1146, 1412), Fault.STALE),
    **dict.fromkeys((1048, 1118, 1138, 1153, 1264, 1265, 1292, 1301, 1364, 1366, 1367, 1406), Fault.DATA),
    **dict.fromkeys((1267, 1270, 1271, 1416, 1441, 1525, 1526, 1690, 3037, 3140, 3141, 3156), Fault.DATA),
    **dict.fromkeys((3616, 3617, 3643, 3773, 3819, 3903, 4025, 4038), Fault.DATA),  # 3037, 36..: spatial
    **dict.fromkeys((1022, 1062, 1169, 1586, 1859), Fault.UNIQUE),
    **dict.fromkeys((1216, 1217, 1451, 1452), Fault.REFERENCE),
}
_MYSQL_ENGINE = {5: Fault.UNAVAILABLE, 28: Fault.UNAVAILABLE, 30: Fault.UNAVAILABLE, 139: Fault.DATA}
"""N of error 1030, "Got error N from storage engine": disk failed, full or read-only; a row too large."""
# https://www.sqlite.org/rescode.html: the first prefix of the extended code's name that matches
_SQLITE = {
    "SQLITE_CONSTRAINT_UNIQUE": Fault.UNIQUE,
    "SQLITE_CONSTRAINT_PRIMARYKEY": Fault.UNIQUE,
    "SQLITE_CONSTRAINT_FOREIGNKEY": Fault.REFERENCE,
    "SQLITE_CONSTRAINT": Fault.DATA,
    "SQLITE_MISMATCH": Fault.DATA,
    "SQLITE_TOOBIG": Fault.DATA,
    "SQLITE_BUSY": Fault.LOCKED,
    "SQLITE_LOCKED": Fault.CONFLICT,
    "SQLITE_SCHEMA": Fault.STALE,
    **dict.fromkeys(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM"), Fault.UNAVAILABLE),
    **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_READONLY"), Fault.UNAVAILABLE),
    **dict.fromkeys(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_PROTOCOL"), Fault.UNAVAILABLE),
}
# https://duckdb.org/docs/stable/clients/python/reference/: the first base class of the error that is listed
_DUCKDB = {
    "IOException": Fault.UNAVAILABLE,
    "FatalException": Fault.UNAVAILABLE,
    "ConnectionException": Fault.UNAVAILABLE,
    "InterruptException": Fault.UNAVAILABLE,
    "PermissionException": Fault.UNAVAILABLE,
    "TransactionException": Fault.CONFLICT,
    "CatalogException": Fault.STALE,
    "BinderException": Fault.STALE,
    "ConstraintException": Fault.DATA,
    "DataError": Fault.DATA,  # a failed conversion, or a value out of range
    "InvalidInputException": Fault.DATA,
}
_DUCKDB_CONSTRAINTS = {
    "Constraint Error: Duplicate key ": Fault.UNIQUE,
    "Constraint Error: Violates foreign key constraint ": Fault.REFERENCE,
}
"""All constraints have one error class, so the text decides."""


def fault_of(error: BaseException) -> Fault:
    """Classify a SQLAlchemy or psycopg error of an open connection.

    Callers treat every error while connecting as UNAVAILABLE."""
    if isinstance(error, sa.exc.TimeoutError):
        return Fault.UNAVAILABLE
    origin: Any = getattr(error, "orig", None) or error
    if isinstance(origin, psycopg.errors.PipelineAborted):
        return Fault.DATA  # an earlier statement failed, and fails again row by row
    judge = _BY_DRIVER.get(type(origin).__module__.partition(".")[0])
    fault = None if judge is None else judge(origin)
    if fault is None:
        return Fault.UNAVAILABLE if getattr(error, "connection_invalidated", False) else Fault.OTHER
    return fault


def told(error: BaseException) -> str:
    """Return the database's message as one line, without the statement and its rows."""
    origin: Any = getattr(error, "orig", None) or error
    if isinstance(origin, psycopg.Error) and origin.diag.message_primary:
        parts = [origin.diag.message_primary]
        if origin.sqlstate == "23505" and origin.diag.message_detail:
            parts.append(origin.diag.message_detail)
        return " ".join(": ".join(parts).split())
    if type(origin).__module__.startswith("pymysql") and len(origin.args) == 2:
        return " ".join(f"{origin.args[1]} ({origin.args[0]})".split())
    return " ".join(str(origin).split())


def _of_postgresql(error: Any) -> Fault | None:
    state = error.sqlstate
    if state is None:
        # Errors without a code: a failed or broken connection, or values that cannot be sent.
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Fault.UNAVAILABLE if is_lost else Fault.DATA
    if state == "42501" and error.diag.source_function == "ExecWithCheckOptions":
        return Fault.DATA  # row-level security refuses this row
    if state == "54000" and error.diag.source_file in ("varsup.c", "multixact.c"):
        return Fault.UNAVAILABLE  # its transaction ids are exhausted until a VACUUM
    known = next((_POSTGRESQL[state[:length]] for length in (5, 3, 2) if state[:length] in _POSTGRESQL), None)
    if state in ("0A000", "55000") and error.diag.source_file not in _OF_TABLES:
        known = None
    is_of_value = known in (None, Fault.STALE) and _OF_PARAMETER.search(error.diag.context or "")
    return Fault.DATA if is_of_value else known


def _of_mysql(error: Any) -> Fault | None:
    code, text = error.args if len(error.args) == 2 else (0, "")
    if not isinstance(code, int) or code == 0:
        # InterfaceError(0, '') is a closed connection. Others are values that pymysql cannot write.
        return Fault.UNAVAILABLE if type(error).__name__ == "InterfaceError" else Fault.DATA
    if code == 1030:
        found = re.search(r"error (\d+)", str(text))
        return _MYSQL_ENGINE.get(int(found[1]) if found else 0, Fault.TABLE)
    if 2000 <= code < 3000:  # the client's own codes
        # A timeout is a slow statement. If the server hangs, the next connect fails.
        return Fault.OTHER if "(timed out)" in str(text) else Fault.UNAVAILABLE
    return _MYSQL.get(code)


def _of_sqlite(error: Any) -> Fault | None:
    name = getattr(error, "sqlite_errorname", None) or ""
    for beginning, fault in _SQLITE.items():
        if name.startswith(beginning):
            return fault
    if str(error).startswith(("no such table", "no such column", "table ")):
        return Fault.STALE
    if "duplicate column name" in str(error):
        return Fault.CONFLICT
    return None if name else Fault.DATA


def _of_duckdb(error: Any) -> Fault | None:
    # Only the beginning of the text is fixed. The rest may contain values.
    for beginning, fault in _DUCKDB_CONSTRAINTS.items():
        if str(error).startswith(beginning):
            return fault
    names = (one.__name__ for one in type(error).__mro__)
    return next((_DUCKDB[name] for name in names if name in _DUCKDB), None)


_OF_TABLES = ("plancache.c", "rewriteHandler.c", "execReplication.c")
"""From other files these codes refuse one row, such as one in a compressed partition."""
_OF_PARAMETER = re.compile(r"\$\d+ = .*\Z")
"""The end of an error's context if it is about a value, in all languages. Its code varies (hstore, ltree)."""
_BY_DRIVER: Mapping[str, Callable[[Any], Fault | None]] = {
    "psycopg": _of_postgresql,
    "pymysql": _of_mysql,
    "sqlite3": _of_sqlite,
    "duckdb": _of_duckdb,
    "_duckdb": _of_duckdb,
}
