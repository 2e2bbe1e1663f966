"""One reload of a table at a time: held by the session that will put the new rows in."""

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
"""Whether no other could have had it since. Within a transaction it is asked in that, and true until its
commit: a session that ends meanwhile commits nothing."""


class Busy(Exception):
    """Another session has it."""


@contextlib.contextmanager
def alone(connection: sa.Connection, what: str) -> Iterator[Still]:
    """Within it no other has `what`, as long as the connection's session lasts; SQLAlchemy begins another one
    without a word. The session is not ended for being idle. Raises Busy."""
    digest = sha256(what.encode())
    dialect = connection.dialect.name
    if dialect not in ("postgresql", "mysql", "mariadb"):
        # Beside the file itself, by whatever link it is reached.
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


# To take it, to leave it, and whether this very session has it.
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
"""MySQL's own default. Not for ever: of a machine that is gone the lock has to end, too."""


def _unhurried(connection: sa.Connection) -> list[str]:
    """It is idle while the topic is read, and in a transaction while it catches up."""
    if connection.dialect.name == "postgresql":
        # By what the server knows: idle_session_timeout since 14, transaction_timeout since 17.
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
    # The file stays: who removed it could remove one that another has just locked.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def still() -> bool:
        """Somebody may have removed it for all that, and another have locked a new one."""
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
