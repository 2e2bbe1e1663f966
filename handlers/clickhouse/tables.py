"""The table of a source's table: made, described, and what its comment remembers of where it is fed from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from handlers.clickhouse.client import ClickHouseClient, identifier, literal
from handlers.clickhouse.codecs import Codec, codec_of
from handlers.clickhouse.options import ClickHouseOptions
from handlers.logs import get_logger
from handlers.options.templates import Template
from handlers.progress.versions import EPOCH_BITS, Topic

__all__ = ["OWN_COLUMNS", "Table", "TableUnfit", "Tables"]

log = get_logger("handlers.clickhouse")

OWN_COLUMNS: Mapping[str, str] = {
    "_version": "UInt64",
    "_deleted": "UInt8",
    "_partition": "LowCardinality(String)",
    "_source_time_ms": "Int64",
}
"""Beside the source's columns."""
_REPLACING = re.compile(r"\w*ReplacingMergeTree\((?:.*, )?_version, _deleted\)")
_MEMORY = re.compile(r"(.*?)\s*\bbinlane: (\{.*\})", re.DOTALL)


class TableUnfit(Exception):
    """The table is not one that this table can be written to; the message says why, and what to do."""


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands in the table's comment."""

    table: str | None = None
    """Whose rows it holds."""
    topics: Sequence[tuple[str, str | None]] = ()
    partitions: Sequence[str] = ()
    """All that rows have come from."""
    epoch: int = 0
    """The highest option `epoch` that it was written under."""


class Table(msgspec.Struct, frozen=True):
    database: str
    name: str
    columns: Mapping[str, str]
    """All, with ClickHouse's types."""
    key: Sequence[str]
    """The columns of the sorting key."""
    comment: str
    """Others' text."""
    memory: Memory

    @property
    def sql(self) -> str:
        return identifier(self.database, self.name)

    @property
    def topics(self) -> list[Topic]:
        return [Topic(*each) for each in self.memory.topics]

    def codec(self, column: str) -> Codec:
        """Raises TableUnfit."""
        found = codec_of(self.columns[column])
        if found is None:
            raise TableUnfit(
                f"{self.database}.{self.name}: its column {column} is {self.columns[column]}, which nothing "
                f"is written to here: give it another type, or leave the column out by the table's rules"
            )
        return found


class Tables:
    """Any thread."""

    def __init__(self, client: ClickHouseClient, options: ClickHouseOptions) -> None:
        self._client = client
        self._options = options
        self._database = Template(options.database, row=False)
        self._table = Template(options.table, row=False)

    def find(self, database: str, table: str) -> Table | None:
        """The table as it is now; None: there is none. Raises TableUnfit, and as ClickHouseClient."""
        names = self._database.of_table(database, table), self._table.of_table(database, table)
        where = f"database = {literal(names[0])} AND {{}} = {literal(names[1])}"
        described = self._rows(
            f"SELECT engine_full, sorting_key, comment FROM system.tables WHERE {where.format('name')}"
        )
        if not described:
            return None
        engine, sorting_key, comment = described[0]
        columns = self._rows(
            "SELECT name, type, is_in_sorting_key, default_kind FROM system.columns "
            f"WHERE {where.format('table')} ORDER BY position"
        )
        place = ".".join(names)
        _check_engine(place, engine, {name: kind for name, kind, *_ in columns})
        key = [name for name, _, is_key, _ in columns if is_key]
        _check_order(place, sorting_key, key)
        told = _MEMORY.fullmatch(comment)
        memory = msgspec.json.decode(told[2], type=Memory) if told else Memory()
        found = Table(
            database=names[0],
            name=names[1],
            columns={
                name: kind for name, kind, _, default in columns if default not in ("MATERIALIZED", "ALIAS")
            },
            key=key,
            comment=told[1] if told else comment,
            memory=memory,
        )
        if told is None:
            self._check_unwritten(found)
        if memory.table not in (None, f"{database}.{table}"):
            raise TableUnfit(
                f"{place} holds the rows of {memory.table}, those of {database}.{table} need another table: "
                f"see the options database and table"
            )
        if memory.epoch > self._options.epoch:
            raise TableUnfit(
                f"{place} was written under the option epoch: {memory.epoch}, it is {self._options.epoch} "
                f"here: what comes now would lose against all of that. Leave it as high as it ever was, in "
                f"all workers"
            )
        return found

    def _check_unwritten(self, table: Table) -> None:
        """That a table without a memory holds nothing that may win over what comes: its topics and their
        epochs are forgotten.

        Raises TableUnfit.
        """
        last = int(self._client.query(f"SELECT max(_version) FROM {table.sql} FORMAT TSV"))
        if last and last - 1 >> EPOCH_BITS >= self._options.epoch:
            raise TableUnfit(
                f"{table.database}.{table.name} holds rows with versions, and its comment does not tell of "
                f"which topics (was it replaced, or the table copied?): what comes now might lose against "
                f"them. Give it the comment that it had, with all from binlane: on; or let what comes win: "
                f"option epoch: {(last - 1 >> EPOCH_BITS) + 1}"
            )

    def make(self, database: str, table: str, columns: Mapping[str, str], key: Sequence[str]) -> Table:
        """Raises TableUnfit."""
        names = self._database.of_table(database, table), self._table.of_table(database, table)
        place = ".".join(names)
        if not self._options.create:
            raise TableUnfit(
                f"there is no table {place} for {database}.{table}, and create is false: make it"
            )
        listed = [f"{identifier(name)} {kind}" for name, kind in {**columns, **OWN_COLUMNS}.items()]
        comment = _comment("", Memory(table=f"{database}.{table}"))
        self._client.query(f"CREATE DATABASE IF NOT EXISTS {identifier(names[0])}")
        self._client.query(
            f"CREATE TABLE IF NOT EXISTS {identifier(*names)} ({', '.join(listed)}) "
            f"ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY ({', '.join(map(identifier, key))}) "
            f"COMMENT {literal(comment)}"
        )
        log.info("target_table_made", target=place, table=f"{database}.{table}")
        found = self.find(database, table)
        if found is None:
            raise TableUnfit(f"{place} is gone as soon as it is made")
        return found

    def add(self, table: Table, columns: Mapping[str, str], database: str, name: str) -> Table:
        """`database`, `name`: of the source's table. Raises TableUnfit where `create: false` forbids it."""
        if not self._options.create:
            listed = ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
            raise TableUnfit(f"{table.database}.{table.name} lacks {listed}, and create is false: add them")
        added = ", ".join(
            f"ADD COLUMN IF NOT EXISTS {identifier(name)} {kind}" for name, kind in columns.items()
        )
        self._client.query(f"ALTER TABLE {table.sql} {added}")
        # Another batch may have added one of them meanwhile, by a value of another type.
        found = self.find(database, name)
        if found is None:
            raise TableUnfit(f"{table.database}.{table.name} is gone as soon as columns are added")
        return found

    def remember(
        self, table: Table, source: str, topics: Sequence[Topic], partitions: Sequence[str]
    ) -> Table:
        """Which table, topics and partitions it is fed from."""
        epoch = max(table.memory.epoch, self._options.epoch)
        memory = Memory(source, [(each.name, each.id) for each in topics], sorted(partitions), epoch)
        if memory == table.memory:
            return table
        comment = literal(_comment(table.comment, memory))
        self._client.query(f"ALTER TABLE {table.sql} MODIFY COMMENT {comment}")
        return msgspec.structs.replace(table, memory=memory)

    def _rows(self, sql: str) -> list[list[str]]:
        found = self._client.query(f"{sql} FORMAT JSONCompactEachRow")
        return [msgspec.json.decode(line) for line in found.splitlines() if line]


def _check_engine(place: str, engine: str, columns: Mapping[str, str]) -> None:
    if not _REPLACING.match(engine):
        raise TableUnfit(
            f"{place} has the engine {engine[:120] or 'of a view'}; needed: "
            f"ReplacingMergeTree(_version, _deleted)"
        )
    for name, kind in OWN_COLUMNS.items():
        if columns.get(name) not in (kind, kind.removeprefix("LowCardinality(").rstrip(")")):
            raise TableUnfit(f"{place} needs a column {name} {kind}, it has {columns.get(name) or 'none'}")


def _check_order(place: str, sorting_key: str, key: Sequence[str]) -> None:
    rest = sorting_key
    for name in sorted(key, key=len, reverse=True):
        rest = rest.replace(identifier(name)[1:-1], "", 1)
    if rest.strip("(), `"):
        raise TableUnfit(f"{place} is ordered by {sorting_key}: it has to be the primary key's columns alone")


def _comment(others: str, memory: Memory) -> str:
    return f"{others} binlane: {msgspec.json.encode(memory).decode()}".strip()
