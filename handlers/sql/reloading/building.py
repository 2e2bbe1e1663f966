"""Where a reload builds, locked for one reload at a time, and the marks that it reads and moves."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from handlers.progress import BEFORE_ALL, WHOLE, Partition, Place
from handlers.sql.naming import exact
from handlers.sql.own_tables import OwnTables, of_owner
from handlers.sql.target.known_tables import TableName

_DIGITS = 8
_OF_TABLE, _LONGEST_TABLE = "__binlane_reload_", 63
_OF_HANDLER, _LONGEST_HANDLER = "~reload_", 100
_OWN = re.compile(f"[0-9a-f]{{{_DIGITS}}}")
_REPLAYED = "@"
"""Part of the topic in a replayed dead letter's marks. Kafka's names never contain it. The original record is
in the table's own topic."""
Still = Callable[[], bool]
"""Returns whether the lock was never lost. It runs in the open transaction, if any, and then stays true until
the commit, because a session that ends earlier commits nothing."""


@dataclass(frozen=True, slots=True)
class Building:
    """The new table of a reload, and the handler's name of its marks."""

    table: TableName
    handler: str

    @classmethod
    def of(cls, target: TableName, handler: str, own: str | None = None) -> Building:
        """`own` are the digits that identify the reload; None draws random ones."""
        own = own or secrets.token_hex(_DIGITS // 2)
        schema, table = target
        return cls((schema, _table_beginning(table) + own), _handler_beginning(handler) + own)

    def remove(self, connection: sa.Connection, marks: TableMarks) -> None:
        """Drop the table first and then the marks, by which a later reload finds the table."""
        schema, name = self.table
        with connection.begin():
            table = sa.Table(exact(name), sa.MetaData(), schema=None if schema is None else exact(schema))
            table.drop(connection, checkfirst=True)
        with connection.begin():
            marks.remove(connection, self.handler)
            marks.forget(connection, self.table)


def remove_left(connection: sa.Connection, marks: TableMarks, target: TableName, handler: str) -> None:
    """Remove the tables and marks that reloads of the target's table have left. Their marks identify them: a
    table with only such a name stays. Call it while no other reload runs."""
    beginning = _handler_beginning(handler)
    with connection.begin():
        handlers = marks.handlers(connection, beginning)
    for own in (name.removeprefix(beginning) for name in handlers):
        if _OWN.fullmatch(own):
            Building.of(target, handler, own).remove(connection, marks)


def _table_beginning(table: str) -> str:
    """Return a prefix that is unique for the table and that no database would cut."""
    size = _LONGEST_TABLE - len(_OF_TABLE) - _DIGITS
    if len(table.encode()) > size:
        digest = sha256(table.encode()).hexdigest()[:8]
        table = table.encode()[: size - len(digest)].decode(errors="ignore") + digest
    return table + _OF_TABLE


def _handler_beginning(handler: str) -> str:
    """Return a prefix that is short enough for the column of the marks."""
    size = _LONGEST_HANDLER - len(_OF_HANDLER) - _DIGITS
    if len(handler) > size:
        digest = sha256(handler.encode()).hexdigest()[:8]
        handler = handler[: size - len(digest)] + digest
    return handler + _OF_HANDLER


class Mark(NamedTuple):
    place: Place
    topic_id: str | None


def places(marks: Mapping[Partition, Mark]) -> dict[Partition, Place]:
    return {each: mark.place for each, mark in marks.items()}


@dataclass(frozen=True, slots=True)
class TableMarks:
    """All methods use the caller's transaction. `handler` is the name in the marks."""

    marks: sa.Table
    worker: str
    source: str
    """As `database.table`."""

    def read(self, connection: sa.Connection, handler: str) -> dict[Partition, Mark]:
        """Return the furthest mark of each partition."""
        columns = self.marks.c
        found: dict[Partition, Mark] = {}
        rows = connection.execute(
            sa.select(
                columns.topic,
                columns.kafka_partition,
                columns.kafka_offset,
                columns.change_index,
                columns.topic_id,
            ).where(self._of(handler), columns.shard >= WHOLE, ~columns.topic.contains(_REPLAYED))
        )
        for topic, partition, offset, index, topic_id in rows:
            mark = Mark((offset, index), topic_id)
            known = found.get((topic, partition), mark)
            found[topic, partition] = max(known, mark, key=lambda one: one.place)
        return found

    def move(
        self,
        connection: sa.Connection,
        handler: str,
        there: Mapping[Partition, Mark],
        new: Mapping[Partition, Mark],
    ) -> None:
        """Move the marks from `there` to `new`. A mark that is further than `new` stays."""
        table = self.marks
        for each, mark in new.items():
            known = there.get(each, Mark(BEFORE_ALL, None))
            here = self._of(handler)
            here &= (table.c.topic == each[0]) & (table.c.kafka_partition == each[1])
            # The mark of the whole table covers its shards as well.
            connection.execute(table.delete().where(here, table.c.shard > WHOLE))
            offset, index = max(known.place, mark.place)
            moved = {
                "kafka_offset": offset,
                "change_index": index,
                "topic_id": mark.topic_id or known.topic_id,
            }
            connection.execute(table.update().where(here, table.c.shard == WHOLE).values(moved))

    def remove(self, connection: sa.Connection, handler: str) -> None:
        connection.execute(self.marks.delete().where(self._of(handler)))

    def forget(self, connection: sa.Connection, table: TableName) -> None:
        """Remove the owner of a target table that no longer exists."""
        key = OwnTables.of(connection, self.marks).key(table)
        connection.execute(self.marks.delete().where(of_owner(self.marks, key)))

    def handlers(self, connection: sa.Connection, beginning: str) -> list[str]:
        """Return all handlers of this table's marks whose name begins with `beginning`."""
        columns = self.marks.c
        mine = (columns.worker == self.worker) & (columns.source_table == self.source)
        named = columns.handler.startswith(beginning, autoescape=True)
        return list(connection.scalars(sa.select(columns.handler).where(mine, named).distinct()))

    def _of(self, handler: str) -> sa.ColumnElement[bool]:
        columns = self.marks.c
        return sa.and_(
            columns.worker == self.worker, columns.handler == handler, columns.source_table == self.source
        )


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
_MYSQL = ("SELECT GET_LOCK(:it, 0)", "SELECT RELEASE_LOCK(:it)", "SELECT IS_USED_LOCK(:it) = CONNECTION_ID()")
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
