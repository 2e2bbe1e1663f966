"""The `sql` handler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import sqlalchemy as sa

from handlers.api import Batch, Change, Handler, HandlerContext, PartialFailure, Rejected, TargetUnavailable
from handlers.logs import get_logger
from handlers.progress import PassingOver
from handlers.sql.applying import TABLE_SECONDS, UNFIT, Applier
from handlers.sql.ddl.schemas import SchemaChanged
from handlers.sql.folding import ChangeFailed, has_ddl, parts
from handlers.sql.marks import Marks, Pending
from handlers.sql.naming import NameUnfit, Naming
from handlers.sql.options import SqlOptions
from handlers.sql.own_tables import check_rights
from handlers.sql.target.creating import ColumnsMissing, TableMissing
from handlers.sql.target.engine import check_url, make_engine
from handlers.sql.target.errors import DATABASE_ERRORS, ROWS, Fault, fault_of, told
from handlers.sql.target.known_tables import TableChanged, TableName
from handlers.sql.target.reflecting import KnownTables
from handlers.sql.writers.mysql import MySQLWriter
from handlers.sql.writers.postgresql import DuckDBWriter, PostgreSQLWriter
from handlers.sql.writers.writer import SQLiteWriter, Writer

log = get_logger("handlers.sql")

_ROUNDS = 6
"""Rounds of one call: create a table, add columns, reflect a table again, retry a deadlock, go row by row."""

_MOST_CONNECTIONS = 32
_WRITERS: dict[str, type[Writer]] = {
    "postgresql": PostgreSQLWriter,
    "mysql": MySQLWriter,
    "sqlite": SQLiteWriter,
    "duckdb": DuckDBWriter,
}


class DatabaseError(Exception):
    """A refusal by the database that no single change has caused."""


class SqlHandler(Handler):
    """Replicates the source's tables into PostgreSQL, MySQL, MariaDB, SQLite or DuckDB.

    Each change is applied exactly once. One transaction contains a batch's rows and its table's marks, which
    record how far the table is applied."""

    options_model: ClassVar[type[SqlOptions]] = SqlOptions

    def __init__(self, **options: Any) -> None:
        self._options = SqlOptions.model_validate(options)
        self._url = check_url(self._options.url)
        self._dialect = self._url.get_backend_name()
        self._naming = Naming.of(self._dialect, self._options.schema_, self._options.table)
        self._engine: sa.Engine | None = None
        self._applier: Applier | None = None
        self._passing_over: PassingOver | None = None

    @classmethod
    def stays(cls, options: Mapping[str, Any]) -> bool:
        """A file of DuckDB is open in one process, and one of SQLite has one writer at a time."""
        return str(options.get("url", "")).startswith(("duckdb", "sqlite"))

    def open(self, context: HandlerContext) -> None:
        """Connect, and create the table of marks if it does not exist.

        Raises DatabaseError if the target is unreachable or refuses."""
        self._engine = self._make_engine(context)
        marks = self._marks(context, self._engine)
        # If two workers start together, one creates the table. The other fails once and then finds it.
        for is_last in (False, True):
            try:
                with self._engine.begin() as connection:
                    marks.create(connection)
                break
            except DATABASE_ERRORS as error:
                if is_last:
                    self.close()
                    needs = marks.needs and f"; the table of marks is of an earlier release: {marks.needs}"
                    raise DatabaseError(f"{self._shown_target()}: {told(error)}{needs}") from error
        self._passing_over = PassingOver(context, log)
        self._applier = Applier(
            self._options, self._naming, marks, _WRITERS[self._dialect](), context.handles or (lambda _: True)
        )

    def handle(self, batch: Batch) -> None:
        """Apply the changes of the batch that the target does not have yet.

        Raises Rejected, TargetUnavailable and FormerTopic. Raises DatabaseError if a retry may succeed, or
        PartialFailure with it as the cause if earlier changes are applied."""
        for start, piece in parts(batch):
            try:
                self._handle(piece)
            except Rejected as error:
                # The parts before this one are applied, and the marks record that.
                raise Rejected(str(error), at=None if error.at is None else start + error.at) from error
            except PartialFailure as error:
                raise PartialFailure(start + error.done, error.cause) from error

    def _handle(self, batch: Batch) -> None:
        one_by_one = False
        for round_ in range(_ROUNDS):
            is_last = round_ == _ROUNDS - 1
            try:
                done = self._transaction(batch, one_by_one=one_by_one)
            except (TableMissing, ColumnsMissing) as missing:
                self._create(batch, missing)
            except SchemaChanged as changed:
                self._follow_schema(batch, changed)
            except TableChanged:
                continue  # it is reflected again
            except ChangeFailed as failed:
                is_ddl = has_ddl(batch.changes[failed.place : failed.place + 1])
                fault = self._judge(batch, failed.error, failed.place, waits=is_last and not is_ddl)
                # With order_by: row, a batch of another shard may change the conflicting row.
                if fault is Fault.REFERENCE or (fault is Fault.UNIQUE and batch.shard is not None):
                    self._apply_before(batch, failed)
                if fault in ROWS or (is_ddl and fault is Fault.STALE):
                    raise self._rejected(batch, failed) from failed.error
                if is_last:
                    raise DatabaseError(f"{batch.table}: {told(failed.error)}") from failed.error
            except UNFIT:
                one_by_one = True
            except DATABASE_ERRORS as error:
                fault = self._judge(batch, error, waits=is_last and not has_ddl(batch.changes))
                if is_last or (one_by_one and fault in ROWS):  # raised by the commit
                    raise DatabaseError(f"{batch.table}: {told(error)}") from error
                one_by_one = one_by_one or fault in ROWS
            else:
                self._tell(batch, done)
                return
        raise DatabaseError(f"{batch.table}: its table in the target keeps changing")

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
        self._engine = self._applier = None

    def check(self, context: HandlerContext) -> None:
        """Connect and check that the account has the rights that it needs. Raises DatabaseError."""
        engine = self._make_engine(context)
        marks = self._marks(context, engine)
        try:
            with engine.connect() as connection:
                lacking = check_rights(connection, self._options, self._naming)
                if not lacking and sa.inspect(connection).has_table(marks.table.name, marks.table.schema):
                    marks.look(connection)
                    kept = marks.kept(connection)
                    lacking = kept.owners(self._naming).met(kept.names())
                    tables = KnownTables()  # logs what it finds
                    for name in kept.names():
                        tables.get(connection, self._naming.target(*name.split(".", 1)))
        except DATABASE_ERRORS as error:
            raise DatabaseError(f"{self._shown_target()}: {told(error)}") from error
        finally:
            engine.dispose()
        if lacking:
            raise DatabaseError(f"{self._shown_target()}: {lacking}")

    # ---- one round

    @contextmanager
    def _begun(self) -> Iterator[tuple[sa.Connection, Applier]]:
        """Begin a transaction. Raises TargetUnavailable if it cannot connect: no change has caused that."""
        if self._engine is None or self._applier is None:
            raise RuntimeError("handle was called before open")
        try:
            connection = self._engine.connect()
        except DATABASE_ERRORS as error:
            raise TargetUnavailable(f"{self._shown_target()}: {told(error)}") from error
        with connection:
            try:
                with connection.begin():
                    yield connection, self._applier
            except Exception as error:
                # A session keeps the rights and the read-only state with which it began.
                fault = fault_of(getattr(error, "error", error))
                if fault in (Fault.UNAVAILABLE, Fault.TABLE):
                    connection.invalidate()
                if fault is Fault.UNAVAILABLE:
                    self._engine.dispose()
                raise

    def _transaction(self, batch: Batch, *, one_by_one: bool) -> Pending:
        altered: set[TableName] = set()
        try:
            with self._begun() as (connection, applier):
                return applier.apply(connection, batch, altered, one_by_one=one_by_one)
        except BaseException:
            # What it read and cached about the table may be rolled back.
            altered.add(self._naming.target(batch.database, batch.name))
            raise
        finally:
            # Forget after the commit as well: another thread may have reflected the table before it.
            if self._applier is not None:
                self._applier.tables.forget(*altered)

    def _apply_before(self, batch: Batch, failed: ChangeFailed) -> NoReturn:
        """Apply the changes before one that waits for a row of another lane, because that lane may wait for
        them. Raises DatabaseError, or PartialFailure with it as the cause."""
        error = DatabaseError(
            f"{batch.table}: {told(failed.error)}, at {_where(batch.changes[failed.place])}"
        )
        if failed.place == 0:
            raise error from failed.error
        self._handle(batch.part(0, failed.place))
        raise PartialFailure(failed.place, error) from failed.error

    def _tell(self, batch: Batch, done: Pending) -> None:
        if self._passing_over is not None:
            self._passing_over.made_anew(batch.table, done.made_anew)
            self._passing_over.passed_over(batch.table, len(batch.changes) - len(done.changes))

    def _create(self, batch: Batch, missing: TableMissing | ColumnsMissing) -> None:
        """Create what is missing in a separate transaction: DDL would end the batch's in MySQL."""
        try:
            with self._begun() as (connection, applier):
                applier.create(connection, batch, missing)
            applier.tables.forget(missing.name)
        except NameUnfit as error:
            raise Rejected(f"{batch.table}: {error}") from error
        except DATABASE_ERRORS as error:
            if self._judge(batch, error) not in (Fault.CONFLICT, Fault.UNIQUE):
                raise DatabaseError(
                    f"{batch.table}: {missing}, and creating it failed: {told(error)}"
                ) from error

    def _follow_schema(self, batch: Batch, changed: SchemaChanged) -> None:
        """Follow the new schema in a separate transaction: DDL would end the batch's in MySQL."""
        try:
            with self._begun() as (connection, applier):
                table = applier.follow_schema(connection, batch, changed)
            applier.tables.forget(table)
        except DATABASE_ERRORS as error:
            fault = self._judge(batch, error)
            what = f"{batch.table}: its columns changed in the source, and changing the target failed"
            if fault is Fault.DATA:
                place = next(number for number, one in enumerate(batch.changes) if one is changed.change)
                raise Rejected(f"{what}: {told(error)}, at {_where(changed.change)}", at=place) from error
            if fault is not Fault.CONFLICT:
                raise DatabaseError(f"{what}: {told(error)}") from error

    def _judge(self, batch: Batch, error: Exception, at: int | None = None, *, waits: bool = False) -> Fault:
        """Classify the error. Raises TargetUnavailable (if `waits`, for STALE as well) or DatabaseError."""
        if self._applier is not None:
            self._applier.tables.forget(self._naming.target(batch.database, batch.name))
        if not isinstance(error, DATABASE_ERRORS):
            return Fault.DATA
        fault = fault_of(error)
        if fault in (Fault.UNAVAILABLE, Fault.TABLE, Fault.LOCKED) or (waits and fault is Fault.STALE):
            reason, others_go_on = f"{self._shown_target()}: {told(error)}", fault is not Fault.UNAVAILABLE
            patience = TABLE_SECONDS if others_go_on else None
            raise TargetUnavailable(reason, retry_after=patience, others_go_on=others_go_on) from error
        if fault is Fault.OTHER:
            where = "" if at is None else f", at {_where(batch.changes[at])}"
            raise DatabaseError(f"{batch.table}: {_told(error)}{where}") from error
        return fault

    def _rejected(self, batch: Batch, failed: ChangeFailed) -> Rejected:
        if isinstance(failed.error, Rejected):
            return Rejected(str(failed.error), at=failed.place)
        target = ".".join(filter(None, self._naming.target(batch.database, batch.name)))
        change = batch.changes[failed.place]
        return Rejected(
            f"{batch.table} into {target}: {_told(failed.error)}, at {_where(change)}", at=failed.place
        )

    def _marks(self, context: HandlerContext, engine: sa.Engine) -> Marks:
        own = self._options
        names = own.marks_table, context.worker, context.handler
        return Marks(*names, engine.dialect, own.topic_again, period=own.period)

    def _make_engine(self, context: HandlerContext) -> sa.Engine:
        return make_engine(
            self._url,
            folder=context.folder,
            pool_size=self._options.pool_size or min(context.lanes, _MOST_CONNECTIONS),
            timeout=self._options.timeout,
        )

    def _shown_target(self) -> str:
        """The target, without its user and password."""
        url = self._url
        if self._dialect in ("sqlite", "duckdb"):
            return f"{'SQLite' if self._dialect == 'sqlite' else 'DuckDB'} file {url.database}"
        return f"{self._dialect} at {url.host or 'localhost'}{f':{url.port}' if url.port else ''}"


def _told(error: Exception) -> str:
    """The database's message and the notes that a writer has added."""
    return "; ".join([told(error), *getattr(error, "__notes__", ())])


def _where(change: Change) -> str:
    row = f", row {change.index}" if change.index else ""
    return f"{change.topic}[{change.partition}] offset {change.offset}{row}"
