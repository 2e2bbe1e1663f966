"""A table of ClickHouse with its types (docs/handlers/clickhouse.md lists them), inserts of a batch's rows,
and queries of existing rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from handlers.api import Row
from handlers.clickhouse.client import OPENED, OWN_COLUMNS, ClickHouseClient, identifier, literal
from handlers.clickhouse.codecs import Codec, End, Unencodable, codec_of, end_of, header_of, read_varint
from handlers.http.parts import RowRefused, in_parts
from handlers.mysql.types import DECIMALS, INTEGERS, SYNONYMS, read_type
from handlers.options.templates import MissingValue
from handlers.values.bounds import BeyondBounds
from handlers.versioned.row_states import Held, State, with_held_rows
from handlers.versioned.versions import Memory, UnfitColumn

_TIME = "DateTime64(3, 'UTC')"


def own_columns(period: tuple[str, str] | None) -> Mapping[str, str]:
    """Return binlane's columns; in a history (`period`), also those of versions."""
    if period is None:
        return OWN_COLUMNS
    return {period[0]: _TIME, period[1]: f"Nullable({_TIME})", OPENED: "UInt64", **OWN_COLUMNS}


_MOST_DIGITS = 76
_MOMENT = "DateTime64(6, 'UTC')"
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 32, "int": 32, "bigint": 64}
_INT64 = 1 << 63
_BY_NAME: Mapping[str, str] = {
    "bit": "UInt64",
    "serial": "UInt64",
    "year": "UInt16",
    "float": "Float64",
    "double": "Float64",
    "boolean": "Bool",
    "bool": "Int8",
    "date": "Date32",
    "datetime": _MOMENT,
    "timestamp": _MOMENT,
    "datetimeoffset": _MOMENT,
    "uuid": "UUID",
}


class Table(msgspec.Struct, frozen=True):
    database: str
    table: str
    columns: Mapping[str, str]
    """Columns that can be written, with ClickHouse's types."""
    computed: frozenset[str]
    """Columns (MATERIALIZED, ALIAS) whose values the server computes. The source's values are ignored."""
    key: Sequence[str]
    """The columns of the source's key, which the sorting key has."""
    added: Mapping[str, str]
    """The result of `own_columns`."""
    memory: Memory
    expires_by: Sequence[str]
    """Columns by which a TTL may remove a deleted row earlier than its former versions."""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def sql(self) -> str:
        return identifier(self.database, self.table)

    def codec(self, column: str) -> Codec:
        """Return a column's codec. Raises UnfitColumn."""
        found = codec_of(self.columns[column])
        if found is None:
            raise UnfitColumn(
                f"{self.name}: its column {column} is {self.columns[column]}, a type that binlane does not "
                "write: change its type, or leave the column out with the table's rules"
            )
        return found

    def encoded(self, column: str, value: Any) -> bytes:
        """Raises UnfitColumn, and as the codec. In a key, -0.0 is 0.0: IN would tell them apart."""
        is_zero = column in self.key and value == 0 and isinstance(value, float)
        return self.codec(column).encode(0.0 if is_zero else value)

    def end(self, column: str) -> End:
        """Return a column's `end_of`. Raises UnfitColumn."""
        return end_of(self.columns[column]) or self.codec(column).end


def column_type(type_text: str | None, value: Any, *, key: bool) -> str | None:
    """Return a column's type; None for a NULL without a type, which waits for its first value."""
    found = _type_of(type_text) if type_text else _of_value(value)
    return found if key or found is None else f"Nullable({found})"


@lru_cache(maxsize=10_000)
def _type_of(type_text: str) -> str:
    """Return the type for a source's type. Types without a counterpart become String."""
    read = read_type(type_text)
    name = "double" if type_text.lower().startswith("double ") else SYNONYMS.get(read.name, read.name)
    if name in INTEGERS:
        return f"{'U' if read.unsigned else ''}Int{_BITS[name]}"
    if name in DECIMALS:
        if not read.sizes or read.sizes[0] > _MOST_DIGITS:
            return "String"
        scale = read.sizes[1] if len(read.sizes) > 1 else 0
        return f"Decimal({max(read.sizes[0], scale)}, {scale})"
    return _BY_NAME.get(name, "String")


def _of_value(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return "Int64" if -_INT64 <= value < _INT64 else "String"
    return next((found for kind, found in _BY_KIND if isinstance(value, kind)), "String")


# The first match counts, because a datetime is also a date.
_BY_KIND = ((bool, "Bool"), (float, "Float64"), (datetime, _MOMENT), (date, "Date32"), (UUID, "UUID"))


_UNENCODABLE = (Unencodable, TypeError, BeyondBounds, UnicodeEncodeError)
_READ_AT_ONCE = 1_000
_FORMAT = "RowBinaryWithNamesAndTypes"
_VERSION, _, _PARTITION, _ = OWN_COLUMNS
_OWN = [codec for kind in OWN_COLUMNS.values() if (codec := codec_of(kind))]


class Line(msgspec.Struct, frozen=True):
    """A row in the form that is sent."""

    at: int
    """The place of its change in the batch."""
    columns: tuple[str, ...]
    data: bytes


Values = Mapping[str, bytes]
"""Column -> its current value in RowBinary."""


def write(client: ClickHouseClient, table: Table, states: Sequence[State], most_bytes: int) -> None:
    """Insert the states of a batch. Raises RowRefused for the first row that is refused for its content, and
    passes on ClickHouseClient's errors. Written rows stay; writing them again changes nothing."""

    def read(some: Sequence[State], is_bounded: bool) -> Mapping[str, Values]:
        return held_rows(client, table, some, most_bytes if is_bounded else 0)

    for some, held in with_held_rows(states, read):
        insert(client, table, _lines_of(table, some, held), most_bytes)


def key_text(table: Table, row: Row) -> str:
    """Return a row's key in RowBinary as hexadecimal digits. Keys that ClickHouse treats as equal, such as
    1.0 and 1.00, have one text. Raises MissingValue if the table cannot store the key."""
    parts: list[bytes] = []
    for column in table.key:
        try:
            parts.append(table.encoded(column, row[column]))
        except _UNENCODABLE as error:
            told = f"column {column} ({table.columns[column]}): {error}"
            raise MissingValue(f"{table.name}: {told}") from None
    return b"".join(parts).hex()


def _lines_of(table: Table, states: Sequence[State], held: Mapping[str, Values]) -> list[Line]:
    """Encode states. `held`: current rows, by key text, for states that lack columns. Raises RowRefused."""
    lines: list[Line] = []
    for state in states:
        values: Values = encoded(table, {**state.key, **(state.row or {})}, state.at)
        if not state.whole:
            values = {**held.get(state.text, {}), **values}
        lines.append(line_of(state, values, is_deleted=state.row is None))
    return lines


def line_of(state: State, values: Values, *, is_deleted: bool = False) -> Line:
    """Return the row with the columns of its last change."""
    own = state.version, int(is_deleted), state.partition, state.time
    parts = [*values.values(), *(codec.encode(value) for codec, value in zip(_OWN, own, strict=True))]
    return Line(state.at, (*values, *OWN_COLUMNS), b"".join(parts))


def encoded(table: Table, row: Row, at: int) -> dict[str, bytes]:
    """Encode a row's columns. `at`: the place of its change in the batch. Raises RowRefused."""
    named = [column for column in row if column in table.columns]
    if len(named) < len(row):
        _check_places(table, row)
    values: dict[str, bytes] = {}
    for column in named:
        try:
            values[column] = table.encoded(column, row[column])
        except _UNENCODABLE as error:
            raise RowRefused(at, f"column {column} ({table.columns[column]}): {error}") from None
    return values


def _check_places(table: Table, row: Row) -> None:
    """Raise UnfitColumn if a value has no column. A NULL needs none: the first value creates the column."""
    for column, value in row.items():
        if value is not None and column not in table.columns and column not in table.computed:
            raise UnfitColumn(f"{table.name} has no column {column}, but a row has a value for it")


def insert(client: ClickHouseClient, table: Table, lines: Sequence[Line], most_bytes: int) -> None:
    alike: dict[tuple[str, ...], list[Line]] = {}
    for line in lines:
        alike.setdefault(line.columns, []).append(line)
    for columns, those in alike.items():
        into = f"INSERT INTO {table.sql} ({', '.join(map(identifier, columns))}) FORMAT {_FORMAT}"
        header = header_of({name: table.columns[name] for name in columns})

        def send(
            start: int, end: int, into: str = into, head: bytes = header, rows: list[Line] = those
        ) -> None:
            client.insert(into, head, [line.data for line in rows[start:end]])

        in_parts([line.data for line in those], most_bytes, send, places=[line.at for line in those])


def held_rows(
    client: ClickHouseClient,
    table: Table,
    states: Sequence[State],
    most_bytes: int,
    *,
    added: Sequence[str] = (),
    more: str = "",
) -> dict[str, dict[str, bytes]]:
    """Read the current rows by key text: the source's columns and `added`. `most_bytes` 0: no limit. `more`:
    SQL after WHERE. Raises AnswerTooLarge."""
    others = (name for name in table.columns if name not in {*table.key, *table.added})
    names = [*table.key, *others, *added]
    ends = [table.end(name) for name in names]
    select = f"SELECT {', '.join(map(identifier, names))} FROM {table.sql} FINAL WHERE"
    bound = f"SETTINGS max_result_bytes = {most_bytes}"
    found: dict[str, dict[str, bytes]] = {}
    for keys in keys_of(table, states):
        data = client.query(f"{select} {keys} {more} {bound} FORMAT RowBinary")
        for values in read_rows(data, ends):
            found[b"".join(values[: len(table.key)]).hex()] = dict(zip(names, values, strict=True))
    return found


def last_versions(
    client: ClickHouseClient, table: Table, states: Sequence[State]
) -> Iterator[tuple[State, Held]]:
    """Yield existing rows, including deleted ones, with their highest versions. In a history, a row that was
    taken back (`handlers.clickhouse.history`) is deleted without an end, and does not count."""
    key = ", ".join(map(identifier, table.key))
    ends = [table.end(name) for name in (*table.key, _VERSION, _PARTITION)]
    by_key = {state.text: state for state in reversed(states)}  # the first change of each row
    name = f"the row with this key in {table.name}"
    for keys in keys_of(table, states):
        rows = f"{table.sql} WHERE {keys}"
        if OPENED in table.added:
            select = f"SELECT {key}, {_VERSION}, {_PARTITION} FROM {table.sql}"
            gone = f"_deleted AND {identifier(list(table.added)[1])} IS NOT NULL"
            rows = f"({select} FINAL WHERE {keys} UNION ALL {select} WHERE {keys} AND {gone})"
        data = client.query(
            f"SELECT {key}, max({_VERSION}), argMax(toString({_PARTITION}), {_VERSION}) FROM {rows} "
            f"GROUP BY {key} FORMAT RowBinary"
        )
        for *values, version, partition in read_rows(data, ends):
            state = by_key.get(b"".join(values).hex())
            if state is not None:
                _, start = read_varint(partition, 0)
                yield state, Held(name, int.from_bytes(version, "little"), partition[start:].decode() or None)


def keys_of(table: Table, states: Sequence[State]) -> Iterator[str]:
    """Yield conditions that select the rows with these keys."""
    chosen = ", ".join(map(identifier, table.key))
    shape = ", ".join(f"{identifier(name)} {table.columns[name]}" for name in table.key)
    for start in range(0, len(states), _READ_AT_ONCE):
        data = "".join([state.text for state in states[start : start + _READ_AT_ONCE]])
        rows = f"format(RowBinary, {literal(shape)}, unhex('{data}'))"
        yield f"({chosen}) IN (SELECT {chosen} FROM {rows})"


def read_rows(data: bytes, ends: Sequence[End]) -> Iterator[list[bytes]]:
    """Yield the values of each row of RowBinary."""
    at = 0
    while at < len(data):
        values: list[bytes] = []
        for end_of_value in ends:
            end = end_of_value(data, at)
            values.append(data[at:end])
            at = end
        yield values
