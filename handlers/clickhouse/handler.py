"""The `clickhouse` handler: a row for each change, under a version of the source's order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, ClassVar

from structlog.stdlib import BoundLogger

from handlers.api import Batch, Change, Handler, HandlerContext, Rejected, Row
from handlers.clickhouse.client import ClickHouseClient
from handlers.clickhouse.emptying import empty
from handlers.clickhouse.moved_rows import check_moved
from handlers.clickhouse.options import ClickHouseOptions
from handlers.clickhouse.rights import check_server
from handlers.clickhouse.tables import OWN_COLUMNS, Table, Tables, TableUnfit
from handlers.clickhouse.types import column_type
from handlers.clickhouse.writing import lines_of, with_held_rows, write
from handlers.http.parts import RowRefused
from handlers.logs import get_logger
from handlers.mysql.ddl import (
    AddColumn,
    ChangeKey,
    DropColumn,
    LoseRows,
    ModifyColumn,
    RenameColumn,
    TableName,
)
from handlers.mysql.emptying import WholeTables
from handlers.mysql.statement_of_change import operations_of
from handlers.options.templates import MissingValue, Template, place_of
from handlers.progress.last_states import State, last_states, partition_of
from handlers.progress.memory import LookAgain, Memory, remembering, until_remembered
from handlers.progress.new_columns import new_columns
from handlers.progress.passing_over import PassingOver
from handlers.progress.versions import BeyondVersions, Versions, versions_of

__all__ = ["ClickHouseHandler", "ColumnsChanged"]

log = get_logger("handlers.clickhouse")

_KEY = Template("{key}")
_LEFT: Mapping[type, str] = {
    AddColumn: "a new column comes with the first row that has it, rows that are there are left as they are",
    DropColumn: "a dropped column stays, and is NULL in new rows",
    RenameColumn: "a renamed column gets a new column beside the one with its former name",
    ModifyColumn: "a column keeps its type",
    ChangeKey: "a table keeps its sorting key",
    LoseRows: "rows of partitions stay",
}
"""Of statements that are not followed."""


class ColumnsChanged(Exception):
    """What was made for other columns than there are now was refused."""


class ClickHouseHandler(Handler):
    """Writing a batch twice is the same as once: of a row's versions the highest is the row."""

    options_model: ClassVar[type[ClickHouseOptions]] = ClickHouseOptions

    def __init__(self, **options: Any) -> None:
        self._options = ClickHouseOptions.model_validate(options)
        self._client: ClickHouseClient | None = None
        self._tables: Tables | None = None
        self._passing_over: PassingOver | None = None
        self._log = log
        self._whole_tables = self._telling(log, lambda _: True)

    def open(self, context: HandlerContext) -> None:
        """Connects when it is first needed: a server that is down then keeps no worker from starting.

        Raises OSError for a certificate that cannot be read.
        """
        self._client = ClickHouseClient(self._options, context.folder, context.lanes)
        self._tables = Tables(self._client, self._options)
        self._passing_over = PassingOver(context, log)
        self._log = log.bind(handler=context.handler)
        self._whole_tables = self._telling(self._log, context.handles or (lambda _: True))

    def handle(self, batch: Batch) -> None:
        """Raises Rejected, TargetUnavailable, FormerTopic, TableUnfit, RowMoved, ColumnsChanged,
        RefusedByServer."""
        places = range(len(batch.changes))
        for is_statement, some in groupby(places, lambda at: batch.changes[at].op in ("ddl", "truncate")):
            if not is_statement:
                until_remembered(partial(self._write, batch, list(some)))
                continue
            for at in some:
                change = batch.changes[at]
                self._tell_left(change, batch)
                for table in self._whole_tables.to_empty(change, batch):
                    self._empty(table, change, batch)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._tables = None

    def check(self, context: HandlerContext) -> None:
        """Which server it is. Raises ServerUnfit, TargetUnavailable, RefusedByServer, and OSError for a
        certificate that cannot be read."""
        client = ClickHouseClient(self._options, context.folder, 1)
        try:
            check_server(client, self._options.url)
        finally:
            client.close()

    def _opened(self) -> tuple[ClickHouseClient, Tables]:
        if self._client is None or self._tables is None:
            raise RuntimeError("handle was called before open")
        return self._client, self._tables

    # ---- versions

    def _versions(self, memory: Memory, batch: Batch) -> Versions:
        return versions_of(batch, memory.topics, base=self._options.epoch, again=self._options.topic_again)

    # ---- rows

    def _write(self, batch: Batch, places: Sequence[int]) -> None:
        """Raises LookAgain, with nothing written, and as `handle`."""
        client, tables = self._opened()
        table = tables.find(batch.database, batch.name)
        former = Memory() if table is None else table.memory
        versions = self._versions(former, batch)
        memory = remembering(
            former,
            table=batch.table,
            topics=versions.topics,
            epoch=self._options.epoch,
            partitions={partition_of(batch, change) for change in batch.changes},
        )
        states = list(last_states(batch, versions.of, _checked_key, places).values())
        key = batch.changes[places[0]].key_columns or ()
        lacking = _lacking(() if table is None else {*table.columns, *table.computed}, states, key)
        if table is None:
            tables.make(batch.database, batch.name, lacking, key, memory)
            raise LookAgain(f"{batch.table} has a table now")
        if lacking:
            tables.add(table, lacking)
            raise LookAgain(f"{table.database}.{table.name} has other columns now")
        _check_key(table, batch, key)
        tables.remember(table, memory)
        if self._passing_over is not None:
            self._passing_over.made_anew(batch.table, versions.made_anew)
        try:
            if len(memory.partitions) > 1:
                check_moved((client, tables, table), batch, states, base=self._options.epoch)
            most = self._options.max_bytes
            for some, held in with_held_rows(client, table, states, most):
                write(client, table, lines_of(table, some, held), most)
        except RowRefused as error:
            now = tables.find(batch.database, batch.name)
            if now is None or now.columns != table.columns:
                changed = f"{table.database}.{table.name}: somebody has changed its columns meanwhile"
                raise ColumnsChanged(f"{changed}; tried again, with them") from None
            told = place_of(batch.changes[error.at], batch.table)
            blamed = next((state.blamed for state in states if state.at == error.at), error.at)
            raise Rejected(f"{told}: {table.database}.{table.name}: {error}", at=blamed) from None

    # ---- statements

    def _tell_left(self, change: Change, batch: Batch) -> None:
        """Of a statement that changes columns: what is left to do by hand."""
        if change.op != "ddl" or "alter" not in (change.sql or "").casefold():
            return
        operations = operations_of(change, TableName(batch.database, batch.name))
        left = sorted({_LEFT[type(one)] for one in operations if type(one) in _LEFT})
        if left:
            self._log.warning("ddl_refused", table=batch.table, because="; ".join(left))

    def _telling(self, log: BoundLogger, handles: Callable[[str], bool]) -> WholeTables:
        renamed = "rows of a renamed table stay in its table"
        return WholeTables(self._options.truncate, self._options.drop_tables, renamed, handles, log)

    def _empty(self, named: TableName, change: Change, batch: Batch) -> None:
        client, _ = self._opened()
        found = until_remembered(lambda: self._remembered(named, change, batch))
        if found is None:
            return
        table, version = found
        partition, time = partition_of(batch, change), change.source_time_ms
        removed = empty(client, table, version=version, partition=partition, time=time)
        self._log.info(
            "target_rows_removed", table=str(named), target=f"{table.database}.{table.name}", rows=removed
        )

    def _remembered(self, named: TableName, change: Change, batch: Batch) -> tuple[Table, int] | None:
        """The table that a statement is about, which knows the statement's topic, and the version of that.

        None: there is none. Raises LookAgain, and as `handle`.
        """
        _, tables = self._opened()
        table = tables.find(*named)
        if table is None:
            return None
        versions = self._versions(table.memory, batch)
        try:
            version = versions.of(change)
        except BeyondVersions as error:
            raise Rejected(f"{place_of(change, batch.table)}: {error}") from None
        memory = remembering(
            table.memory, table=str(named), topics=versions.topics, epoch=self._options.epoch
        )
        tables.remember(table, memory)
        return table, version


def _checked_key(row: Row, key_columns: tuple[str, ...] | None) -> str:
    """Raises MissingValue, TypeError; also for a row that has a column of our own's name."""
    for name in OWN_COLUMNS:
        if name in row:
            raise MissingValue(f"its column {name} is what the target tells of a row's origin: rename it")
    return _KEY.key("", "", row, key_columns)


def _lacking(known: Collection[str], states: Sequence[State], key: Sequence[str]) -> dict[str, str]:
    """The columns that the rows need beside those that are known, with ClickHouse's types."""
    found: dict[str, str] = {}
    for column in key:
        if column not in known:
            types = states[0].types or {}
            kind = column_type(types.get(column), states[0].key.get(column), key=True)
            found[column] = kind or "String"
    for column, type_text, value in new_columns(states, known):
        kind = column_type(type_text, value, key=False)
        if column not in found and kind is not None:
            found[column] = kind
    return found


def _check_key(table: Table, batch: Batch, key: Sequence[str]) -> None:
    """Raises TableUnfit."""
    if sorted(table.key) != sorted(key):
        raise TableUnfit(
            f"{table.database}.{table.name} is ordered by {', '.join(table.key)}, and the primary key of "
            f"{batch.table} is {', '.join(key)}: ClickHouse changes no sorting key, so lead the table to "
            f"another one (options database, table), with a new snapshot of it"
        )
