"""What is known of a table of the target: its columns and keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from handlers.beyond_calendar import BeyondCalendar
from handlers.sql.types.values import Kind, UnfitValue, encode

__all__ = ["KnownColumn", "KnownTable", "TableName", "UnfitColumn"]

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
    is_numbered: bool = False
    """GENERATED ALWAYS AS IDENTITY: no UPDATE sets it."""
    array_type: str = ""
    """Of PostgreSQL and DuckDB: the array that carries its values."""
    cast: str = ""
    """Of PostgreSQL: what becomes of the array's elements, for a column that is an array itself."""

    null_becomes: str = ""
    """What the database would write for NULL; empty: NULL, or nothing and an error."""
    exactly: str = ""
    """An expression over a value, {}, that tells values apart which are one to `=`; empty: it does."""
    own: Callable[[Any], Any] | None = None
    """Of PostgreSQL and DuckDB: what its type needs of a value before it becomes text. Raises UnfitValue."""

    def given(self, placeholder: str) -> str:
        """A value of it in a statement. DuckDB compares no text with anything else; what PostgreSQL reads as
        money goes by the server's locale."""
        if isinstance(self.sql_type, postgresql.MONEY):
            return f"CAST({placeholder} AS numeric)::money"
        return f"CAST({placeholder} AS {self.array_type[:-2]})" if self.dialect == "duckdb" else placeholder

    def same(self, placeholder: str, operator: str = "=", owner: str = "") -> str:
        """A condition on the column, of `owner` (with its dot) or of the one table; `placeholder`: a value,
        which the condition has twice where `exactly` is set."""
        column = f"{owner}{self.quoted}"
        is_same = f"{column} {operator} {placeholder}"
        if not self.exactly:
            return is_same
        pair = self.exactly.format(column), self.exactly.format(placeholder)
        return f"{is_same} AND {pair[0]} {operator} {pair[1]}"

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
        """Raises UnfitColumn for what the database would change without a word."""
        if self.null_becomes and None in values:
            why = f"it is NULL, of which the database would make {self.null_becomes}"
            raise UnfitColumn(self.name, f"{why}; make it a column of the target that may be NULL")
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
                    if type(value) is Decimal and value.same_quantum(unit):
                        continue
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


def _refuse_digits(value: Any, scale: int) -> None:
    if type(value) not in (Decimal, float, str):
        return
    try:
        _, digits, exponent = Decimal(str(value)).as_tuple()
    except ArithmeticError:  # no number: the database says so
        return
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
    """The columns of every unique key by which ON CONFLICT finds rows, the primary key too."""
    alike: Sequence[str]
    """Columns of keys, ON CONFLICT's or not, in which values that differ are one to the database."""
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

    def columns_for(self, names: tuple[str, ...]) -> tuple[KnownColumn | None, ...]:
        """The columns for those of one row; None: there is none. Of two names that differ in case only, one
        may have none, while the other finds the column of its own name. Raises UnfitColumn if both would find
        the same in a database whose columns know no case."""
        found = tuple(map(self.column, names))
        given = [column for column in found if column is not None]
        twice = {column for column in given if given.count(column) > 1}
        if any(column.dialect != "postgresql" for column in twice):
            why = "names that differ in case only are one in the target; rename or exclude one of them"
            raise UnfitColumn(next(iter(twice)).name, why)
        return tuple(
            self.columns.get(name) if column in twice else column
            for name, column in zip(names, found, strict=True)
        )

    @property
    def numbers_always(self) -> bool:
        return any(column.is_numbered for column in self.columns.values())

    @property
    def shown(self) -> str:
        """Its name for people."""
        return ".".join(filter(None, self.name))

    def is_covered_by(self, row: Mapping[str, Any]) -> bool:
        """Whether the row sets all columns."""
        width = sum(not column.is_generated for column in self.columns.values())
        if len(row) < width:
            return False
        return width <= sum(
            column is not None and not column.is_generated for column in map(self.column, row)
        )
