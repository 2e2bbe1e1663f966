"""Changes to cut into pieces, and a table that takes the pieces of a replica as a merge would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers import Change
from handlers.spark.rows.column_types import override
from handlers.spark.rows.pieces import AlonePiece, Piece, RowPiece, pieces
from handlers.spark.rows.shape import Shape

__all__ = ["MOMENT", "Row", "change", "cut", "one_piece", "rows_of", "take", "types_of"]

Row = dict[str, Any]

MOMENT = 1_790_000_000_123
"""The source time of the change with offset 0, in ms; the next have one more each."""


def change(
    offset: int,
    op: Any,
    after: Row | None = None,
    before: Row | None = None,
    *,
    types: Mapping[str, str] | None = None,
    key: Sequence[str] = ("id",),
    sql: str | None = None,
) -> Change:
    lacks: frozenset[str] | None = frozenset()
    if op == "update":  # as formats make it
        after = {**(before or {}), **(after or {})}
        lacks = None if types is None else frozenset(types.keys() - after.keys())
    at = (MOMENT + offset, "cdc", 3, offset, 0, None)
    return Change(op, before, after, tuple(key) or None, sql, *at, types, lacks)


def cut(
    *changes: Change,
    mode: Any = "replica",
    prefix: str = "_",
    columns: Mapping[str, str] | None = None,
    known: Shape | None = None,
    table: str = "",
) -> list[Piece]:
    overrides = {name: override(text) for name, text in (columns or {}).items()}
    return list(pieces(changes, mode=mode, prefix=prefix, overrides=overrides, known=known, table=table))


def one_piece(*changes: Change, **options: Any) -> RowPiece:
    """Of changes that are of one shape."""
    [piece] = cut(*changes, **options)
    assert isinstance(piece, RowPiece)
    return piece


def rows_of(piece: RowPiece) -> list[Row]:
    found: list[Row] = piece.rows.to_pylist()
    return found


def types_of(piece: RowPiece) -> dict[str, str]:
    """The source's columns."""
    from handlers.spark.rows.column_types import spark_name

    return {field.name: spark_name(field.type) for field in piece.shape.schema}


def take(table: dict[Any, Row], piece: Piece) -> None:
    """Do to `table` (key -> row) what a merge of a replica's segment does."""
    assert not isinstance(piece, AlonePiece)
    names, key = piece.shape.schema.names, piece.shape.key
    seen = set()
    for row in rows_of(piece):
        its = tuple(row[column] for column in key)
        assert its not in seen, "MERGE fails for two rows of one key"
        seen.add(its)
        if row["_op"] == "delete":
            table.pop(its, None)
            continue
        assert row["_op"] in ("insert", "upsert")
        before = table.get(its, {})
        absent = row["_absent"] or ()
        table[its] = {
            **before,
            **{name: before.get(name) if name in absent else row[name] for name in names},
        }
