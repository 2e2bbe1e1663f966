"""A database session with time limits, and with an identity for as long as it lasts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

_LONGEST_IDLE_SECONDS = 600
"""MySQL and MariaDB: after this time without a request, the server ends a session, and its lock."""
_GHOST_SECONDS = 1.0


def options_of(url: sa.URL, deadline: float) -> dict[str, Any]:
    """Return arguments for `create_engine` that end connecting, and a statement, after `deadline` seconds.

    Settings in the URL itself take precedence."""
    seconds = max(1, round(deadline))
    match url.get_backend_name():
        case "sqlite":
            return {"connect_args": {"timeout": deadline, "check_same_thread": False}}
        case "postgresql":
            # The server notices within half a minute that a client's machine or network is gone.
            settings = {
                "statement_timeout": seconds * 1000,
                "idle_in_transaction_session_timeout": seconds * 1000,
                "tcp_keepalives_idle": 10,
                "tcp_keepalives_interval": 5,
                "tcp_keepalives_count": 3,
            }
            ours = " ".join(f"-c {name}={value}" for name, value in settings.items())
            theirs = url.query.get("options", ())
            arguments = {
                "connect_timeout": seconds,
                "application_name": "binlane",
                "keepalives_idle": 30,
                "tcp_user_timeout": 60_000,
            }
            kept = {name: value for name, value in arguments.items() if name not in url.query}
            # The later of two settings counts.
            kept["options"] = " ".join([ours, *([theirs] if isinstance(theirs, str) else theirs)])
            return {"connect_args": kept}
        case _:
            # The server gives up first: the session then continues, and reports what it waited for.
            settings = {"innodb_lock_wait_timeout": seconds, "wait_timeout": _LONGEST_IDLE_SECONDS}
            arguments = {
                "charset": "utf8mb4",
                "connect_timeout": seconds,
                "read_timeout": seconds + 1,
                "write_timeout": seconds + 1,
                "init_command": "SET " + ", ".join(f"SESSION {name}={of}" for name, of in settings.items()),
            }
            kept = {name: value for name, value in arguments.items() if name not in url.query}
            return {"connect_args": kept, "isolation_level": "READ COMMITTED"}


@contextlib.contextmanager
def cut_after(connection: sa.Connection, seconds: float) -> Iterator[None]:
    """Cut the connection if the block takes longer, which then raises as if the network were gone.

    Only where needed: libpq waits without limit for an answer, and `statement_timeout` depends on a working
    server. https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-TCP-USER-TIMEOUT"""
    if connection.dialect.name != "postgresql":
        yield
        return
    driver = connection.connection.driver_connection
    assert driver is not None  # it is connected
    ours = socket.socket(fileno=os.dup(driver.fileno()))

    def cut() -> None:
        with contextlib.suppress(OSError):  # it has just ended by itself
            ours.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        ours.close()


class IdentityLock:
    """The database's lock of an identity, held by one session of this process at a time."""

    def __init__(self, number: int, database: str) -> None:
        """`number`: 64 bits, signed. `database`: its name, because MySQL's locks belong to the server."""
        self._number = number
        own = hashlib.blake2b(f"{database}\0{number}".encode(), digest_size=16)
        self._name = f"binlane-{own.hexdigest()}"
        self._session: int | None = None  # the last one that had it

    @property
    def was_had(self) -> bool:
        """Whether this process has had it before."""
        return self._session is not None

    def take(self, connection: sa.Connection) -> bool:
        """Take it for as long as the connection's session lasts. False: another process has it.

        An earlier session of this process may still have it, because the server has not noticed the lost
        connection, or has not ended the session. The server is then asked to end it."""
        if not self._try(connection):
            if self._session is None or not self._is_end_asked(connection, self._session):
                return False
            end = time.monotonic() + _GHOST_SECONDS
            while not self._try(connection):
                if time.monotonic() > end:
                    return False
                time.sleep(0.05)
        self._session = connection.scalar(sa.text(_OWN_SESSION[_kind(connection)]))
        return True

    def _try(self, connection: sa.Connection) -> bool:
        if _kind(connection) == "postgresql":
            query = sa.text("SELECT pg_try_advisory_lock(:number)")
            return connection.scalar(query, {"number": self._number}) is True
        return connection.scalar(sa.text("SELECT GET_LOCK(:name, 0)"), {"name": self._name}) in (1, True)

    def _is_end_asked(self, connection: sa.Connection, session: int) -> bool:
        """Whether that session has the lock, and was asked to end."""
        try:
            if _kind(connection) == "postgresql":
                told = connection.execute(
                    sa.text(_END_HOLDER), {"session": session, "number": self._number}
                ).all()
                return bool(told)
            holder = connection.scalar(sa.text("SELECT IS_USED_LOCK(:name)"), {"name": self._name})
            if holder != session:
                return False
            connection.execute(sa.text(f"KILL {int(session)}"))
        except sa.exc.DBAPIError:
            return False
        return True


_OWN_SESSION = {"postgresql": "SELECT pg_backend_pid()", "mysql": "SELECT CONNECTION_ID()"}
_END_HOLDER = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid = :session
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND ((classid::bigint << 32) | objid::bigint) = CAST(:number AS bigint)
"""


def _kind(connection: sa.Connection) -> str:
    return "postgresql" if connection.dialect.name == "postgresql" else "mysql"
