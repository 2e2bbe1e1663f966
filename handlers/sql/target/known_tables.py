"""What is known of the target's tables: their columns and keys, reflected once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from threading import Lock
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.beyond_calendar import BeyondCalendar
from handlers.sql.naming import check_names, exact, exact_table
from handlers.sql.types.duckdb_types import interval_text
from handlers.sql.types.postgresql_types import bit_text, hstore_text, other_text, point_text
from handlers.sql.types.values import Kind, UnfitValue, encode, kind_of

__all__ = ["KnownColumn", "KnownTable", "KnownTables", "TableName", "UnfitColumn", "own_name"]

TableName = tuple[str | None, str]
"""(schema or None, table)."""


class UnfitColumn(ValueError):
    """A value that its column cannot take."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


@dataclass(frozen=True, eq=False, slots=True)
class KnownColumn:
    """A column of the target."""

    name: str
    quoted: str
    kind: Kind
    dialect: str
    sql_type: sa.types.TypeEngine[Any]
    is_required: bool
    """NOT NULL and without a default."""
    is_generated: bool
    """Its values come from other columns; none can be written."""
    default: str = ""
    """What an UPDATE sets it to its default by; "" for a column that is generated, or numbers its rows."""
    array_type: str = ""
    """Of PostgreSQL and DuckDB: the array that carries its values."""
    cast: str = ""
    """Of PostgreSQL: what becomes of the array's elements, for a column that is an array itself."""

    own: Callable[[Any], Any] | None = None
    """Of PostgreSQL and DuckDB: what its type needs of a value before it becomes text. Raises UnfitValue."""

    def given(self, placeholder: str) -> str:
        """A value of it in a statement. DuckDB compares no text with anything else; what PostgreSQL reads as
        money goes by the server's locale."""
        if isinstance(self.sql_type, postgresql.MONEY):
            return f"CAST({placeholder} AS numeric)::money"
        return f"CAST({placeholder} AS {self.array_type[:-2]})" if self.dialect == "duckdb" else placeholder

    def encode(self, values: Sequence[Any], types: set[type] | None = None) -> Sequence[Any]:
        """The values as the driver takes them; `types`: theirs, if known. Raises UnfitColumn."""
        self.refuse_loss(values)
        try:
            if self.own is not None:
                values = [None if value is None else self.own(value) for value in values]
                types = None
            return encode(values, self.kind, self.dialect, types)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise UnfitColumn(self.name, str(error)) from error

    def refuse_loss(self, values: Sequence[Any]) -> None:
        """Raises UnfitColumn for what the database would round without a word."""
        try:
            self._refuse_loss(values)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise UnfitColumn(self.name, str(error)) from error

    def _refuse_loss(self, values: Sequence[Any]) -> None:
        if self.kind is Kind.DECIMAL:
            scale = getattr(self.sql_type, "scale", None)
            if scale is not None and self.dialect != "sqlite":
                unit = Decimal(1).scaleb(-scale)
                for value in values:
                    if type(value) is Decimal and not value.same_quantum(unit):
                        _refuse_digits(value, scale)
        elif self.kind in (Kind.DATETIME, Kind.TIME):
            digits = _digits(self.sql_type)
            if digits is not None and digits < 6:
                step = 10 ** (6 - digits)
                for value in values:
                    if isinstance(value, datetime | BeyondCalendar) and value.microsecond % step:
                        raise UnfitValue(f"{value} has more than {digits} digits after the second")
                    if isinstance(value, timedelta) and value.microseconds % step:
                        raise UnfitValue(f"{value} has more than {digits} digits after the second")
        elif self.dialect == "sqlite" and self.kind is Kind.INTEGER:
            for value in values:
                if isinstance(value, int) and not -(2**63) <= value < 2**63:
                    raise UnfitValue(f"{value} is beyond SQLite's integers; make it a column of text")


def _refuse_digits(value: Decimal, scale: int) -> None:
    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and any(digits[max(0, len(digits) + exponent + scale) :]):
        raise UnfitValue(f"{value} has more than {scale} digits after the point")


def _digits(type_: sa.types.TypeEngine[Any]) -> int | None:
    """Of a second's fraction; None: all six."""
    if isinstance(type_, mysql.DATETIME | mysql.TIMESTAMP | mysql.TIME):
        return type_.fsp or 0
    precision = getattr(type_, "precision", None)
    return precision if isinstance(precision, int) else None


@dataclass(frozen=True, eq=False, slots=True)
class KnownTable:
    """A table of the target as it was when it was last looked at."""

    name: TableName
    quoted: str
    columns: Mapping[str, KnownColumn]
    primary_key: tuple[str, ...]
    uniques: frozenset[frozenset[str]]
    """The columns of every unique key, the primary key too."""
    numbers_always: bool
    """A column is GENERATED ALWAYS AS IDENTITY."""
    _found: dict[str, KnownColumn | None] = field(default_factory=dict)

    def column(self, name: str) -> KnownColumn | None:
        """The column for a source column: of the same name, or of one that differs in case only."""
        try:
            return self._found[name]
        except KeyError:
            column = self.columns.get(name)
            if column is None:
                alike = [one for one in self.columns.values() if one.name.lower() == name.lower()]
                column = alike[0] if len(alike) == 1 else None
            self._found[name] = column
            return column

    @property
    def shown(self) -> str:
        """Its name for people."""
        return ".".join(filter(None, self.name))

    @property
    def width(self) -> int:
        """How many columns a whole row sets."""
        return sum(not column.is_generated for column in self.columns.values())


class KnownTables:
    """All tables that were asked for, until something is heard that changes them."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards _tables
        self._tables: dict[TableName, KnownTable] = {}

    def get(self, connection: sa.Connection, name: TableName) -> KnownTable | None:
        """None: there is no such table. Raises NameUnfit."""
        with self._lock:
            known = self._tables.get(name)
        if known is not None:
            return known
        table = _reflect(connection, name)
        if table is not None:
            with self._lock:
                self._tables[name] = table
        return table

    def forget(self, *names: TableName) -> None:
        with self._lock:
            for name in names:
                self._tables.pop(name, None)


def own_name(reflected: str, dialect: str) -> str:
    """A column's name. SQLAlchemy gives MySQL's as SHOW CREATE TABLE escapes them."""
    return reflected.replace("``", "`") if dialect in ("mysql", "mariadb") else reflected


# As PostgreSQL names types in a cast: without length, of an array's element too (-1: bpchar, not char(1)).
_PG_TYPES = """
    SELECT a.attname, format_type(a.atttypid, -1), t.typcategory = 'A'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = CAST(:name AS regclass) AND a.attnum > 0 AND NOT a.attisdropped
"""


def _reflect(connection: sa.Connection, name: TableName) -> KnownTable | None:
    schema, table = name
    dialect = connection.dialect
    check_names(name, dialect.name)
    inspector = sa.inspect(connection)
    quoted = dialect.identifier_preparer.format_table(exact_table(schema, table))
    try:
        with warnings.catch_warnings():
            # "Did not recognize type": such a column takes what is given, as text.
            warnings.simplefilter("ignore", sa.exc.SAWarning)
            found = inspector.get_columns(table, schema=schema)
            primary_key = tuple(inspector.get_pk_constraint(table, schema=schema)["constrained_columns"])
            indexes = inspector.get_indexes(table, schema=schema)
            constraints = inspector.get_unique_constraints(table, schema=schema)
    except sa.exc.NoSuchTableError:
        return None
    if not found:
        return None
    for one in found:
        one["name"] = own_name(one["name"], dialect.name)
    primary_key = tuple(own_name(column, dialect.name) for column in primary_key)
    uniques: list[Any] = [primary_key]
    uniques += [constraint["column_names"] for constraint in constraints]
    uniques += [
        index["column_names"] for index in indexes if index["unique"] and not _is_partial(dict(index))
    ]
    arrays = _array_types(connection, quoted, found)
    return KnownTable(
        name,
        quoted,
        {one["name"]: _column(one, dialect, primary_key, arrays.get(one["name"], ("", ""))) for one in found},
        primary_key,
        frozenset(
            frozenset(own_name(one, dialect.name) for one in columns) for columns in uniques if columns
        ),
        any(bool((identity := one.get("identity")) and identity["always"]) for one in found),
    )


def _is_partial(index: Mapping[str, Any]) -> bool:
    """Whether the index is of some rows, or of expressions, only: it is no key then."""
    options: Mapping[str, Any] = index.get("dialect_options", {})
    return None in index["column_names"] or any(
        key.endswith("_where") and options[key] is not None for key in options
    )


def _array_types(connection: sa.Connection, quoted: str, found: Sequence[Any]) -> dict[str, tuple[str, str]]:
    if connection.dialect.name == "duckdb":
        return {one["name"]: (f"{one['declared']}[]", "") for one in found}
    if connection.dialect.name != "postgresql":
        return {}
    plain = quoted.replace("%%", "%")  # the driver's own escape, which no parameter takes
    types = {}
    for column, name, is_array in connection.execute(sa.text(_PG_TYPES), {"name": plain}):
        # Arrays of arrays would be taken apart to their last elements.
        # And what PostgreSQL reads as money goes by the server's locale.
        is_money = name == "money"
        carried = "text[]" if is_array else "numeric[]" if is_money else f"{name}[]"
        types[column] = carried, f"::{name}" if is_array or is_money else ""
    return types


def _column(
    found: Any, dialect: sa.Dialect, primary_key: Sequence[str], array: tuple[str, str]
) -> KnownColumn:
    name = found["name"]
    is_numbered = found.get("autoincrement") is True or bool(found.get("identity"))
    has_default = found.get("default") is not None or is_numbered
    return KnownColumn(
        name,
        dialect.identifier_preparer.quote(exact(name)),
        _kind(found["type"], dialect.name),
        dialect.name,
        found["type"],
        is_required=not found["nullable"] and not has_default and name not in primary_key,
        is_generated=found.get("computed") is not None,
        default="" if found.get("computed") is not None or is_numbered else _default(found, dialect.name),
        array_type=array[0],
        cast=array[1],
        own=_own(found["type"], array[0], dialect.name),
    )


def _default(found: Any, dialect: str) -> str:
    if dialect != "sqlite":
        return "DEFAULT"
    return f"({found['default']})" if found.get("default") is not None else "NULL"


def _own(type_: sa.types.TypeEngine[Any], array_type: str, dialect: str) -> Callable[[Any], Any] | None:
    if dialect != "postgresql":
        is_interval = dialect == "duckdb" and isinstance(type_, postgresql.INTERVAL)
        return interval_text if is_interval else None
    if isinstance(type_, postgresql.BIT):
        return partial(bit_text, length=type_.length, is_varying=type_.varying)
    if isinstance(type_, postgresql.HSTORE):
        return hstore_text
    if isinstance(type_, sa.types.NullType):
        return point_text if array_type == "point[]" else other_text
    return None


def _kind(type_: sa.types.TypeEngine[Any], dialect: str) -> Kind:
    # Of MySQL, BOOL is a number from -128 to 127.
    if isinstance(type_, mysql.TINYINT):
        return Kind.INTEGER
    # A domain is read as what it is a domain of.
    if dialect == "postgresql" and isinstance(type_, postgresql.DOMAIN):
        return kind_of(type_.data_type)
    return kind_of(type_)
