"""Columns that the source has dropped and that stay: in a history, and where `drop_columns` is off."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from handlers.spark.ddl.target import Target, find
from handlers.spark.delta.statements import literal
from handlers.spark.table_ref import TableRef

_PROPERTY = "binlane.dropped_columns"
"""Of the Delta table: their names, a JSON list."""


def dropped_columns(target: Target, ref: TableRef) -> list[str]:
    """Empty where none stay."""
    value = target.properties(ref).get(_PROPERTY)
    return [] if value is None else msgspec.json.decode(value, type=list[str])


def keep_dropped(
    target: Target, ref: TableRef, step: str, *, gone: Iterable[str] = (), back: Iterable[str] = ()
) -> None:
    """Remember that the source has dropped some columns, and has others again."""
    before = dropped_columns(target, ref)
    names = [name for name in before if find(back, name) is None]
    names += [name for name in gone if find(names, name) is None]
    if names != before:
        value = literal(msgspec.json.encode(names).decode())
        target.run(ref, step, f"ALTER TABLE {ref.sql} SET TBLPROPERTIES ({literal(_PROPERTY)} = {value})")
