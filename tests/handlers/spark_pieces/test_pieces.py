"""What the rows of each mode hold, and where batches are cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from piece_lab import MOMENT, Row, change, cut, one_piece, rows_of, types_of

from handlers import Rejected
from handlers.spark.rows.pieces import AlonePiece, RowPiece
from handlers.spark.rows.shape import log_schema, shape_of_log

TYPES = {"id": "int", "name": "varchar(20)", "size": "bigint"}
MODES = ("replica", "history", "changelog")


def row(id_: int | None, name: str | None = None, size: int | None = None) -> Row:
    return {"id": id_, "name": name, "size": size}


def at(offset: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=MOMENT + offset)


def typed(offset: int, op: str, after: Row | None = None, before: Row | None = None, **options: Any) -> Any:
    return change(offset, op, after, before, types=TYPES, **options)


# ---- replicas


def test_a_key_has_one_row_with_what_its_last_change_left_and_that_time() -> None:
    piece = one_piece(
        typed(0, "insert", row(1, "a")),
        typed(1, "insert", row(2, "b")),
        typed(2, "update", row(1, "c", 5), row(1, "a")),
        typed(3, "update", row(3, "d"), row(3, "x")),
        typed(4, "delete", None, row(2, "b")),
        typed(5, "snapshot", row(4, "e")),
    )
    assert rows_of(piece) == [
        {"_op": "insert", "_source_time": at(2), "_absent": None, **row(1, "c", 5)},
        {"_op": "upsert", "_source_time": at(3), "_absent": None, **row(3, "d")},
        {"_op": "upsert", "_source_time": at(5), "_absent": None, **row(4, "e")},
        {"_op": "delete", "_source_time": at(4), "_absent": None, **row(2)},
    ]
    assert not piece.partial


def test_only_a_key_that_began_with_an_insert_is_believed_to_be_new() -> None:
    piece = one_piece(
        typed(0, "delete", None, row(1)),
        typed(1, "insert", row(1, "again")),
        typed(2, "insert", row(2)),
        typed(3, "delete", None, row(2)),
        typed(4, "insert", row(2, "back")),
    )
    assert [(each["id"], each["_op"]) for each in rows_of(piece)] == [(1, "upsert"), (2, "insert")]


def test_partial_updates_of_one_key_add_up_and_name_what_is_absent_still() -> None:
    piece = one_piece(
        typed(0, "update", {"id": 1, "name": "a"}),
        typed(1, "update", {"id": 2, "name": "b"}),
        typed(2, "update", {"id": 2, "size": 7}),
        typed(3, "update", {"id": 3, "size": None}),
        typed(4, "update", {"id": 4}, row(4, "old", 9)),
    )
    assert piece.partial
    assert [(each["_absent"], each["name"], each["size"]) for each in rows_of(piece)] == [
        (["size"], "a", None),
        (None, "b", 7),
        (["name"], None, None),
        (None, "old", 9),
    ]


@pytest.mark.parametrize(
    "first",
    [
        [typed(0, "insert", row(1, "a", 5)), typed(1, "delete", None, row(1))],
        [typed(0, "delete", None, {"id": 1})],
        [],
    ],
    ids=["inserted and deleted", "deleted", "nothing"],
)
def test_an_inserted_row_with_fewer_columns_is_whole(first: list[Any]) -> None:
    piece = one_piece(*first, typed(2, "insert", {"id": 1, "name": "b"}))
    [found] = rows_of(piece)
    assert (found["name"], found["size"], found["_absent"]) == ("b", None, None)
    assert not piece.partial


def test_a_partial_update_after_a_delete_makes_a_whole_row_of_what_is_known() -> None:
    piece = one_piece(typed(0, "delete", None, row(1, "a", 5)), typed(1, "update", {"id": 1, "name": "b"}))
    assert [(each["name"], each["size"], each["_absent"]) for each in rows_of(piece)] == [("b", None, None)]


def test_a_key_may_have_several_columns() -> None:
    types = {"a": "int", "b": "varchar(5)", "n": "int"}
    changes = [
        change(0, "insert", {"a": 1, "b": "x", "n": 1}, types=types, key=("a", "b")),
        change(1, "insert", {"a": 1, "b": "y", "n": 2}, types=types, key=("a", "b")),
        change(
            2, "update", {"a": 1, "b": "x", "n": 3}, {"a": 1, "b": "x", "n": 1}, types=types, key=("a", "b")
        ),
        change(3, "delete", None, {"a": 1, "b": "y"}, types=types, key=("a", "b")),
    ]
    piece = one_piece(*changes)
    assert [tuple(each[n] for n in ("_op", "a", "b", "n")) for each in rows_of(piece)] == [
        ("insert", 1, "x", 3),
        ("delete", 1, "y", None),
    ]
    assert piece.shape.key == ("a", "b")


def test_keys_are_the_same_when_what_is_kept_of_them_is() -> None:
    mixed = one_piece(change(0, "insert", {"id": 5, "n": 1}), change(1, "insert", {"id": "5", "n": 2}))
    assert [(each["id"], each["n"]) for each in rows_of(mixed)] == [("5", 2)]
    read = one_piece(
        change(0, "insert", {"id": "5", "n": 1}),
        change(1, "insert", {"id": "5.0", "n": 2}),
        columns={"id": "int"},
    )
    assert [(each["id"], each["n"]) for each in rows_of(read)] == [(5, 2)]
    labels = {"id": "set('a','b')"}
    sets = one_piece(
        change(0, "insert", {"id": ("a",)}, types=labels), change(1, "insert", {"id": "a"}, types=labels)
    )
    assert [each["id"] for each in rows_of(sets)] == [["a"]]


@pytest.mark.parametrize(
    ("type_", "first", "second"),
    [
        ("double", float("nan"), float("nan")),
        ("float", 0.0, -0.0),
        ("timestamp", datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)),
        ("datetime", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1)),
    ],
)
def test_keys_that_spark_takes_for_one_are_one(type_: str, first: Any, second: Any) -> None:
    types = {"id": type_, "n": "int"}
    piece = one_piece(
        change(0, "insert", {"id": first, "n": 1}, types=types),
        change(1, "update", {"id": second, "n": 2}, types=types),
    )
    assert [each["n"] for each in rows_of(piece)] == [2]


@pytest.mark.parametrize("mode", ["replica", "history"])
def test_what_a_whole_update_does_not_have_is_null(mode: Any) -> None:
    known = one_piece(change(0, "insert", {"id": 1, "a": 1, "b": 5}), mode=mode).shape
    update = change(1, "update", {"id": 1, "a": 2})
    assert rows_of(one_piece(update, mode=mode, known=known))[0]["_absent"] == ["b"]
    whole = one_piece(msgspec.structs.replace(update, lacks=frozenset()), mode=mode, known=known)
    assert not whole.partial


# ---- replicas without a key


def test_without_a_key_an_update_is_the_old_row_deleted_and_the_new_one_inserted() -> None:
    piece = one_piece(
        typed(0, "insert", row(1, "a"), key=()),
        typed(1, "update", row(1, "b"), row(1, "a"), key=()),
        typed(2, "delete", None, row(1, "b"), key=()),
    )
    assert [(each["_row"], each["_op"], each["name"], each["_source_time"]) for each in rows_of(piece)] == [
        (0, "insert", "a", at(0)),
        (1, "delete", "a", at(1)),
        (2, "insert", "b", at(1)),
        (3, "delete", "b", at(2)),
    ]
    assert not piece.partial


def test_without_a_key_an_update_keeps_what_it_does_not_tell() -> None:
    known = one_piece(typed(0, "insert", row(1, "a", 2), key=())).shape
    update = typed(1, "update", row(1, "b"), row(1, "a", 2), key=())
    update = msgspec.structs.replace(update, after={"name": "b"}, lacks=frozenset({"size"}))
    piece = one_piece(update, known=known)
    assert [(each["id"], each["name"], each["size"]) for each in rows_of(piece)] == [(1, "a", 2), (1, "b", 2)]
    assert not piece.partial


@pytest.mark.parametrize(
    "change_",
    [
        typed(1, "update", row(1, "b"), key=()),
        msgspec.structs.replace(typed(1, "update", row(1, "b"), {"id": 1}, key=()), before_is_whole=False),
        msgspec.structs.replace(typed(1, "delete", None, {"id": 1}, key=()), before_is_whole=False),
    ],
    ids=["no old row", "update", "delete"],
)
def test_a_change_that_tells_neither_key_nor_whole_old_row_is_rejected(change_: Any) -> None:
    with pytest.raises(Rejected, match=r"offset 1 does not have the whole old row") as told:
        cut(typed(0, "insert", row(1), key=()), change_)
    assert told.value.at == 1


# ---- history and changelog


def test_a_history_has_every_change_in_order_and_of_a_delete_the_old_row() -> None:
    piece = one_piece(
        typed(0, "insert", row(1, "a")),
        typed(1, "update", {"id": 1, "name": "b"}),
        typed(2, "delete", None, row(1, "b", 4)),
        mode="history",
    )
    common = {"_topic": "cdc", "_partition": 3, "_index": 0}
    assert rows_of(piece) == [
        {"_op": "insert", "_source_time": at(0), **common, "_offset": 0, "_row": 0, "_absent": None}
        | row(1, "a"),
        {"_op": "update", "_source_time": at(1), **common, "_offset": 1, "_row": 1, "_absent": ["size"]}
        | row(1, "b"),
        {"_op": "delete", "_source_time": at(2), **common, "_offset": 2, "_row": 2, "_absent": None}
        | row(1, "b", 4),
    ]
    assert piece.partial


def test_of_a_deleted_row_a_history_needs_the_key_alone() -> None:
    assert not one_piece(typed(0, "delete", None, {"id": 1}), mode="history").partial


def test_a_changelog_has_the_row_before_an_update_beside_the_row_after_it() -> None:
    piece = one_piece(
        typed(0, "insert", row(1, "a")),
        typed(1, "update", row(1, "b", 7), row(1, "a")),
        typed(2, "update", row(1, "c")),
        typed(3, "delete", None, row(1, "c")),
        typed(4, "snapshot", row(2)),
        mode="changelog",
    )
    found = rows_of(piece)
    assert [(each["_op"], each["_before"], each["name"]) for each in found] == [
        ("insert", None, "a"),
        ("update", row(1, "a"), "b"),
        ("update", None, "c"),
        ("delete", None, "c"),
        ("snapshot", None, None),
    ]
    assert [(each["_offset"], each["_index"], each["_sql"]) for each in found] == [
        (number, 0, None) for number in range(5)
    ]


def test_a_statement_stands_alone_and_a_changelog_keeps_it_as_a_row() -> None:
    statement = change(1, "ddl", sql="ALTER TABLE t ADD size bigint")
    changes = [typed(0, "insert", row(1)), statement, change(2, "truncate"), typed(3, "insert", row(2))]
    for mode in MODES:
        keeps = mode == "changelog"
        found: list[Any] = list(cut(*changes, mode=mode))
        assert [(piece.start, piece.stop) for piece in found] == [(0, 1), (1, 2), (2, 3), (3, 4)]
        kinds = [RowPiece, *[RowPiece if keeps else AlonePiece] * 2, RowPiece]
        assert list(map(type, found)) == kinds
        assert keeps or found[1].change is statement
    first, alone, _, _ = found
    [kept] = alone.rows.to_pylist()
    assert (kept["_op"], kept["_sql"], kept["_offset"]) == ("ddl", statement.sql, 1)
    assert {kept[name] for name in ("id", "name", "size", "_before")} == {None}
    assert alone.rows.schema == first.rows.schema
    assert alone.shape is first.shape
    [alone] = found = list(cut(statement, mode="changelog"))
    assert "_before" not in alone.rows.schema.names  # Parquet has no empty struct


# ---- cutting


def test_a_batch_is_cut_where_the_source_tells_other_types_or_another_key() -> None:
    wider = {**TYPES, "id": "bigint"}
    changes = [
        typed(0, "insert", row(1)),
        change(1, "insert", row(2), types=dict(TYPES)),
        change(2, "insert", row(2**40), types=wider),
        change(3, "insert", row(3), types=wider, key=("id", "name")),
    ]
    with pytest.raises(Rejected, match="the key column 'name' is NULL") as told:
        cut(*changes)
    assert told.value.at == 3
    changes[3] = change(3, "insert", row(3, "x"), types=wider, key=("id", "name"))
    found = cut(*changes)
    assert [(each.start, each.stop) for each in found] == [(0, 2), (2, 3), (3, 4)]
    assert all(isinstance(each, RowPiece) for each in found)
    assert [types_of(each)["id"] for each in found if isinstance(each, RowPiece)] == [
        "int",
        "bigint",
        "bigint",
    ]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("key", [("id",), ()])
def test_the_schema_of_a_log_and_the_shape_of_its_rows_follow_from_each_other(mode: Any, key: Any) -> None:
    piece = one_piece(typed(0, "insert", row(1), key=key), mode=mode, prefix="cdc_")
    assert piece.rows.schema == log_schema(piece.shape, mode=mode, prefix="cdc_")
    assert shape_of_log(piece.rows.schema, key, mode=mode, prefix="cdc_") == piece.shape
    assert piece.shape.schema.names == list(TYPES)
