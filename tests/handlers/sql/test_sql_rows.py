"""Rows of tables with a primary key, in each target."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from sql_lab import SqlLab, orders, ruled

from handlers import Rejected
from worker.column_rules.plan import RuleFault

TYPES = {"id": "int", "name": "varchar(20)", "qty": "int"}


def row(id_: int, name: str | None = "a", qty: int | None = 1) -> dict[str, Any]:
    return {"id": id_, "name": name, "qty": qty}


def test_the_last_change_of_a_key_is_what_stays(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(
            orders(
                row(1),
                row(2),
                {"before": row(1), "after": row(1, "b")},
                {"before": row(2), "after": None},
                {"before": row(1, "b"), "after": row(1, "c", 5)},
                row(3),
                types=TYPES,
            )
        )
    assert sql.rows() == [row(1, "c", 5), row(3)]


def test_a_row_that_is_there_is_overwritten(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1), row(2), types=TYPES))
        handler.handle(orders({"op": "snapshot", "after": row(1, "new", None)}, offset=2, types=TYPES))
    assert sql.rows() == [row(1, "new", None), row(2)]


def test_a_row_that_is_not_there_can_be_deleted_and_updated(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(
            orders(
                {"before": row(1), "after": None},
                {"before": row(2), "after": row(2, "b")},
                types=TYPES,
            )
        )
    assert sql.rows() == [row(2, "b")]


def test_a_key_that_changes_comes_as_delete_and_insert(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1, "one"), row(2, "two"), types=TYPES))
        swap = [
            {"before": row(1, "one"), "after": None, "offset": 2, "index": 0},
            {"before": None, "after": row(9, "one"), "offset": 2, "index": 1},
            {"before": row(2, "two"), "after": None, "offset": 3, "index": 0},
            {"before": None, "after": row(1, "two"), "offset": 3, "index": 1},
            {"before": row(9, "one"), "after": None, "offset": 4, "index": 0},
            {"before": None, "after": row(2, "one"), "offset": 4, "index": 1},
        ]
        handler.handle(orders(*swap, types=TYPES))
    assert sql.rows() == [row(1, "two"), row(2, "one")]


def key_change(old: int, new: dict[str, Any], offset: int) -> list[dict[str, Any]]:
    """Of one record: without the columns that its tool does not tell."""
    return [
        {"before": {"id": old}, "after": None, "offset": offset, "index": 0, "moves_key": True},
        {
            "before": None,
            "after": new,
            "offset": offset,
            "index": 1,
            "moves_key": True,
            "lacks": frozenset(TYPES.keys() - new.keys()),
        },
    ]


def test_a_row_that_gets_another_key_keeps_the_columns_that_its_change_does_not_carry(sql: SqlLab) -> None:
    """PostgreSQL's large values (TOAST), MySQL's binlog_row_image=MINIMAL."""
    changes = [
        {"before": {"id": 1}, "after": {"id": 1, "qty": 10}, "offset": 3},
        *key_change(1, {"id": 9, "qty": 11}, 4),
        *key_change(2, {"id": 1}, 5),
        {"before": {"id": 1}, "after": {"id": 1, "name": "zwei"}, "offset": 6},
        *key_change(3, {"id": 9}, 7),  # in place of the row that is there
    ]
    with sql.handler() as handler:
        handler.handle(orders(row(1, "one", 1), row(2, "two", 2), row(3, "three", 3), types=TYPES))
        with pytest.raises(Rejected) as told:
            handler.handle(
                orders(*changes, {"before": None, "after": {"id": None}, "offset": 8}, types=TYPES)
            )
        assert told.value.at == len(changes)
        handler.handle(orders(*changes, types=TYPES))
    assert sql.rows() == [row(1, "zwei", 2), row(9, "three", 3)]


def test_a_row_that_gets_the_key_of_one_that_is_not_there_has_what_is_told(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(2, "two", 2), types=TYPES))
        handler.handle(orders(*key_change(1, {"id": 2, "qty": 5}, 1), types=TYPES))
    assert sql.rows() == [row(2, "two", 5)]


def test_columns_that_a_change_does_not_carry_stay(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1, "one", 1), row(2, "two", 2), row(3, "three", 3), types=TYPES))
        handler.handle(
            orders(
                {"before": {"id": 1}, "after": {"id": 1, "qty": 10}},
                {"before": {"id": 2}, "after": {"id": 2, "name": "zwei"}},
                {"before": {"id": 2}, "after": {"id": 2, "qty": None}},
                {"before": {"id": 3}, "after": {"qty": 30}},
                offset=3,
                types=TYPES,
            )
        )
    assert sql.rows() == [row(1, "one", 10), row(2, "zwei", None), row(3, "three", 30)]


def test_nothing_of_a_deleted_row_comes_back_with_a_new_one(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(row(1, "old", 1), types=TYPES))
        handler.handle(
            orders({"before": {"id": 1}, "after": None}, {"id": 1, "qty": 2}, offset=1, types=TYPES)
        )
    assert sql.rows() == [row(1, None, 2)]


def test_columns_that_must_not_be_null_may_be_left_out_of_an_update(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, name varchar(20) NOT NULL, qty int NOT NULL")
    with sql.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        handler.handle(orders({"before": {"id": 1}, "after": {"id": 1, "qty": 7}}, offset=1, types=TYPES))
    assert sql.rows() == [row(1, "a", 7)]


@pytest.mark.parametrize("count", [1, 499, 500, 501, 2300])
def test_batches_of_any_size_arrive_whole(sql: SqlLab, count: int) -> None:
    rows = [row(place, f"n{place}", place if place % 3 else None) for place in range(count)]
    with sql.handler() as handler:
        handler.handle(orders(*rows, types=TYPES))
        assert sql.rows(columns="count(*) AS n, sum(qty) AS s") == [
            {"n": count, "s": sum(one["qty"] or 0 for one in rows) if count > 1 else None}
        ]
        deletes = [{"before": one, "after": None} for one in rows]
        handler.handle(orders(*deletes, offset=count, types=TYPES))
    assert sql.rows() == []


def test_a_composite_key_is_one_key(sql: SqlLab) -> None:
    types = {"a": "int", "b": "varchar(9)", "v": "int"}
    with sql.handler() as handler:
        first = [{"a": a, "b": b, "v": 0} for a in (1, 2) for b in ("x", "y")]
        handler.handle(orders(*first, key=("a", "b"), types=types))
        handler.handle(
            orders(
                {"before": first[0], "after": {**first[0], "v": 5}},
                {"before": first[3], "after": None},
                key=("a", "b"),
                offset=4,
                types=types,
            )
        )
    assert sql.rows() == [{"a": 1, "b": "x", "v": 5}, {"a": 1, "b": "y", "v": 0}, {"a": 2, "b": "x", "v": 0}]


def test_unique_values_may_be_swapped_within_a_batch(sql: SqlLab) -> None:
    """The last state at once would break the unique key on its way; in source order it does not."""
    sql.make("shop.orders", "id int PRIMARY KEY, name varchar(20) UNIQUE, qty int")
    with sql.handler() as handler:
        handler.handle(orders(row(1, "a"), row(2, "b"), row(3, "c"), types=TYPES))
        handler.handle(
            orders(
                {"before": row(1, "a"), "after": row(1, "-")},
                {"before": row(2, "b"), "after": row(2, "a")},
                {"before": row(1, "-"), "after": row(1, "b")},
                {"before": row(3, "c"), "after": None},
                row(4, "c"),
                offset=3,
                types=TYPES,
            )
        )
    assert sql.rows() == [row(1, "b"), row(2, "a"), row(4, "c")]


def test_a_unique_value_of_another_row_never_changes_that_row(sql: SqlLab) -> None:
    """MySQL's ON DUPLICATE KEY would."""
    sql.make("shop.orders", "id int PRIMARY KEY, name varchar(20) UNIQUE, qty int")
    with sql.handler() as handler:
        handler.handle(orders(row(1, "a"), types=TYPES))
        with pytest.raises(Exception, match=r"shop\.orders.*test\[0\] offset 7"):
            handler.handle(orders(row(2, "a", 2), offset=7, types=TYPES))
    assert sql.rows() == [row(1, "a")]


def test_a_table_of_key_columns_only_takes_rows(sql: SqlLab) -> None:
    with sql.handler() as handler:
        for offset in (0, 1):
            handler.handle(orders({"id": 5}, offset=offset, types={"id": "int"}))
    assert sql.rows() == [{"id": 5}]


def test_the_targets_own_key_serves_where_the_source_tells_none(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, name varchar(20), qty int")
    with sql.handler() as handler:
        handler.handle(orders(row(1), row(2), key=None))
        handler.handle(
            orders(
                {"before": row(1), "after": row(3, "moved")},
                {"before": row(2), "after": row(2, "b")},
                key=None,
                offset=2,
            )
        )
    assert sql.rows() == [row(2, "b"), row(3, "moved")]


def test_names_with_anything_in_them_are_names(sql: SqlLab) -> None:
    columns = ("a b", "select", "dot.col", "q`tick", 'quo"te', "100%", "%s", "été", "编号")
    rows = [dict.fromkeys(columns, "v") | {"编号": number} for number in (1, 2)]
    with sql.handler() as handler:
        handler.handle(orders(*rows, key="编号", table="shop.Mixed Case $%Tbl", types={"编号": "int"}))
        handler.handle(
            orders(
                {"before": rows[0], "after": rows[0] | {"100%": "w"}},
                {"before": rows[1], "after": None},
                key="编号",
                table="shop.Mixed Case $%Tbl",
                offset=2,
            )
        )
    assert sql.rows("shop.Mixed Case $%Tbl") == [rows[0] | {"100%": "w"}]


def test_a_column_that_the_source_gains_is_added(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders({"id": 1}, types={"id": "int"}))
        handler.handle(
            orders(
                {"id": 2, "total": Decimal("1.50")}, offset=1, types={"id": "int", "total": "decimal(9,2)"}
            )
        )
    assert [str(one["total"]) for one in sql.rows()] == ["None", "1.50"]


def test_columns_that_the_target_lacks_can_be_left_out(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, qty int")
    with sql.handler(new_columns="ignore") as handler:
        handler.handle(orders(row(1), types=TYPES))
    assert sql.rows() == [{"id": 1, "qty": 1}]


def test_columns_are_found_whatever_their_case(sql: SqlLab) -> None:
    sql.make("shop.orders", "id int PRIMARY KEY, name varchar(20)")
    with sql.handler(create=False) as handler:
        handler.handle(orders({"ID": 1, "Name": "x"}, key="ID"))
    assert sql.rows() == [{"id": 1, "name": "x"}]


def test_generated_columns_of_the_target_are_left_to_it(sql: SqlLab) -> None:
    kind = "VIRTUAL" if sql.dialect == "duckdb" else "STORED"
    sql.make("shop.orders", f"id int PRIMARY KEY, qty int, twice int GENERATED ALWAYS AS (qty * 2) {kind}")
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "qty": 4, "twice": 8}, types={"id": "int"}))
    assert sql.rows() == [{"id": 1, "qty": 4, "twice": 8}]


def test_deletes_can_be_ignored(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(
            ruled(orders(row(1), {"before": row(1), "after": None}, types=TYPES), deletes="ignore")
        )
    assert sql.rows() == [row(1)]


def test_deleted_rows_can_stay_with_the_time_of_their_deletion(sql: SqlLab) -> None:
    changes = orders(
        row(1),
        row(2),
        {"before": row(1), "after": None, "source_time_ms": 1_700_000_000_000},
        {"before": row(2), "after": None},
        row(2, "again"),
        types=TYPES,
    )
    with sql.handler() as handler:
        handler.handle(ruled(changes, deletes="mark", deleted_column="gone_at"))
    gone, again = sql.rows(columns="id, name, gone_at")
    assert str(gone["gone_at"]).startswith("2023-11-14 22:13:20")
    assert again == {"id": 2, "name": "again", "gone_at": None}


def test_a_mark_leaves_what_the_source_does_not_tell_of_a_deleted_row(sql: SqlLab) -> None:
    """As PostgreSQL, which sends nulls beside the key."""
    gone = {
        "before": {"id": 1, "note": None},
        "after": None,
        "before_is_whole": False,
        "source_time_ms": 1000,
    }
    with sql.handler() as handler:
        handler.handle(ruled(orders({"id": 1, "note": "a"}, offset=0), deletes="mark"))
        handler.handle(ruled(orders(gone, offset=1), deletes="mark"))
        (row,) = sql.rows()
        assert (row["id"], row["note"]) == (1, "a")
        assert row["deleted_at"] is not None
        handler.handle(ruled(orders({"id": 1, "note": "again"}, offset=2), deletes="mark"))
    assert sql.rows() == [{"id": 1, "note": "again", "deleted_at": None}]


def test_each_of_equal_rows_without_a_key_is_marked_once(sql: SqlLab) -> None:
    gone = {"before": {"a": 1}, "after": None, "source_time_ms": 1000}
    with sql.handler() as handler:
        handler.handle(ruled(orders({"a": 1}, {"a": 1}, {"a": 1}, key=None, offset=0), deletes="mark"))
        handler.handle(ruled(orders(gone, gone, key=None, offset=3), deletes="mark"))
        assert sorted(row["deleted_at"] is None for row in sql.rows()) == [False, False, True]
        changed = {"before": {"a": 1}, "after": {"a": 2}}
        handler.handle(ruled(orders(changed, key=None, offset=5), deletes="mark"))
    assert sorted((row["a"], row["deleted_at"] is None) for row in sql.rows()) == [
        (1, False),
        (1, False),
        (2, True),
    ]


@pytest.mark.parametrize("types", [None, {"id": "int", "Deleted_At": "datetime"}])
def test_a_column_of_the_source_is_no_mark(types: Any) -> None:
    with pytest.raises(RuleFault, match="already has a column deleted_at; set deleted_column to an"):
        ruled(orders({"id": 1, "Deleted_At": None}, types=types), deletes="mark")


def test_several_source_tables_can_share_a_target_table(sql: SqlLab) -> None:
    options: dict[str, Any] = {"table": "all_orders"}
    if sql.dialect != "sqlite":
        options["schema"] = "shop"
    with sql.handler(**options) as handler:
        handler.handle(orders(row(1), table="shop.orders_1", types=TYPES))
        handler.handle(orders(row(2), table="shop.orders_2", types=TYPES))
    table = "all_orders" if sql.dialect == "sqlite" else sql.ref("shop.all_orders")
    assert [tuple(one) for one in sql.run(f"SELECT id FROM {table} ORDER BY id")] == [(1,), (2,)]
