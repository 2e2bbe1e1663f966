"""What is known of a table of the target: its columns and keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.sql.target.catalogs import Unsafe
from handlers.sql.types.losses import Losses
from handlers.sql.types.values import Kind, encode

TableName = tuple[str | None, str]
"""(schema or None, table)."""


class UnfitColumn(ValueError):
    """A value that its column cannot take."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


def row_id(columns: Iterable[str], dialect: str) -> str:
    """What SQLite or DuckDB tells rows apart by in a table with these columns, which may hide its usual name.

    Raises UnfitColumn."""
    taken = {name.lower() for name in columns}
    for name in ("rowid", "_rowid_", "oid") if dialect == "sqlite" else ("rowid",):
        if name not in taken:
            return name
    raise UnfitColumn(
        "rowid", "its name hides what rows without a key are told apart by; rename or exclude it"
    )


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
    """Of PostgreSQL and DuckDB: the array that carries its values; of SQLite: its declared type."""
    cast: str = ""
    """Of PostgreSQL: what becomes of the array's elements, for a column that is an array itself."""
    null_becomes: str = ""
    """What the database would write for NULL; empty: NULL, or nothing and an error."""
    is_renewed: bool = False
    """ON UPDATE CURRENT_TIMESTAMP: an UPDATE that does not set it changes it."""
    exactly: str = ""
    """An expression over a value, {}, that tells values apart which are one to `=`; empty: it does."""
    own: Callable[[Any], Any] | None = None
    """What its type makes of a value before the driver gets it. Raises UnfitValue."""
    losses: Losses | None = None

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
        known = set(map(type, values)) if types is None else types
        self.refuse_loss(values, known)
        try:
            if self.own is None:
                return encode(values, self.kind, self.dialect, known)
            own = [None if value is None else self.own(value) for value in values]
            return encode(own, self.kind, self.dialect)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise UnfitColumn(self.name, str(error)) from error

    def refuse_loss(self, values: Sequence[Any], types: set[type]) -> None:
        """Raises UnfitColumn for what the database would change without a word; `types`: of the values."""
        if self.null_becomes and type(None) in types:
            why = f"it is NULL, of which the database would make {self.null_becomes}"
            raise UnfitColumn(self.name, f"{why}; make it a column of the target that may be NULL")
        if self.losses is not None and not types.isdisjoint(self.losses.of):
            try:
                self.losses.refuse(values)
            except ValueError as error:
                raise UnfitColumn(self.name, str(error)) from error


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
    unsafe: Unsafe
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
    def row_id(self) -> str:
        """See `row_id`. Raises UnfitColumn."""
        return row_id(self.columns, next(iter(self.columns.values())).dialect)

    @property
    def shown(self) -> str:
        """Its name for people."""
        return ".".join(filter(None, self.name))

    def is_covered_by(self, row: Mapping[str, Any]) -> bool:
        """Whether the row sets all columns."""
        width = sum(not column.is_generated for column in self.columns.values())
        return width <= len(row) and width <= sum(
            column is not None and not column.is_generated for column in map(self.column, row)
        )
