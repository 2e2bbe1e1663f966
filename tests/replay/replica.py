"""The tables of a target, compared with those that the source held at its end."""

from __future__ import annotations

import base64
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa
from captured import Truth, truth
from psycopg.types.json import set_json_loads
from psycopg.types.string import TextLoader
from sqlalchemy.dialects import mysql

from handlers.sql.naming import Naming

__all__ = ["MYSQL", "Differences", "Replica", "Row", "Workload", "compare", "compare_all"]

Row = dict[str, Any]
Differences = dict[tuple[str, str], int]
"""(table, column) -> in how many rows it differs. For columns stand, too: `row missing`, `row too many`,
`column missing`, `column too many` (of the whole table), `table missing`, `table too many`."""

_OWN_TABLES = ("binlane_marks",)


@dataclass(frozen=True)
class Workload:
    """What the source held at its end, and how its values and a target's become comparable."""

    databases: Sequence[str]
    """Of all its tables."""
    truth: Callable[[], dict[str, Truth]]
    from_source: Callable[[Any, str], Any]
    """(value of the truth, its type) -> the value as docs/formats.md says that it is read."""
    from_target: Callable[[Any, str], Any]
    """(value as a target's driver gives it, the source's type) -> the same."""


@dataclass(frozen=True)
class Replica:
    """What a `sql` handler keeps."""

    url: str
    schema: str | None = None
    """The handler's option."""
    workload: Workload | None = None
    """None: that of MySQL."""

    def differences(self, tables: Sequence[str] | None = None) -> Differences:
        """From the source's own rows, in all its tables; of those that are missing, in `tables` only."""
        engine = sa.create_engine(self.url)
        if engine.dialect.name == "postgresql":
            sa.event.listen(engine, "connect", _keep_texts)
        naming = Naming.of(engine.dialect.name, self.schema)
        with engine.connect() as connection:
            workload = self.workload or MYSQL
            there = dict(_tables(connection, naming, workload.databases))
            found = compare_all(there, lambda table: list(_rows(connection, *there[table])), tables, workload)
        engine.dispose()
        return found


def compare_all(
    there: Iterable[str],
    rows_of: Callable[[str], list[Row]],
    tables: Sequence[str] | None = None,
    workload: Workload | None = None,
) -> Differences:
    """The target's tables from the source's; see Replica.differences."""
    workload = workload or MYSQL
    names, expected = set(there), workload.truth()
    found: Counter[tuple[str, str]] = Counter()
    for table in names - expected.keys():
        found[table, "table too many"] += 1
    for table, source in expected.items():
        if table in names:
            found.update(compare(source, rows_of(table), workload))
        elif tables is None or table in tables:
            found[table, "table missing"] += 1
    return dict(found)


def _tables(
    connection: sa.Connection, naming: Naming, databases: Sequence[str]
) -> Iterator[tuple[str, tuple[str | None, str]]]:
    """The source's name of each table of the databases, and the target's."""
    inspector = sa.inspect(connection)
    if naming.schema is None:
        for name in set(inspector.get_table_names()) - set(_OWN_TABLES):
            yield name, (None, name)
        return
    for database in databases:
        schema, _ = naming.target(database, "")
        if schema in inspector.get_schema_names():
            for name in set(inspector.get_table_names(schema)) - set(_OWN_TABLES):
                yield f"{database}.{name}", (schema, name)


def _rows(connection: sa.Connection, schema: str | None, name: str) -> Iterator[Row]:
    quote = connection.dialect.identifier_preparer.quote_identifier
    ref = ".".join(quote(part) for part in (schema, name) if part is not None)
    is_mysql = connection.dialect.name == "mysql"
    names, shown = [], []
    for column in sa.inspect(connection).get_columns(name, schema=schema):
        # SQLAlchemy gives MySQL's names as SHOW CREATE TABLE escapes them.
        own = column["name"].replace("``", "`") if is_mysql else column["name"]
        names.append(own)
        # MySQL prints six digits of a FLOAT, unless it widens it.
        shown.append(quote(own) + ("+0e0" if isinstance(column["type"], mysql.FLOAT) else ""))
    query = f"SELECT {', '.join(shown)} FROM {ref}".replace("%%", "%")
    for row in connection.exec_driver_sql(query, execution_options={"no_parameters": True}):
        yield dict(zip(names, row, strict=True))


def _keep_texts(connection: Any, _: Any) -> None:
    """JSON as it is spelled; times that no calendar of Python's has."""
    own = ("bit", "varbit", "money", "inet", "cidr", "interval", "time", "timetz")
    ranges = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")
    for name in ("date", "timestamp", "timestamptz", *own, *ranges):
        connection.adapters.register_loader(name, TextLoader)
    set_json_loads(lambda text: text if isinstance(text, str) else bytes(text).decode(), connection)


# ---- rows


def compare(source: Truth, rows: list[Row], workload: Workload | None = None) -> Differences:
    """A table's rows from the source's."""
    from_source, from_target = (workload or MYSQL).from_source, (workload or MYSQL).from_target
    found: Counter[tuple[str, str]] = Counter()
    columns = set().union(*rows) if rows else set(source.columns)
    for column in columns - source.columns.keys():
        found[source.table, f"column too many: {column}"] += 1
    missing = source.columns.keys() - columns
    for column in missing:
        found[source.table, f"column missing: {column}"] += 1
    present = [column for column in source.columns if column not in missing]
    key = [column for column in source.primary_key if column in present]
    types = source.columns
    expected = [{c: from_source(row[c], types[c]) for c in present} for row in source.rows]
    actual = [{c: from_target(row[c], types[c]) for c in present} for row in rows]
    wanted: dict[tuple[str, ...], list[Row]] = {}
    for row in expected:
        wanted.setdefault(_identity(row, key or present), []).append(row)
    for row in actual:
        matches = wanted.get(_identity(row, key or present))
        if not matches:
            found[source.table, "row too many"] += 1
            continue
        match = matches.pop()
        for column in present:
            if repr(row[column]) != repr(match[column]):
                found[source.table, column] += 1
    lacking = sum(map(len, wanted.values()))
    if lacking:
        found[source.table, "row missing"] += lacking
    return dict(found)


def _identity(row: Row, columns: list[str]) -> tuple[str, ...]:
    return tuple(repr(row[column]) for column in columns)


# ---- values: as docs/formats.md says that they are read, whatever the target keeps them in

_TIME = re.compile(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d{1,6}))?")


def _from_source(value: Any, type_text: str) -> Any:
    """A value of the server's own dump."""
    if isinstance(value, dict) and "json" in value:
        return msgspec.json.format(value["json"], indent=-1)
    if isinstance(value, dict):
        srid = value["srid"].to_bytes(4, "little") if "srid" in value else b""
        return srid + base64.b64decode(value["base64"])
    if isinstance(value, str) and type_text.startswith(("date", "timestamp")) and "-00" in value:
        return None  # a date that no calendar has
    return _from_target(value, type_text)


def _from_target(value: Any, type_text: str) -> Any:  # noqa: PLR0911 - one return a type
    """A value as a driver gives it. What cannot be read by its type stays as it is, and so differs."""
    name = re.split(r"\W", type_text)[0]
    if value is None:
        return None
    try:
        match name:
            case "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "bit" | "year":
                return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)
            case "decimal":
                return Decimal(value)
            case "float":
                # The dump dropped the sign of zero.
                return struct.unpack("<f", struct.pack("<f", value))[0] + 0.0
            case "double":
                return float(value) + 0.0
            case "date":
                return value if isinstance(value, date) else date.fromisoformat(value)
            case "datetime" | "timestamp":
                moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
                if name == "datetime":
                    return moment
                return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            case "time":
                return value if isinstance(value, timedelta) else _time(value)
            case "set":
                return tuple(filter(None, value.split(","))) if isinstance(value, str) else tuple(value)
    except (ValueError, ArithmeticError, TypeError):
        return value
    return value


def _time(text: str) -> timedelta:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = int((fraction or "").ljust(6, "0"))
    length = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=micros)
    return -length if sign else length


MYSQL = Workload(("shop", "crm"), truth, _from_source, _from_target)
