"""What an error of the database means for the batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import psycopg
import sqlalchemy as sa

__all__ = ["DATABASE_ERRORS", "Fault", "fault_of", "told"]

DATABASE_ERRORS = (sa.exc.SQLAlchemyError, psycopg.Error)
"""Batches go to psycopg directly, so its errors come bare."""


class Fault(Enum):
    UNAVAILABLE = "unavailable"
    """The database is gone, restarting, full or has no connection left: nothing is wrong with the batch."""
    CONFLICT = "conflict"
    """Another transaction was in the way; the same again may do."""
    STALE = "stale"
    """A table or a column is not, or no longer, what it was taken for."""
    DATA = "data"
    """The database refuses a value or a row."""
    UNIQUE = "unique"
    """Another row has the value of a unique key."""
    OTHER = "other"


# https://www.postgresql.org/docs/current/errcodes-appendix.html: classes, then single codes
_POSTGRESQL = {
    "08": Fault.UNAVAILABLE,
    "22": Fault.DATA,
    "23": Fault.DATA,
    "40": Fault.CONFLICT,
    "53": Fault.UNAVAILABLE,
    "57P": Fault.UNAVAILABLE,
    "58": Fault.UNAVAILABLE,
    "21000": Fault.DATA,  # ON CONFLICT met a row twice: keys that are equal to the database only
    "23505": Fault.UNIQUE,
    "25006": Fault.UNAVAILABLE,  # read only: a standby
    "54000": Fault.DATA,  # an index row is too large
    "42804": Fault.STALE,  # datatype mismatch
    "42P01": Fault.STALE,  # no such table
    "42703": Fault.STALE,  # no such column
    "42P10": Fault.STALE,  # no such unique key
    "3F000": Fault.STALE,  # no such schema
    "42P07": Fault.CONFLICT,  # another worker has just made the table
    "42P06": Fault.CONFLICT,  # ... the schema
    "42701": Fault.CONFLICT,  # ... the column
    "55P03": Fault.CONFLICT,  # lock not available
    "0A000": Fault.STALE,  # a prepared statement whose table has changed
}
# https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html,
# https://mariadb.com/kb/en/mariadb-error-code-reference/
_MYSQL = {
    **dict.fromkeys((1021, 1040, 1053, 1077, 1114, 1129, 1203, 1226, 1290, 1792, 1836), Fault.UNAVAILABLE),
    **dict.fromkeys((1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031), Fault.UNAVAILABLE),
    **dict.fromkeys((1007, 1020, 1050, 1060, 1205, 1213), Fault.CONFLICT),
    **dict.fromkeys((1049, 1054, 1136, 1146, 1412), Fault.STALE),
    **dict.fromkeys((1048, 1138, 1153, 1264, 1265, 1292, 1301, 1364, 1366, 1367, 1406, 1416), Fault.DATA),
    **dict.fromkeys((1441, 1451, 1452, 1525, 1690, 3140, 3141, 3156, 3819, 3903, 4025, 4038), Fault.DATA),
    **dict.fromkeys((1062, 1169, 1586), Fault.UNIQUE),
}
# https://www.sqlite.org/rescode.html, by the beginning of the extended code's name
_SQLITE = {
    "SQLITE_CONSTRAINT_UNIQUE": Fault.UNIQUE,
    "SQLITE_CONSTRAINT_PRIMARYKEY": Fault.UNIQUE,
    "SQLITE_CONSTRAINT": Fault.DATA,
    "SQLITE_MISMATCH": Fault.DATA,
    "SQLITE_TOOBIG": Fault.DATA,
    "SQLITE_BUSY": Fault.CONFLICT,
    "SQLITE_LOCKED": Fault.CONFLICT,
    "SQLITE_SCHEMA": Fault.STALE,
    "SQLITE_FULL": Fault.UNAVAILABLE,
    "SQLITE_IOERR": Fault.UNAVAILABLE,
    "SQLITE_CANTOPEN": Fault.UNAVAILABLE,
    "SQLITE_READONLY": Fault.UNAVAILABLE,
}


# https://duckdb.org/docs/stable/clients/python/reference/: the first class of the error's own that is here
_DUCKDB = {
    "IOException": Fault.UNAVAILABLE,
    "FatalException": Fault.UNAVAILABLE,
    "ConnectionException": Fault.UNAVAILABLE,
    "InterruptException": Fault.UNAVAILABLE,
    "TransactionException": Fault.CONFLICT,
    "CatalogException": Fault.STALE,
    "BinderException": Fault.STALE,
    "ConstraintException": Fault.DATA,
    "DataError": Fault.DATA,  # a conversion, or out of range
    "InvalidInputException": Fault.DATA,
}


def fault_of(error: BaseException) -> Fault:
    """What kind of fault a SQLAlchemy or psycopg error tells of."""
    if isinstance(error, sa.exc.TimeoutError) or getattr(error, "connection_invalidated", False):
        return Fault.UNAVAILABLE
    origin: Any = getattr(error, "orig", None) or error
    if isinstance(origin, psycopg.errors.PipelineAborted):
        return Fault.DATA  # the statement before it failed, and is met again row by row
    module = type(origin).__module__.partition(".")[0]
    judge = _BY_DRIVER.get(module)
    return Fault.OTHER if judge is None else judge(origin)


def told(error: BaseException) -> str:
    """The database's own words in one line, without the statement and its rows."""
    origin: Any = getattr(error, "orig", None) or error
    if isinstance(origin, psycopg.Error) and origin.diag.message_primary:
        parts = [origin.diag.message_primary]
        if origin.sqlstate == "23505" and origin.diag.message_detail:
            parts.append(origin.diag.message_detail)
        return " ".join(": ".join(parts).split())
    if type(origin).__module__.startswith("pymysql") and len(origin.args) == 2:
        return " ".join(f"{origin.args[1]} ({origin.args[0]})".split())
    return " ".join(str(origin).split())


def _of_postgresql(error: Any) -> Fault:
    state = error.sqlstate
    if state is None:
        # What failed without a code: connecting, or a connection that broke; values that cannot be sent.
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return Fault.UNAVAILABLE if is_lost else Fault.DATA
    for length in (5, 3, 2):
        fault = _POSTGRESQL.get(state[:length])
        if fault is not None:
            return fault
    return Fault.OTHER


def _of_mysql(error: Any) -> Fault:
    code = error.args[0] if error.args else None
    if not isinstance(code, int) or code == 0:
        # InterfaceError(0, ''): the connection was closed. Others: values that pymysql cannot write.
        return Fault.UNAVAILABLE if type(error).__name__ == "InterfaceError" else Fault.DATA
    return _MYSQL.get(code, Fault.OTHER)


def _of_sqlite(error: Any) -> Fault:
    name = getattr(error, "sqlite_errorname", None) or ""
    for beginning, fault in _SQLITE.items():
        if name.startswith(beginning):
            return fault
    if str(error).startswith(("no such table", "no such column", "table ")):
        return Fault.STALE
    if "duplicate column name" in str(error):
        return Fault.CONFLICT
    return Fault.OTHER if name else Fault.DATA


def _of_duckdb(error: Any) -> Fault:
    text = str(error)
    if "uplicate key" in text:
        return Fault.UNIQUE
    if "already exists" in text:
        return Fault.CONFLICT  # another worker has just made it
    names = (one.__name__ for one in type(error).__mro__)
    return next((_DUCKDB[name] for name in names if name in _DUCKDB), Fault.OTHER)


_BY_DRIVER: Mapping[str, Callable[[Any], Fault]] = {
    "psycopg": _of_postgresql,
    "pymysql": _of_mysql,
    "sqlite3": _of_sqlite,
    "duckdb": _of_duckdb,
    "_duckdb": _of_duckdb,
}
