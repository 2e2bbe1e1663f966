"""The table of a source's table: made, described, and what it remembers of where it is fed from.

Each revision of that (`handlers.progress.memory`) is the comment of a column that holds nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from handlers.clickhouse.client import ClickHouseClient, ColumnThere, identifier, literal
from handlers.clickhouse.codecs import Codec, codec_of
from handlers.clickhouse.options import ClickHouseOptions
from handlers.logs import get_logger
from handlers.options.templates import Template
from handlers.progress.memory import LookAgain, Memory, Recalled, recalled
from handlers.progress.versions import EPOCH_BITS

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
_COMPUTED = ("MATERIALIZED", "ALIAS")
_MEMORY = "_binlane_memory_"
_EARLIER = re.compile(r".*?\bbinlane: (\{.*\})", re.DOTALL)
"""A memory in the table's comment: its form before there were revisions."""


class TableUnfit(Exception):
    """The table is not one that this table can be written to; the message says why, and what to do."""


class Table(msgspec.Struct, frozen=True):
    database: str
    name: str
    columns: Mapping[str, str]
    """Those that can be written, with ClickHouse's types."""
    computed: frozenset[str]
    """Columns (MATERIALIZED, ALIAS) whose values the server computes, whatever the source has there."""
    key: Sequence[str]
    """The columns of the sorting key."""
    recalled: Recalled

    @property
    def sql(self) -> str:
        return identifier(self.database, self.name)

    @property
    def memory(self) -> Memory:
        return self.recalled.memory

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
            "SELECT name, type, is_in_sorting_key, default_kind, comment FROM system.columns "
            f"WHERE {where.format('table')} ORDER BY position"
        )
        place = ".".join(names)
        _check_engine(place, engine, {name: kind for name, kind, *_ in columns})
        key = [name for name, _, is_key, *_ in columns if is_key]
        _check_order(place, sorting_key, key)
        told = {name: text for name, _, _, default, text in columns if _is_memory(name, default)}
        earlier = _EARLIER.fullmatch(comment)
        try:
            last = recalled(told, msgspec.json.decode(earlier[1], type=Memory) if earlier else None)
        except ValueError as error:
            raise TableUnfit(f"{place}: {error}") from None
        memory = last.memory
        found = Table(
            database=names[0],
            name=names[1],
            columns={name: kind for name, kind, _, default, _ in columns if default not in _COMPUTED},
            computed=frozenset(name for name, _, _, default, _ in columns if default in _COMPUTED),
            key=key,
            recalled=last,
        )
        if not told and earlier is None:
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
                f"{table.database}.{table.name} holds rows with versions, and nothing tells of which topics "
                f"(was it copied without its columns {_MEMORY}…?): what comes now might lose against them. "
                f"Give it these columns with their comments; or let what comes win: "
                f"option epoch: {(last - 1 >> EPOCH_BITS) + 1}"
            )

    def make(
        self, database: str, table: str, columns: Mapping[str, str], key: Sequence[str], memory: Memory
    ) -> None:
        """Where there is none yet. Raises TableUnfit."""
        names = self._database.of_table(database, table), self._table.of_table(database, table)
        place = ".".join(names)
        if not self._options.create:
            raise TableUnfit(
                f"there is no table {place} for {database}.{table}, and create is false: make it"
            )
        listed = [f"{identifier(name)} {kind}" for name, kind in {**columns, **OWN_COLUMNS}.items()]
        listed.append(_revision(1, memory))
        self._client.query(f"CREATE DATABASE IF NOT EXISTS {identifier(names[0])}")
        self._client.query(
            f"CREATE TABLE IF NOT EXISTS {identifier(*names)} ({', '.join(listed)}) "
            f"ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY ({', '.join(map(identifier, key))})"
        )
        log.info("target_table_made", target=place, table=f"{database}.{table}")
        if self.find(database, table) is None:
            raise TableUnfit(f"{place} is gone as soon as it is made")

    def add(self, table: Table, columns: Mapping[str, str]) -> None:
        """Those that are not there yet: another batch may add one of them meanwhile, of another type.

        Raises TableUnfit where `create: false` forbids it.
        """
        if not self._options.create:
            listed = ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))
            raise TableUnfit(f"{table.database}.{table.name} lacks {listed}, and create is false: add them")
        added = ", ".join(
            f"ADD COLUMN IF NOT EXISTS {identifier(name)} {kind}" for name, kind in columns.items()
        )
        self._client.query(f"ALTER TABLE {table.sql} {added}")

    def remember(self, table: Table, memory: Memory) -> None:
        """Returns when this is what the table remembers. Raises LookAgain where somebody else was faster."""
        if memory == table.memory:
            return
        # Without IF NOT EXISTS: ClickHouse alters a table once at a time, so one of several gets the name.
        added = _revision(table.recalled.number + 1, memory)
        try:
            self._client.query(f"ALTER TABLE {table.sql} ADD COLUMN {added}")
        except ColumnThere as error:
            raise LookAgain(str(error)) from None

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


def _is_memory(column: str, default: str) -> bool:
    return default == "ALIAS" and column.startswith(_MEMORY)


def _revision(number: int, memory: Memory) -> str:
    """Its column: nothing is stored for it, and `SELECT *` does not show it."""
    text = literal(msgspec.json.encode(memory).decode())
    return f"{identifier(f'{_MEMORY}{number}')} UInt8 ALIAS 0 COMMENT {text}"
