"""Lock a table for one reload at a time. The session that will replace the rows has the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path

import sqlalchemy as sa

Still = Callable[[], bool]
"""Returns whether the lock was never lost. It runs in the open transaction, if any, and then stays true until
the commit, because a session that ends earlier commits nothing."""


class Busy(Exception):
    """Another session has the lock."""


@contextlib.contextmanager
def alone(connection: sa.Connection, what: str) -> Iterator[Still]:
    """Lock `what` as long as the connection's session lasts. SQLAlchemy may silently open a new session, so
    check with `Still`. The server does not end the session for being idle. Raises Busy."""
    digest = sha256(what.encode())
    dialect = connection.dialect.name
    if dialect not in ("postgresql", "mysql", "mariadb"):
        # Put the lock beside the real file, even if a link leads to it.
        file = Path(str(connection.engine.url.database)).resolve()
        with _file_lock(file.with_name(f"{file.name}.{digest.hexdigest()[:16]}.reload")) as still:
            yield still
        return
    is_postgresql = dialect == "postgresql"
    with connection.begin():
        for statement in _unhurried(connection):
            connection.exec_driver_sql(statement)
    number, name = int.from_bytes(digest.digest()[:8], signed=True), f"binlane {digest.hexdigest()[:40]}"
    statements = _POSTGRESQL if is_postgresql else _MYSQL
    with _session_lock(connection, *statements, number if is_postgresql else name) as still:
        yield still


# Take the lock, release it, and check whether this session has it.
_POSTGRESQL = (
    "SELECT pg_try_advisory_lock(:it)",
    "SELECT pg_advisory_unlock(:it)",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 "
    "AND pid = pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND ((classid::bigint << 32) | objid::bigint) = CAST(:it AS bigint)",
)
_MYSQL = (
    "SELECT GET_LOCK(:it, 0)",
    "SELECT RELEASE_LOCK(:it)",
    "SELECT IS_USED_LOCK(:it) = CONNECTION_ID()",
)
_IDLE_SECONDS = 8 * 3600
"""MySQL's default. It is limited because the lock of a dead machine must end as well."""


def _unhurried(connection: sa.Connection) -> list[str]:
    """Return statements that lift idle limits: reading idles, and catching up idles in a transaction."""
    if connection.dialect.name == "postgresql":
        # Set only existing ones: idle_session_timeout since 14, transaction_timeout since 17.
        names = "'idle_session_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout'"
        return [f"SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ({names})"]
    statements = [f"SET SESSION wait_timeout = {_IDLE_SECONDS}"]
    if getattr(connection.dialect, "is_mariadb", False):
        kinds = ("", "readonly_", "write_")
        statements += [f"SET SESSION idle_{kind}transaction_timeout = 0" for kind in kinds]
    return statements


@contextlib.contextmanager
def _session_lock(
    connection: sa.Connection, take: str, leave: str, look: str, it: int | str
) -> Iterator[Still]:
    def asked(statement: str) -> bool:
        with contextlib.nullcontext() if connection.in_transaction() else connection.begin():
            return bool(connection.scalar(sa.text(statement), {"it": it}))

    if not asked(take):
        raise Busy
    try:
        yield partial(asked, look)
    finally:
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            asked(leave)


@contextlib.contextmanager
def _file_lock(path: Path) -> Iterator[Still]:
    # The file stays: removing it could remove one that another process has just locked.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def still() -> bool:
        """Check that nobody has removed the file, because another process could then lock a new one."""
        try:
            return os.path.samestat(os.fstat(descriptor), path.stat())
        except FileNotFoundError:
            return False

    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        yield still
    finally:
        os.close(descriptor)
