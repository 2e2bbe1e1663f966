"""Alibaba DTS change records: Avro in binary encoding, with one row or statement in each record.

`schema` describes the records."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress

from handlers import Change
from handlers.api import Operation
from worker.formats.dts.record import DTSRecord, Header, RecordReader, Row, names_of, read_header, routing_key
from worker.formats.images import Image, changes_from, deleted, lacking, statement_from, updated
from worker.formats.interface import (
    SOME,
    Named,
    PlainRoute,
    Record,
    Route,
    Skip,
    UndecodableRecord,
    has_calendar,
)
from worker.formats.schema_registry.avro.values import READ_ERRORS

_ROWS: Mapping[str, Operation] = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete"}
_SKIPPED = {"BEGIN": "transaction", "COMMIT": "transaction"}
_NOISE_BYTES = 48
"""DTS writes empty records to advance offsets when it filters out everything. Its own client ignores values
of at most this many bytes. This reader ignores them only if they are also not a change."""
_MAX_ROUTES = 20_000
_FAULTS = (ArithmeticError, *READ_ERRORS)


_NOWHERE = PlainRoute("", "")
"""The route of records that `explain` must handle."""


class DTS:
    """The format of DTS change records. All threads share one object."""

    name = "dts"

    def __init__(self) -> None:
        self.route: Callable[[bytes], Route] = self._route
        self._reader = RecordReader()
        # Bytes of operation and name -> route. Threads share it without a lock: each access is one dict
        # operation. Two threads that miss at the same time make the same route twice.
        self._routes: dict[bytes, PlainRoute] = {}

    def _route(self, value: bytes) -> Route:
        """Route a value. Never raises: values without a table and invalid records go to `explain`."""
        try:
            if len(value) <= _NOISE_BYTES:
                return self._slow_route(value)
            return self._routes[routing_key(value)]
        except (*_FAULTS, TypeError, KeyError):
            return self._slow_route(value)

    def _slow_route(self, value: bytes | None) -> PlainRoute:
        try:
            found = self._explain(value)
        except UndecodableRecord:
            return _NOWHERE
        route = _NOWHERE if isinstance(found, Skip) else found
        # Do not remember routes of statements, which may name another table, or of values that may be noise.
        if value is not None and len(value) > _NOISE_BYTES and read_header(value).operation != "DDL":
            if len(self._routes) >= _MAX_ROUTES:
                self._routes.clear()
            self._routes[routing_key(value)] = route
        return route

    def explain(self, record: Record) -> Route | Skip:
        return self._explain(record.value())

    def _explain(self, value: bytes | None) -> PlainRoute | Skip:
        if value is None:
            return Skip("noise")
        try:
            return self._place(value)
        except _FAULTS as error:
            if len(value) <= _NOISE_BYTES:
                return Skip("noise")
            raise _undecodable(value, error) from None

    def _place(self, value: bytes) -> PlainRoute | Skip:
        header = read_header(value)
        operation = header.operation
        if operation not in _ROWS and operation != "DDL":
            return Skip(_SKIPPED.get(operation) or operation.lower())
        database, table = ("", "") if header.object_name is None else names_of(header.object_name)
        if len(value) <= _NOISE_BYTES:
            self._reader.read(value)
        if table:
            return PlainRoute(database, table, alone=operation == "DDL")
        if operation != "DDL":
            raise ValueError(f"{operation} without a table (`objectName` is {database!r})")
        named = table_of(_statement(self._reader.read(value)), database)
        return Skip("database_ddl") if named is None or not named[0] else PlainRoute(*named, alone=True)

    def source_time_ms(self, record: Record) -> int | None:
        """The time of the change, `sourceTimestamp`, which DTS gives in seconds."""
        return _time_ms(read_header(record.value() or b""))

    def transactions(self, record: Record) -> Named:
        header = read_header(record.value() or b"")
        name = header.transaction if header.transaction != "0" else ""
        if header.operation == "BEGIN":
            return None, name or SOME
        return name, None if header.operation == "COMMIT" else name

    def decode(self, record: Record, into: list[Change]) -> None:
        """Append the record's change (two if the row's key changed), or nothing for a record without one."""
        value = record.value()
        if value is None:
            return
        try:
            read = self._reader.read(value)
        except _FAULTS as error:
            if len(value) <= _NOISE_BYTES:
                return
            raise _undecodable(value, error) from None
        if read.header.operation == "DDL":
            sql = _told(read)
            into += statement_from(
                sql,
                record,
                truncates=is_truncate(sql),
                time_ms=_time_ms(read.header),
                transaction=read.transaction,
            )
        elif read.header.operation in _ROWS:
            shape = read.shape
            into += changes_from(
                _images(read),
                record,
                key=None if shape is None else shape.key_columns,
                types=None if shape is None else shape.types,
                time_ms=_time_ms(read.header),
                transaction=read.transaction,
            )


def _images(read: DTSRecord) -> tuple[Image, ...]:
    op = _ROWS[read.header.operation]
    before, after = read.before, read.after
    if isinstance(before, str) or isinstance(after, str):
        raise UndecodableRecord(f"not a DTS record: {read.header.operation}, but its images contain text")
    if read.shape is None or (before if op == "delete" else after) is None:
        which = "beforeImages" if op == "delete" else "afterImages"
        raise UndecodableRecord(f"not a DTS record: {read.header.operation} without `{which}`")
    columns, key = read.shape.names, read.shape.key_columns
    if op == "delete":
        return (deleted(before or {}, key, columns),)
    row: Row = after or {}
    if op == "insert":
        return (Image(op, None, row),)
    if before is None:
        return updated(None, row, key, lacks=lacking(columns, row))
    is_whole = len(before) == len(columns)
    if len(row) < len(columns):
        # Columns that the source did not log in the after image did not change.
        row = {**before, **row}
    if not is_whole:
        before = {**{name: row[name] for name in key or () if name in row}, **before}
    return updated(before, row, key, lacks=lacking(columns, row), before_is_whole=is_whole)


def _time_ms(header: Header) -> int:
    time_ms = header.source_time * 1000
    if not has_calendar(time_ms):
        raise UndecodableRecord(
            f"its `sourceTimestamp`, {header.source_time} s, is outside the years 1 to 9999"
        )
    return time_ms


def _statement(read: DTSRecord) -> str:
    if isinstance(read.after, str):
        return read.after
    raise UndecodableRecord("not a DTS record: DDL without a statement in `afterImages`")


def _told(read: DTSRecord) -> str:
    """Return the statement, with the databases of all its tables if its first one is in another database than
    the statement ran in."""
    sql, name = _statement(read), read.header.object_name
    if name is None or read.header.source_type == "PostgreSQL":
        return sql
    ran_in = names_of(name)[0]
    place = table_of(sql, ran_in)
    if place is None or place[0] == ran_in:
        return sql
    # Imported with the first such statement: sqlglot is slow to import.
    from handlers.mysql.ddl import StatementError, parse  # noqa: PLC0415
    from handlers.mysql.ddl.written import net, written  # noqa: PLC0415

    with suppress(StatementError):
        told = net(parse(sql, ran_in))
        return sql if told == net(parse(sql, place[0])) else written(told)
    return sql


def _undecodable(value: bytes, error: Exception) -> UndecodableRecord:
    if isinstance(error, UndecodableRecord):
        return error
    if value[:1] in (b"{", b"["):
        return UndecodableRecord("not a DTS record, but JSON: does this topic have another format?")
    what = (
        f"it is cut off after {len(value)} bytes" if isinstance(error, (IndexError, struct.error)) else error
    )
    return UndecodableRecord(f"not a DTS record: {what} (it begins with {value[:16].hex(' ')})")


# ---- the table of a statement: a DDL record names only the database in which it ran

# One space or comment. It is atomic, because backtracking over many comments would take forever.
_SPACE = r"(?>\s|/\*.*?\*/|--[^\n]*(?:\n|$)|\#[^\n]*(?:\n|$))"
_NAME = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_WORDS = {"s": f"{_SPACE}+", "name": _NAME}
_INDEX = "INDEX{s}(?:CONCURRENTLY{s})?(?:IF{s}(?:NOT{s})?EXISTS{s})?{name}{s}ON"
_BEGINNINGS = (
    "CREATE{s}(?:(?:OR{s}REPLACE|UNLOGGED){s})?TABLE(?:{s}IF{s}NOT{s}EXISTS)?",
    "ALTER{s}(?:(?:ONLINE|IGNORE){s})*TABLE(?:{s}IF{s}EXISTS)?(?:{s}ONLY)?",
    "DROP{s}TABLES?(?:{s}IF{s}EXISTS)?",
    "(?P<truncate>TRUNCATE)(?:{s}TABLE)?(?:{s}ONLY)?",
    "RENAME{s}TABLES?(?:{s}IF{s}EXISTS)?",
    "CREATE{s}(?:OR{s}REPLACE{s})?(?:(?:UNIQUE|FULLTEXT|SPATIAL){s})?" + _INDEX,
    "DROP{s}" + _INDEX,
)
_STATEMENT = re.compile(
    rf"{_SPACE}*(?:{'|'.join(beginning.format_map(_WORDS) for beginning in _BEGINNINGS)})"
    rf"(?:{_SPACE}+|(?=[`\"]))(?P<first>{_NAME})(?:\s*\.\s*(?P<second>{_NAME}))?",
    re.IGNORECASE | re.DOTALL,
)


def table_of(sql: str, database: str) -> tuple[str, str] | None:
    """The first (database, table) that the statement names, or None for a statement about no table.

    `database`: the database in which it ran. Names keep their spelling, without quotes."""
    found = _STATEMENT.match(sql)
    if found is None:
        return None
    first, second = found["first"], found["second"]
    if second is None:
        return database, _plain(first)
    return _plain(first), _plain(second)


def is_truncate(sql: str) -> bool:
    """Whether the statement empties a whole table."""
    found = _STATEMENT.match(sql)
    return found is not None and found["truncate"] is not None


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
