"""Whatever the changes: the segments of a replica leave each key with what its last change left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from itertools import groupby
from typing import Any

import pyarrow.parquet as pq
import pytest
from captured import records
from hypothesis import example, given, settings
from hypothesis import strategies as st
from piece_lab import Row, change, cut, one_piece, rows_of, take

from handlers import Change
from handlers.spark.rows.conversions import text, time_text
from handlers.spark.rows.pieces import AlonePiece, RowPiece
from handlers.spark.rows.shape import Shape
from worker.formats.canal.format import Canal
from worker.formats.interface import Skip

pytestmark = pytest.mark.long

Table = dict[Any, Row]

KEY = ("id", "part")
TYPES = {"id": "int", "part": "varchar(3)", "a": "bigint", "b": "varchar(9)", "c": "decimal(8,2)"}
KEYS = st.tuples(st.integers(1, 3), st.sampled_from("xy"))
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "a": st.none() | st.integers(-(2**63), 2**63 - 1),
    "b": st.none() | st.text(max_size=9),
    "c": st.none() | st.decimals(-999999, 999999, places=2),
}
JSON = st.none() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4) | st.booleans()
UNTYPED: Mapping[str, st.SearchStrategy[Any]] = {"a": JSON, "b": st.integers() | st.none(), "c": JSON}


def apply(table: Table, one: Change, key: tuple[str, ...]) -> None:
    """What a change does to a table: an update sets the columns it carries."""
    if one.op == "delete":
        table.pop(tuple((one.before or {})[column] for column in key), None)
        return
    row = one.after or {}
    its = tuple(row[column] for column in key)
    table[its] = {**table.get(its, {}), **row} if one.op == "update" else dict(row)


def rows_with(values: Mapping[str, st.SearchStrategy[Any]], *, whole: bool) -> st.SearchStrategy[Row]:
    if whole:
        return st.fixed_dictionaries(dict(values))
    return st.fixed_dictionaries({}, optional=dict(values))


@st.composite
def batches(draw: st.DrawFn, values: Mapping[str, st.SearchStrategy[Any]], types: Any) -> list[list[Change]]:
    made = []
    for offset in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(("insert", "snapshot", "update", "update", "delete")))
        key = dict(zip(KEY, draw(KEYS), strict=True))
        row = key | draw(rows_with(values, whole=draw(st.booleans())))
        if op == "delete":
            made.append(change(offset, op, None, row, types=types, key=KEY))
        else:
            before = (
                key | draw(rows_with(values, whole=False)) if op == "update" and draw(st.booleans()) else None
            )
            made.append(change(offset, op, row, before, types=types, key=KEY))
    size = draw(st.integers(1, len(made)))
    return [made[start : start + size] for start in range(0, len(made), size)]


def replayed(groups: list[list[Change]]) -> Iterator[tuple[Table, Table, RowPiece]]:
    """After each batch: the table as changes left it, as segments left it, and the segment."""
    expected: Table = {}
    found: Table = {}
    known: Shape | None = None
    for group in groups:
        for one in group:
            apply(expected, one, KEY)
        piece = one_piece(*group, known=known)
        take(found, piece)
        known = piece.shape
        yield expected, found, piece


def whole(table: Table, columns: list[str]) -> Table:
    return {key: {column: row.get(column) for column in columns} for key, row in table.items()}


@settings(deadline=None)
@given(batches(VALUES, TYPES))
def test_the_segments_of_a_typed_source_leave_what_its_changes_leave(groups: list[list[Change]]) -> None:
    for expected, found, piece in replayed(groups):
        assert whole(found, list(TYPES)) == whole(expected, list(TYPES))
        assert piece.partial == any(row["_absent"] for row in rows_of(piece))


A_DOUBLE_ROUNDS_THE_SECOND = [
    [change(offset, "insert", {"id": 1, "part": "x", "a": value}, key=KEY)]
    for offset, value in enumerate((0.0, 2**53 + 1))
]


@settings(deadline=None)
@given(batches(UNTYPED, None))
@example(A_DOUBLE_ROUNDS_THE_SECOND)
def test_the_segments_of_a_source_without_types_leave_every_value_as_it_was(
    groups: list[list[Change]],
) -> None:
    for expected, found, piece in replayed(groups):
        assert found.keys() == expected.keys()
        names = piece.shape.schema.names
        for key, row in expected.items():
            for column in set(row) - set(names):
                assert row[column] is None
            for column in names:
                assert readings(row.get(column)) & readings(found[key].get(column)), (column, row)


def readings(value: Any) -> set[Any]:
    """How a value may be read: a number by its worth or the digits that JSON had, anything by its text."""
    if value is None:
        return {None}
    if isinstance(value, float) and math.isfinite(value):
        return {text(value), value, Decimal(repr(value))}
    if isinstance(value, str):
        return {value}
    return {text(value), value} if not isinstance(value, bool) else {text(value)}


@settings(deadline=None)
@given(batches(UNTYPED, None))
def test_the_same_rows_once_more_have_the_shape_that_they_had(groups: list[list[Change]]) -> None:
    for group in groups:
        shape = one_piece(*group).shape
        assert one_piece(*group, known=shape).shape is shape


@settings(deadline=None)
@given(batches(VALUES, TYPES), st.lists(st.sampled_from(("ddl", "truncate", "types", "key")), max_size=3))
def test_pieces_follow_each_other_and_hold_every_change_once(
    groups: list[list[Change]], others: list[str]
) -> None:
    changes = [one for group in groups for one in group]
    for number, other in enumerate(others):
        place = number * 2 % len(changes)
        if other == "types":
            wider = {**TYPES, "c": "decimal(12,2)"}
            changes[place] = change(99, "insert", {"id": 1, "part": "x"}, types=wider, key=KEY)
        elif other == "key":
            changes[place] = change(99, "insert", {"id": 1, "part": "x"}, types=TYPES)
        else:
            changes.insert(place, change(99, other))
    for mode in ("replica", "history", "changelog"):
        found = cut(*changes, mode=mode)
        assert [found[0].start, *(piece.stop for piece in found)] == [
            *(piece.start for piece in found), len(changes)
        ]  # fmt: skip
        alone = [(piece.start, piece.change) for piece in found if isinstance(piece, AlonePiece)]
        assert alone == [(place, changes[place]) for place, _ in alone]
        ddl = [one for one in changes if one.op in ("ddl", "truncate")]
        assert [one for _, one in alone] == ([] if mode == "changelog" else ddl)


@pytest.mark.parametrize("size", [7, 1000])
def test_a_captured_stream_leaves_each_key_with_its_last_row(size: int) -> None:
    """Real messages of Canal: 100 columns types, keys of several columns, tables without a key."""
    tables: dict[str, list[Change]] = {}
    canal = Canal()
    for record in records("canal"):
        route, changes = canal.explain(record), []
        canal.decode(record, changes)
        if not isinstance(route, Skip):
            tables.setdefault(f"{route.database}.{route.table}", []).extend(changes)
    checked = 0
    for changes in tables.values():
        for is_alone, run in groupby(
            changes, lambda one: one.op in ("ddl", "truncate") or not one.key_columns
        ):
            if not is_alone:
                checked += check_run(list(run), size)
    assert checked > 1000


def check_run(changes: list[Change], size: int) -> int:
    expected: Table = {}
    found: Table = {}
    known: Shape | None = None
    for start in range(0, len(changes), size):
        some = changes[start : start + size]
        for piece in cut(*some, known=known):
            assert isinstance(piece, RowPiece)
            assert not piece.partial
            take(found, through_parquet(piece))
            known = piece.shape
            for one in some[piece.start : piece.stop]:
                apply(expected, one, piece.shape.key)
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        for column, value in row.items():
            kept = found[key].get(column)
            assert kept in (list(value) if isinstance(value, tuple) else value, text(value)) or (
                isinstance(value, timedelta) and kept in {time_text(value, digits) for digits in range(7)}
            )
    return len(changes)


def through_parquet(piece: RowPiece) -> RowPiece:
    file = BytesIO()
    pq.write_table(piece.rows, file)
    read = pq.read_table(file)
    assert read.schema == piece.rows.schema
    return RowPiece(piece.start, piece.stop, piece.shape, piece.partial, read, piece.places)
