"""Checkpoints in a table of a database, shared by the groups and workers that use it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError, StoreAway, held_by_another, identity_lock, number_of
from offsets.stores.sql_session import IdentityLock, cut_after, options_of
from offsets.types import Checkpoint, Mark, TopicPartition

TABLE = "binlane_checkpoints"
_FORMAT = 1
_AT_ONCE = 500

_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_table = sa.Table(
    TABLE,
    sa.MetaData(),
    # A hash, because group names have no length limit that a key of every database could store.
    sa.Column("id", sa.CHAR(32), primary_key=True),
    sa.Column("group_id", _TEXT, nullable=False),
    sa.Column("topic", _TEXT, nullable=False),
    sa.Column("partition_number", sa.Integer, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    sa.Column("entry", _TEXT, nullable=False),
    sa.Column("format", sa.SmallInteger, nullable=False),
    sa.Column("written_ms", sa.BigInteger, nullable=False),
    mysql_charset="utf8mb4",
)
_CHANGED = ("next_offset", "entry", "format", "written_ms")

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FileEntry)

Answer = TypeVar("Answer")


class SqlStore:
    """One group's rows of the table `binlane_checkpoints`, which is made if it does not exist.

    Everything uses one connection. With an identity, that connection also has the identity's lock. A worker
    that loses one loses the other, and writes nothing before it has both again."""

    name = "sql"
    title = "database"
    warnings: tuple[str, ...] = ()

    def __init__(
        self, url: sa.URL, group_id: str, *, identity: str | None = None, deadline: float = 10.0
    ) -> None:
        """Connects on first use. `url`: of PostgreSQL, MySQL, MariaDB or SQLite, with its driver.

        `identity`: no other process with this group may have it at the same time. `deadline`: seconds that
        connecting may take, and one transaction."""
        # The URL's driver options may contain another password.
        self.place = f"{url.set(query={}).render_as_string(hide_password=True)} ({TABLE})"
        self._group = group_id
        self._identity = identity
        self._engine = sa.create_engine(
            url, poolclass=sa.NullPool, hide_parameters=True, **options_of(url, deadline)
        )
        self._deadline = deadline
        self._file_lock = self._identity_lock = None
        if identity is not None and url.get_backend_name() == "sqlite":
            folder = Path(str(url.database)).absolute().parent
            self._file_lock = identity_lock(folder, group_id, identity)
        elif identity is not None:
            self._identity_lock = IdentityLock(number_of(group_id, identity), url.database or "")
        self._lock = threading.Lock()  # guards the connection
        self._connection: sa.Connection | None = None

    def open(self) -> None:
        self._within(lambda connection: None)

    def load_entries(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FileEntry]:
        """As `OwnStore.load_entries`. Raises StoreAway, or CheckpointError if a newer binlane wrote it."""
        ids = [self._id(partition) for partition in partitions]

        def read(connection: sa.Connection) -> dict[TopicPartition, FileEntry]:
            rows: list[sa.Row[Any]] = []
            for place in range(0, len(ids), _AT_ONCE):
                some = ids[place : place + _AT_ONCE]
                rows += connection.execute(sa.select(_table).where(_table.c.id.in_(some)))
            return self._entries(rows)

        return self._within(read) if ids else {}

    def entries(self) -> dict[TopicPartition, FileEntry]:
        mine = sa.select(_table).where(_table.c.group_id == self._group)
        return self._within(lambda connection: self._entries(connection.execute(mine).all()))

    def save(
        self,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        acknowledged: Mapping[TopicPartition, Mark] | None = None,
        windows: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """The same as `OwnStore.save`, in one transaction. Raises StoreAway."""
        marks, windows = acknowledged or {}, windows or {}
        now = int(time.time() * 1000)
        rows = []
        for partition, checkpoint in checkpoints.items():
            entry = FileEntry.of(checkpoint, marks.get(partition), windows.get(partition))
            rows.append(self._row(partition, entry, now))
        if rows:
            rows.sort(key=lambda row: str(row["id"]))  # so writers never wait for each other in a cycle
            self._within(lambda connection: connection.execute(_upsert(connection.dialect.name), rows))

    def prove(self) -> None:
        """Connect, make the table if needed, and write a row that is rolled back. Raises as `save`."""

        def write(connection: sa.Connection) -> None:
            row = self._row(TopicPartition("", 0), FileEntry(0), 0)
            with connection.begin_nested() as point:
                connection.execute(_upsert(connection.dialect.name), [row])
                point.rollback()

        self._within(write)

    def close(self) -> None:
        """Close the connection, which also releases the identity."""
        with self._lock:
            self._drop()
            if self._file_lock is not None:
                self._file_lock.release()

    def _within(self, work: Callable[[sa.Connection], Answer]) -> Answer:
        """Run `work` in its own transaction. Runs it again if the connection was lost since its last use."""
        with self._lock:
            is_used = self._connection is not None
            try:
                try:
                    return self._transaction(work)
                except sa.exc.DBAPIError as error:
                    if not (is_used and error.connection_invalidated):
                        raise
                    self._drop()
                    return self._transaction(work)
            except (sa.exc.SQLAlchemyError, OSError) as error:
                self._drop()
                told = " ".join(str(getattr(error, "orig", None) or error).split())
                raise StoreAway(
                    f"the checkpoints in {self.place} cannot be reached: {told}; check that the database is "
                    "up and that its user may create and write that table"
                ) from None

    def _transaction(self, work: Callable[[sa.Connection], Answer]) -> Answer:
        connection = self._connection or self._connect()
        # Later than the server's own timeout, which has a better message.
        with cut_after(connection, self._deadline + 1), connection.begin():
            return work(connection)

    def _connect(self) -> sa.Connection:
        connection = self._connection = self._engine.connect()
        with cut_after(connection, self._deadline + 1):
            if not self._alone(connection):
                self._drop()
                told = held_by_another(self.place, str(self._identity), self._group)
                if self._identity_lock is None or not self._identity_lock.was_had:
                    raise told
                raise StoreAway(f"{told}; or the database has not ended a lost connection of this worker yet")
            for again in (True, False):
                try:
                    with connection.begin():
                        _table.create(connection, checkfirst=True)
                    break
                except sa.exc.DBAPIError:  # another worker has just made it
                    if not again:
                        raise
            with connection.begin():
                there = {column["name"].lower() for column in sa.inspect(connection).get_columns(TABLE)}
        missing = sorted({column.name for column in _table.columns} - there)
        if missing:
            self._drop()
            raise CheckpointError(
                f"{self.place} is not a table of binlane: it has no column {', '.join(missing)}; rename it, "
                "or name another database in checkpoint.url"
            )
        return connection

    def _alone(self, connection: sa.Connection) -> bool:
        if self._file_lock is not None:
            return self._file_lock.take()
        if self._identity_lock is None:
            return True
        with connection.begin():
            return self._identity_lock.take(connection)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # not returned to a pool: its lock must end with it
            connection.close()

    def _entries(self, rows: Sequence[sa.Row[Any]]) -> dict[TopicPartition, FileEntry]:
        found = {}
        for row in rows:
            if row.group_id != self._group:  # some databases compare without case
                continue
            if row.format > _FORMAT:
                raise CheckpointError(
                    f"{self.place} was written by a newer binlane (format {row.format}; this one knows up to "
                    f"{_FORMAT}): run that version"
                )
            try:
                entry = _decoder.decode(row.entry)
            except msgspec.DecodeError as error:
                raise CheckpointError(
                    f"{self.place} has a damaged row for {row.topic} [{row.partition_number}] of group "
                    f"{self._group} ({error}): delete it to start at Kafka's committed offset"
                ) from None
            found[TopicPartition(row.topic, row.partition_number)] = entry
        return found

    def _row(self, partition: TopicPartition, entry: FileEntry, now: int) -> dict[str, Any]:
        return {
            "id": self._id(partition),
            "group_id": self._group,
            "topic": partition.topic,
            "partition_number": partition.partition,
            "next_offset": entry.offset,
            "entry": _encoder.encode(entry).decode(),
            "format": _FORMAT,
            "written_ms": now,
        }

    def _id(self, partition: TopicPartition) -> str:
        text = f"{self._group}\0{partition.topic}\0{partition.partition}"
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _upsert(dialect: str) -> sa.Insert:
    if dialect in ("mysql", "mariadb"):
        ours = mysql.insert(_table)
        return ours.on_duplicate_key_update({name: ours.inserted[name] for name in _CHANGED})
    insert = postgresql.insert if dialect == "postgresql" else sqlite.insert
    theirs = insert(_table)
    new = {name: getattr(theirs.excluded, name) for name in _CHANGED}
    return theirs.on_conflict_do_update(index_elements=["id"], set_=new)
