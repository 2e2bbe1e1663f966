"""Facts about a table of the target: columns and keys (cached), and foreign keys that change other rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from handlers.sql.naming import exact_table
from handlers.sql.target.catalogs import Unsafe
from handlers.sql.types.losses import Losses
from handlers.sql.types.values import Kind, encode

TableName = tuple[str | None, str]
"""(schema or None, table)."""


class UnfitColumn(ValueError):
    """A value that its column cannot store."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column


class TableChanged(Exception):
    """The table is no longer as it was last reflected."""


def row_id(columns: Iterable[str], dialect: str) -> str:
    """Return the name of SQLite's or DuckDB's row id in a table with these columns.

    A column may hide a name of the row id. Raises UnfitColumn if all names are hidden."""
    taken = {name.lower() for name in columns}
    for name in ("rowid", "_rowid_", "oid") if dialect == "sqlite" else ("rowid",):
        if name not in taken:
            return name
    raise UnfitColumn(
        "rowid", "its name hides the id that distinguishes rows without a key; rename or exclude it"
    )


@dataclass(frozen=True, eq=False, slots=True)
class KnownColumn:
    name: str
    quoted: str
    kind: Kind
    dialect: str
    sql_type: sa.types.TypeEngine[Any]
    is_required: bool
    """Whether it is NOT NULL and has no default."""
    is_generated: bool
    """Whether the database computes it from other columns. It cannot be written."""
    default: str = ""
    """The expression with which an UPDATE sets its default; empty if it is generated or numbers its rows."""
    is_numbered: bool = False
    """Whether it is GENERATED ALWAYS AS IDENTITY, which no UPDATE may set."""
    array_type: str = ""
    """PostgreSQL and DuckDB: the array type that carries its values. SQLite: its declared type."""
    cast: str = ""
    """PostgreSQL: the cast of each element of that array, for columns of arrays and of money."""
    null_becomes: str = ""
    """What the database would store for NULL; empty if it stores NULL or raises an error."""
    is_renewed: bool = False
    """Whether it is ON UPDATE CURRENT_TIMESTAMP: an UPDATE that does not set it changes it."""
    exactly: str = ""
    """An expression over a value, {}, that separates values which `=` treats as equal; else empty."""
    own: Callable[[Any], Any] | None = None
    """Converts a value for its type before the driver encodes it. Raises UnfitValue."""
    losses: Losses | None = None

    def given(self, placeholder: str) -> str:
        """Return the placeholder with a cast if needed. DuckDB compares text only with text. PostgreSQL reads
        money by the server's locale."""
        if isinstance(self.sql_type, postgresql.MONEY):
            return f"CAST({placeholder} AS numeric)::money"
        return f"CAST({placeholder} AS {self.array_type[:-2]})" if self.dialect == "duckdb" else placeholder

    def same(self, placeholder: str, operator: str = "=", owner: str = "") -> str:
        """Return a condition on the column of `owner` (with its dot) or of the only table. `placeholder` is
        the value. If `exactly` is set, the condition contains it twice."""
        column = f"{owner}{self.quoted}"
        is_same = f"{column} {operator} {placeholder}"
        if not self.exactly:
            return is_same
        pair = self.exactly.format(column), self.exactly.format(placeholder)
        return f"{is_same} AND {pair[0]} {operator} {pair[1]}"

    def encode(self, values: Sequence[Any], types: set[type] | None = None) -> Sequence[Any]:
        """Encode the values for the driver. `types` are their types, if known. Raises UnfitColumn."""
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
        """Raise UnfitColumn for values that the database would change silently. `types` are their types."""
        if self.null_becomes and type(None) in types:
            why = f"it is NULL, but the database would write {self.null_becomes}"
            raise UnfitColumn(self.name, f"{why}; make the target's column nullable")
        if self.losses is not None and not types.isdisjoint(self.losses.of):
            try:
                self.losses.refuse(values)
            except ValueError as error:
                raise UnfitColumn(self.name, str(error)) from error


@dataclass(frozen=True, eq=False, slots=True)
class KnownTable:
    """A table of the target as it was last reflected."""

    name: TableName
    quoted: str
    columns: Mapping[str, KnownColumn]
    primary_key: tuple[str, ...]
    uniques: frozenset[frozenset[str]]
    """The columns of each unique key that ON CONFLICT can use, including the primary key."""
    alike: Sequence[str]
    """Columns of any unique key in which the database treats different values as equal."""
    unsafe: Unsafe
    definition: str
    """As `handlers.sql.target.catalogs.definition` returned it before the rest was read."""
    _found: dict[str, KnownColumn | None] = field(default_factory=dict)

    def column(self, name: str) -> KnownColumn | None:
        """Return the column for a source column: of the same name, or of one that differs only in case."""
        try:
            return self._found[name]
        except KeyError:
            column = self.columns.get(name)
            if column is None:
                alike = [one for one in self.columns.values() if one.name.lower() == name.lower()]
                column = alike[0] if len(alike) == 1 else None
            self._found[name] = column
            return column

    def columns_for(self, names: tuple[str, ...], types: Mapping[str, str]) -> tuple[KnownColumn | None, ...]:
        """Return the columns for those of one row, or None for a missing one. If two names find one column,
        only the name with its exact spelling gets it (PostgreSQL). Other databases ignore case, so for them
        this raises UnfitColumn. `types`: perhaps more names, also of columns that the row lacks."""
        found = tuple(map(self.column, names))
        known = tuple(map(self.column, types)) if types.keys() > set(names) else found
        twice = {column for column in found if column is not None and known.count(column) > 1}
        if any(column.dialect != "postgresql" for column in twice):
            why = "names that differ only in case are the same in the target; rename or exclude one of them"
            raise UnfitColumn(next(iter(twice)).name, why)
        return tuple(
            self.columns.get(name) if column in twice else column
            for name, column in zip(names, found, strict=True)
        )

    @property
    def shown(self) -> str:
        """Its readable name."""
        return ".".join(filter(None, self.name))

    def is_covered_by(self, row: Mapping[str, Any]) -> bool:
        """Whether the row sets all columns."""
        width = sum(not column.is_generated for column in self.columns.values())
        return width <= len(row) and width <= sum(
            column is not None and not column.is_generated for column in map(self.column, row)
        )


_POSTGRESQL = sa.text("""
SELECT DISTINCT conrelid::regclass::text, conrelid = confrelid, confdeltype IN ('c', 'n', 'd')
FROM pg_constraint WHERE contype = 'f' AND confrelid = to_regclass(:name)
AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd')) ORDER BY 1
""")
_MYSQL = sa.text("""
SELECT DISTINCT concat(constraint_schema, '.', table_name),
constraint_schema = :schema AND table_name = :table, delete_rule NOT IN ('RESTRICT', 'NO ACTION')
FROM information_schema.referential_constraints
WHERE unique_constraint_schema = :schema AND referenced_table_name = :table
AND NOT (delete_rule IN ('RESTRICT', 'NO ACTION') AND update_rule IN ('RESTRICT', 'NO ACTION')) ORDER BY 1
""")


class Reference(NamedTuple):
    table: str
    """Its readable name."""
    is_own: bool
    """Whether the table refers to itself."""
    heeds_deletes: bool
    """Whether a delete changes its rows. If not, only a changed key does."""


def references_to(connection: sa.Connection, table: TableName) -> Sequence[Reference]:
    """Return those that change rows. SQLite's foreign keys are off, and DuckDB's change no rows."""
    schema, name = table
    match connection.dialect.name:
        case "postgresql":
            shown = connection.dialect.identifier_preparer.format_table(exact_table(schema, name))
            found = connection.execute(_POSTGRESQL, {"name": shown.replace("%%", "%")})
        case "mysql" | "mariadb":
            of = {"schema": schema or connection.dialect.default_schema_name, "table": name}
            found = connection.execute(_MYSQL, of)
        case _:
            return ()
    return [Reference(shown, bool(is_own), bool(heeds)) for shown, is_own, heeds in found]
