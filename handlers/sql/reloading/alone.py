"""One reload of a table at a time: held by the session that will put the new rows in."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from hashlib import sha256

import sqlalchemy as sa

__all__ = ["Busy", "alone"]


class Busy(Exception):
    """Another session has it."""


@contextlib.contextmanager
def alone(connection: sa.Connection, what: str) -> Iterator[None]:
    """Within it no other has `what`. Ends with the session, too: what is done after that by another session
    is not covered. Raises Busy."""
    digest = sha256(what.encode())
    match connection.dialect.name:
        case "postgresql":
            number = int.from_bytes(digest.digest()[:8], signed=True)
            take, leave = "SELECT pg_try_advisory_lock(:it)", "SELECT pg_advisory_unlock(:it)"
            with _session_lock(connection, take, leave, number):
                yield
        case "mysql" | "mariadb":
            name = f"binlane {digest.hexdigest()[:40]}"
            with _session_lock(connection, "SELECT GET_LOCK(:it, 0)", "SELECT RELEASE_LOCK(:it)", name):
                yield
        case _:
            with _file_lock(f"{connection.engine.url.database}.{digest.hexdigest()[:16]}.reload"):
                yield


@contextlib.contextmanager
def _session_lock(connection: sa.Connection, take: str, leave: str, it: int | str) -> Iterator[None]:
    with connection.begin():
        if not connection.scalar(sa.text(take), {"it": it}):
            raise Busy
    try:
        yield
    finally:
        with contextlib.suppress(sa.exc.SQLAlchemyError), connection.begin():
            connection.execute(sa.text(leave), {"it": it})


@contextlib.contextmanager
def _file_lock(path: str) -> Iterator[None]:
    # The file stays: who removed it could remove one that another has just locked.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None
        yield
    finally:
        os.close(descriptor)
