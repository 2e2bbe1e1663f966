"""Operations on a table in ClickHouse: find, create, write and empty it, and remember its sources.

Each revision of the memory (`handlers.versioned.versions`) is the comment of a column without data."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from handlers.api import HandlerContext, Row
from handlers.clickhouse.client import (
    OPENED,
    OWN_COLUMNS,
    ClickHouseClient,
    ClickHouseOptions,
    check_server,
    identifier,
    literal,
)
from handlers.clickhouse.codecs import codec_of
from handlers.clickhouse.history import History
from handlers.clickhouse.writing import (
    Table,
    column_type,
    key_text,
    last_versions,
    own_columns,
    write,
)
from handlers.http.parts import RowRefused
from handlers.options.templates import MissingValue, Template
from handlers.versioned.row_states import Held, State, new_columns
from handlers.versioned.versions import EPOCH_BITS, RENAMED, Memory, Unfit, recalled

_KEY = Template("{key}")
_REPLACING = re.compile(r"\w*ReplacingMergeTree\((?:.*, )?_version, _deleted\)")
_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|[^'(),]+|.")
_MOVING = re.compile(r" TO (?:DISK|VOLUME) '| RECOMPRESS CODEC")
_PURGING = re.compile(r"(?:WHERE|AND) \(?_deleted(?: = 1| != 0| > 0|\)?$|\)? AND)")
_WORD = re.compile(r"`[^`]*`|\w+")
_OF_NOW = re.compile(r"\b(?:now|now64|nowInBlock|today)\(")
_COMPUTED = ("MATERIALIZED", "ALIAS")
_MEMORY = "_binlane_memory_"
_LATE = "the history has a later change of the row: it can no longer take this one, should it lack it"


class Tables:
    """The tables of one server, whose rows have versions. Any thread."""

    def __init__(self, options: ClickHouseOptions, context: HandlerContext) -> None:
        self._client = ClickHouseClient(options, context.folder, context.lanes)
        self._options = options
        period, bound = options.period, options.max_bytes
        self._history = None if period is None else History(self._client, period, bound)
        self._added = own_columns(period)
        self._database = Template(options.database, row=False)
        self._table = Template(options.table, row=False)

    @property
    def keeps_all(self) -> bool:
        return self._history is not None

    def close(self) -> None:
        self._client.close()

    def check(self) -> None:
        """Check the server. Raises Unfit, TargetUnavailable, RequestRefused."""
        check_server(self._client, self._options.url)

    def name_of(self, database: str, table: str) -> str:
        return "table " + ".".join(self._names(database, table))

    def key_of(self, place: Table | None, row: Row, key_columns: tuple[str, ...] | None) -> str:
        """Raises MissingValue (also if a column has the name of one of binlane's), TypeError."""
        for name in self._added:
            if name in row:
                raise MissingValue(f"its column {name} has a name reserved for a row's origin: rename it")
        text = _KEY.key("", "", row, key_columns)
        if place is None or set(place.key) != set(key_columns or ()):
            return text  # `lacking` then refuses, or the table is created first
        return key_text(place, row)

    def find(self, database: str, table: str) -> Table | None:
        names = self._names(database, table)
        where = f"database = {literal(names[0])} AND {{}} = {literal(names[1])}"
        described = self._rows(
            f"SELECT engine_full, sorting_key FROM system.tables WHERE {where.format('name')}"
        )
        if not described:
            return None
        engine, sorting_key = described[0]
        columns = self._rows(
            "SELECT name, type, is_in_sorting_key, is_in_partition_key, default_expression, default_kind, "
            f"comment FROM system.columns WHERE {where.format('table')} ORDER BY position"
        )
        place = ".".join(names)
        _check_engine(place, engine, {name: kind for name, kind, *_ in columns}, self._added)
        key = [name for name, _, is_key, *_ in columns if is_key]
        _check_order(place, sorting_key, key)
        if self.keeps_all:
            if OPENED not in key:
                raise Unfit(f"{place} is ordered by {sorting_key}: a history needs {OPENED} as well")
            key.remove(OPENED)
        written = {name: kind for name, kind, *_, default, _ in columns if default not in _COMPUTED}
        _check_key(place, written, key)
        _check_partitions(place, [name for name, _, is_key, parts, *_ in columns if parts and not is_key])
        told = {own: text for own, *_, made, text in columns if made == "ALIAS" and own.startswith(_MEMORY)}
        others = {name for name, *_, made, _, _ in columns if not _OF_NOW.search(made)}
        changing = others - {*key, "_source_time_ms"}
        return Table(
            database=names[0],
            table=names[1],
            columns=written,
            computed=frozenset(name for name, *_, default, _ in columns if default in _COMPUTED),
            key=key,
            added=self._added,
            memory=recalled(place, told),
            expires_by=_expires_by(engine, changing if self._history is None else {self._history.period[1]}),
        )

    def last_version(self, place: Table) -> int:
        return int(self._client.query(f"SELECT max(_version) FROM {place.sql} FORMAT TSV"))

    def lacking(self, place: Table | None, states: Sequence[State], key: Sequence[str]) -> Mapping[str, str]:
        key = key or (() if place is None else place.memory.key)
        if place is not None and key and sorted(place.key) != sorted(key):
            raise Unfit(
                f"{place.name} is ordered by {', '.join(place.key)}, but the source's primary key is "
                f"{', '.join(key)}: ClickHouse cannot change a sorting key. {RENAMED}. Otherwise route the "
                "table to another one (options database, table), with a new snapshot"
            )
        if place is not None and (self.keeps_all or any(state.row is None for state in states)):
            self._check_ttl(place)
        known = () if place is None else {*place.columns, *place.computed}
        found: dict[str, str] = {}
        for column in (name for name in key if name not in known):
            types = states[0].types or {}
            kind = column_type(types.get(column), states[0].key.get(column), key=True)
            found[column] = kind or "String"
        for column, type_text, value in new_columns(states, {*known, *found}):
            kind = column_type(type_text, value, key=False)
            if kind is not None:
                found[column] = kind
        return found

    def make(
        self, name: tuple[str, str], columns: Mapping[str, str], key: Sequence[str], memory: Memory
    ) -> None:
        names, order = self._names(*name), [*key, OPENED] if self.keeps_all else key
        listed = [f"{identifier(name)} {kind}" for name, kind in {**columns, **self._added}.items()]
        listed.append(_revision(memory))
        self._client.query(f"CREATE DATABASE IF NOT EXISTS {identifier(names[0])}")
        self._client.query(
            f"CREATE TABLE IF NOT EXISTS {identifier(*names)} ({', '.join(listed)}) "
            f"ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY ({', '.join(map(identifier, order))})"
        )

    def add(self, place: Table, columns: Mapping[str, str]) -> None:
        """Add columns. Another batch may meanwhile add one of them with another type."""
        added = ", ".join(
            f"ADD COLUMN IF NOT EXISTS {identifier(name)} {kind}" for name, kind in columns.items()
        )
        self._client.query(f"ALTER TABLE {place.sql} {added}")

    def remember(self, place: Table, memory: Memory) -> None:
        # ClickHouse runs one ALTER of a table at a time, so only one writer gets the name.
        self._client.query(f"ALTER TABLE {place.sql} ADD COLUMN IF NOT EXISTS {_revision(memory)}")

    def write(self, place: Table, states: Sequence[State], check: Callable[[State, Held], None]) -> int:
        """Write all states. Existing rows are read first only if the table's rows come from several
        partitions, or if a dead letter may lose. Otherwise, 0 is returned."""
        late: set[str] = set()
        least = self._options.epoch << EPOCH_BITS
        letters = [state for state in states if self.keeps_all and state.is_letter]
        if letters or len(place.memory.partitions) > 1 or any(state.version <= least for state in states):
            # A history writes its last change again: a crash may have left a version without its end.
            later = {state.text: state.version + self.keeps_all for state in states}
            for state, held in last_versions(self._client, place, states):
                check(state, held)
                if held.version >= later[state.text]:
                    late.add(state.text)
        if self._history is None:
            write(self._client, place, states, self._options.max_bytes)
        else:  # versions between existing ones would overlap them
            those = [state for state in states if state.is_letter and state.text in late]
            # A row under its former key may stay as it is (`handlers.rows.is_move`).
            left = [state for state in those if not state.leaves or state.row != state.key]
            self._history.write(place, [state for state in states if state not in left])
            if left:
                raise RowRefused(left[0].at, _LATE)
        return len(late)

    def empty(self, place: Table, *, version: int, partition: str, time: int) -> int:
        """Replace each row by a deleted one. Without that, a late change would restore it. In a history, end
        all current versions."""
        own = f"_partition = {literal(partition)}"
        older = f"({own} AND _version < {version} OR NOT ({own}) AND _source_time_ms < {int(time)})"
        changed = {"_version": f"if({own}, toUInt64({version}), _version + 1)", "_deleted": "1"}
        names: Collection[str] = (*place.key, *OWN_COLUMNS)
        if self._history is not None:
            start, end = map(identifier, self._history.period)
            names, older = place.columns, f"{older} AND {end} IS NULL"
            moment = f"fromUnixTimestamp64Milli(toInt64({int(time)}), 'UTC')"
            changed |= {self._history.period[1]: f"greatest({start}, {moment})", "_deleted": "0"}
        where = f"FROM {place.sql} FINAL WHERE {older}"
        rows = int(self._client.query(f"SELECT count() {where} FORMAT TSV"))
        if rows:
            self._check_ttl(place)
            values = ", ".join(changed.get(name, identifier(name)) for name in names)
            into = f"INSERT INTO {place.sql} ({', '.join(map(identifier, names))})"
            self._client.query(f"{into} SELECT {values} {where}")
        return rows

    def _check_ttl(self, place: Table) -> None:
        if place.expires_by:
            way = f"leave deleted rows: ALTER TABLE {place.sql} MODIFY TTL … DELETE WHERE _deleted = 0"
            raise Unfit(
                f"{place.name} has a TTL by {', '.join(place.expires_by)}, which may remove a deleted row or "
                "the end of a version before what it replaces: that would be there again. Let the TTL "
                f"{way if self._history is None else f'use {self._history.period[0]} instead'}"
            )

    def _names(self, database: str, table: str) -> tuple[str, str]:
        return self._database.of_table(database, table), self._table.of_table(database, table)

    def _rows(self, sql: str) -> list[list[str]]:
        found = self._client.query(f"{sql} FORMAT JSONCompactEachRow")
        return [msgspec.json.decode(line) for line in found.splitlines() if line]


def _check_engine(place: str, engine: str, columns: Mapping[str, str], added: Mapping[str, str]) -> None:
    if not _REPLACING.match(engine):
        raise Unfit(
            f"{place} has the engine {engine[:120] or 'of a view'}; needed: "
            f"ReplacingMergeTree(_version, _deleted)"
        )
    for name, kind in added.items():
        if columns.get(name) not in (kind, kind.removeprefix("LowCardinality(").rstrip(")")):
            why = "" if name in OWN_COLUMNS else " for a history"
            raise Unfit(f"{place} needs a column {name} {kind}{why}, it has {columns.get(name) or 'none'}")


def _check_order(place: str, sorting_key: str, key: Sequence[str]) -> None:
    rest = sorting_key
    for name in sorted(key, key=len, reverse=True):
        rest = rest.replace(identifier(name)[1:-1], "", 1)
    if rest.strip("(), `"):
        raise Unfit(f"{place} is ordered by {sorting_key}: it must have the primary key's columns only")


def _check_key(place: str, written: Mapping[str, str], key: Sequence[str]) -> None:
    for name in key:
        kind = written.get(name, "computed by the server")
        if codec_of(kind) is None:
            why = f"its key column {name} is {kind}, a type that binlane does not write"
            raise Unfit(f"{place}: {why}: create the table with another type for it")


def _check_partitions(place: str, others: Sequence[str]) -> None:
    """Raise Unfit for a partition key outside the primary key: rows of two partitions are never merged."""
    if others:
        raise Unfit(
            f"{place} has PARTITION BY with {', '.join(others)}, outside the primary key: a row could be in "
            "two partitions, and stay in both. Create the table with a partition key of key columns only"
        )


def _expires_by(engine: str, columns: set[str]) -> list[str]:
    """Return those of the columns by which a TTL removes rows. If `_deleted` is one of them, a condition with
    it spares deleted rows.

    >>> _expires_by("… ORDER BY a TTL a + f(1, g(2)), f(b, 'x') TO DISK 'x' SETTINGS c = 1", {"a", "b", "c"})
    ['a']
    """
    rules, depth = [""], 0
    for piece in _PIECE.findall(engine.partition(" TTL ")[2].partition(" SETTINGS ")[0]):
        depth += {"(": 1, ")": -1}.get(piece, 0)
        rules += [""] if piece == "," and not depth else []
        rules[-1] += piece
    found = set[str]()
    for rule in (rule for rule in rules if not _MOVING.search(rule)):
        words = {word.strip("`") for word in _WORD.findall(rule)} & columns
        found |= {"_deleted"} if _PURGING.search(rule) else set() if "_deleted" in words else words
    return sorted(found)


def _revision(memory: Memory) -> str:
    """Return the memory's column. It stores no data, and `SELECT *` does not show it."""
    return f"{identifier(f'{_MEMORY}{memory.number}')} UInt8 ALIAS 0 COMMENT {literal(memory.text)}"
