"""Fit rows and their columns to the target's table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from handlers.api import Change
from handlers.mysql.types import SYNONYMS
from handlers.sql.folding import Block
from handlers.sql.target.creating import ColumnsMissing, wanted_columns
from handlers.sql.target.known_tables import KnownColumn, KnownTable, UnfitColumn
from handlers.sql.types.values import Kind
from handlers.sql.writers.writer import Columns, Rows

_SHORTEST = re.compile(r"0|NaN|-?(?:[1-9]\d*(?:\.\d*[1-9])?|0\.\d*[1-9]|Infinity)", re.ASCII)
"""The only normalized text of a number."""
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "enum")  # longtext: decimals too


class Unfit(ValueError):
    """A change that the options or the target's table do not allow."""


@dataclass(frozen=True, slots=True)
class Fitting:
    """Safe for threads. All methods raise ColumnsMissing or Unfit, as the option `new_columns` says."""

    unknown_columns: str
    """The value of SqlOptions.unknown_columns."""

    def row(self, table: KnownTable, row: dict[str, Any] | None, change: Change) -> Rows:
        given = row or {}
        return self.rows(table, Block(tuple(given), [[value] for value in given.values()], 1), [change])

    def rows(
        self, table: KnownTable, block: Block, changes: Sequence[Change], *, keyed: bool = False
    ) -> Rows:
        """Return fitted rows. If `keyed`, include key columns that the target computes, to find rows."""
        columns: list[KnownColumn] = []
        values: list[Sequence[Any]] = []
        key = {table.column(name) for name in changes[0].key_columns or table.primary_key}
        for column, given in zip(self._columns(table, block.columns, changes), block.values, strict=True):
            if column is not None and (not column.is_generated or (keyed and column in key)):
                columns.append(column)
                values.append(given)
        for place, column in enumerate(columns):
            if isinstance(column.sql_type, sa.CHAR) and column.dialect != "sqlite":  # SQLite keeps spaces
                values[place] = _without_padding(column, values[place], _source_type(column, changes))
            elif column in key and column.kind in (Kind.DECIMAL, Kind.FLOAT):
                _refuse_other_spellings(column, values[place], _source_type(column, changes))
        if not columns:
            raise Unfit("it has none of the columns of the target's table")
        renews = any(column.is_renewed for column in table.columns.values())
        renewed = self._renewed(table, block.columns, changes) if renews else ()
        return Rows(table, tuple(columns), values, block.count, renewed=renewed)

    def _columns(
        self, table: KnownTable, names: tuple[str, ...], changes: Sequence[Change]
    ) -> tuple[KnownColumn | None, ...]:
        """Return the columns, or None for each one that the target lacks and that may be omitted."""
        found = table.columns_for(names, changes[0].types or {})
        if None not in found:
            return found
        missing = [name for name, column in zip(names, found, strict=True) if column is None]
        rule = self.unknown_columns
        if rule == "add":
            wanted, low = wanted_columns(changes), {name.lower() for name in missing}
            new = (one for one in wanted if one in missing or (one.lower() in low and not table.column(one)))
            raise ColumnsMissing(table.name, {name: wanted[name] for name in new})
        if rule == "refuse":
            raise Unfit(
                f"the target's table has no column {', '.join(missing)}; add it, or set new_columns to add "
                "or ignore"
            )
        return found

    def key(self, table: KnownTable, key: tuple[str, ...], changes: Sequence[Change]) -> Columns:
        found = tuple(column for column in self._columns(table, key, changes) if column is not None)
        if len(found) < len(key):
            raise Unfit(f"the target's table lacks a column of the primary key: {', '.join(key)}")
        return found

    def untold(self, table: KnownTable, block: Block, changes: Sequence[Change]) -> Columns:
        """Return columns that the source's table has or may have, but that the rows lack."""
        told = {column.name for name in block.columns if (column := table.column(name)) is not None}
        told.update(table.primary_key)
        may_have = self._of_source(table, block.columns, changes)
        return tuple(one for one in may_have if one is not None and one.default and one.name not in told)

    def _renewed(self, table: KnownTable, names: tuple[str, ...], changes: Sequence[Change]) -> Columns:
        """Return the source's columns that an UPDATE renews. The target's own keep ON UPDATE."""
        lacks = {change.lacks for change in changes}
        known = frozenset[str]().union(*(one for one in lacks if one is not None))
        found = (
            self._of_source(table, names, changes)
            if None in lacks
            else map(table.column, (*names, *sorted(known.difference(names))))
        )
        return tuple(one for one in found if one is not None and one.is_renewed)

    def _of_source(
        self, table: KnownTable, names: tuple[str, ...], changes: Sequence[Change]
    ) -> Iterable[KnownColumn | None]:
        types = changes[0].types or {}
        # If `types` names all columns, the others belong to the target only.
        return map(table.column, types) if types.keys() >= set(names) else table.columns.values()


def _source_type(column: KnownColumn, changes: Sequence[Change]) -> str:
    """Return the source type without sizes; empty if it is unknown."""
    name = (changes[0].types or {}).get(column.name, "").lower().partition("(")[0].strip()
    return SYNONYMS.get(name, name)


def _refuse_other_spellings(column: KnownColumn, values: Sequence[Any], source_type: str) -> None:
    """Raise UnfitColumn for key texts that are not normalized numbers. The texts 1.0 and 1.00 would become
    one row."""
    for value in values if source_type in _TEXTS else ():
        if isinstance(value, str) and not _SHORTEST.fullmatch(value):
            raise UnfitColumn(
                column.name,
                f"{value!r:.40} is text, and the target reads other texts of the key as the same number; "
                "make it a text column",
            )


def _without_padding(column: KnownColumn, values: Sequence[Any], kind: str) -> Sequence[Any]:
    """Remove spaces at the end: CHAR pads with them. Raises UnfitColumn if the source's VARCHAR has them."""
    if kind == "char":
        return [value.rstrip(" ") if isinstance(value, str) else value for value in values]
    if kind == "varchar" and any(isinstance(value, str) and value.endswith(" ") for value in values):
        why = "it ends with a space, which a CHAR column does not keep; make it VARCHAR"
        raise UnfitColumn(column.name, why)
    return values
