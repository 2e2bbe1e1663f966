"""Tables without a primary key."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from ddl_lab import DDLLab
from sql_lab import SqlLab, orders
from structlog.testing import capture_logs

from handlers import Rejected

TYPES = {
    "at": "datetime(6)",
    "kind": "varchar(20)",
    "amount": "decimal(9,2)",
    "ratio": "float",
    "doc": "json",
    "tags": "set('a','b')",
    "raw": "blob",
}


def event(kind: str | None, **values: Any) -> dict[str, Any]:
    whole = {
        "at": datetime(2025, 5, 5, 5, 5, 5, 123456),
        "kind": kind,
        "amount": Decimal("1.50"),
        "ratio": 0.10000000149011612,
        "doc": '{"a":1}',
        "tags": ("a", "b"),
        "raw": b"\0\xff",
    }
    return whole | values


def kinds(sql: SqlLab) -> list[str | None]:
    return [one["kind"] for one in sql.rows(columns="kind")]


def test_rows_are_appended_equal_ones_too(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(event("x"), event("x"), event("y"), key=None, types=TYPES))
    assert kinds(sql) == ["x", "x", "y"]


def test_a_delete_takes_one_of_equal_rows(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(*[event("x")] * 3, event(None), key=None, types=TYPES))
        handler.handle(
            orders(
                {"before": event("x"), "after": None},
                {"before": event(None), "after": None},
                key=None,
                offset=4,
                types=TYPES,
            )
        )
    assert kinds(sql) == ["x", "x"]


def test_an_update_changes_one_of_equal_rows(sql: SqlLab) -> None:
    with sql.handler() as handler:
        handler.handle(orders(event("x"), event("x"), key=None, types=TYPES))
        handler.handle(
            orders(
                {"before": event("x"), "after": event("y", doc=None)},
                {"before": event("y", doc=None), "after": event("z")},
                event("w"),
                key=None,
                offset=2,
                types=TYPES,
            )
        )
    assert kinds(sql) == ["w", "x", "z"]


def test_every_type_tells_rows_apart(sql: SqlLab) -> None:
    others = {
        "at": datetime(2025, 5, 5, 5, 5, 5, 123457),
        "amount": Decimal("1.51"),
        "ratio": 0.20000000298023224,
        "doc": '{"a":2}',
        "tags": ("a",),
        "raw": b"\0\xfe",
    }
    with sql.handler() as handler:
        rows = [event("same"), *(event("other", **{column: value}) for column, value in others.items())]
        handler.handle(orders(*rows, key=None, types=TYPES))
        handler.handle(orders({"before": event("other"), "after": None}, key=None, offset=20, types=TYPES))
        assert len(kinds(sql)) == 7
        handler.handle(
            orders(*[{"before": one, "after": None} for one in rows], key=None, offset=21, types=TYPES)
        )
    assert kinds(sql) == []


def test_an_update_of_a_row_that_is_not_there_inserts_it_and_it_is_told(sql: SqlLab) -> None:
    changes = [{"before": event("x"), "after": event("y")}, {"before": event("z"), "after": None}]
    with sql.handler() as handler, capture_logs() as logs:
        handler.handle(orders(*changes, {"before": event("y"), "after": event("w")}, key=None, types=TYPES))
    told = [(each["op"], each["offset"]) for each in logs if each["event"] == "sql_row_not_there"]
    assert told == [("update", 0), ("delete", 1)]
    assert kinds(sql) == ["w"]


def test_append_takes_inserts_only(sql: SqlLab) -> None:
    with sql.handler(without_key="append") as handler:
        handler.handle(orders(event("x"), {"op": "snapshot", "after": event("y")}, key=None, types=TYPES))
        batch = orders(event("z"), {"before": event("x"), "after": None}, key=None, offset=2, types=TYPES)
        with pytest.raises(
            Rejected, match=r"shop\.orders .*without_key is append.*test\[0\] offset 3"
        ) as told:
            handler.handle(batch)
        assert told.value.at == 1
    assert kinds(sql) == ["x", "y"]


def test_refuse_takes_nothing(sql: SqlLab) -> None:
    with sql.handler(without_key="refuse") as handler:
        with pytest.raises(Rejected, match="no primary key, and without_key is refuse") as told:
            handler.handle(orders(event("x"), event("y"), key=None, types=TYPES))
        assert told.value.at == 0
    assert not sql.has("shop.orders") or kinds(sql) == []


@pytest.mark.parametrize("told", [{"before": {"a": 1}, "before_is_whole": False}, {"before": None}])
def test_an_old_row_that_is_not_whole_finds_no_row(sql: SqlLab, told: dict[str, Any]) -> None:
    """More than one row may fit what it tells."""
    types = {"a": "int", "b": "varchar(9)"}
    update = {"op": "update", "after": {"a": 2, "b": "y"}, "offset": 3, **told}
    with sql.handler() as handler:
        handler.handle(orders({"a": 1, "b": "x"}, {"a": 1, "b": "y"}, key=None, types=types))
        with pytest.raises(Rejected, match="does not have the whole old row"):
            handler.handle(orders(update, key=None, types=types))
    assert sql.rows() == [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_column_named_rowid_lets_no_other_row_be_changed(
    make_sql: Callable[[str], SqlLab], kind: str
) -> None:
    """SQLite has other names for a row's own id, and DuckDB has none."""
    lab = make_sql(kind)
    lab.make("shop.orders", "rowid int, v varchar(9)")
    rows = [{"rowid": 1, "v": v} for v in "abc"]
    gone = {"before": rows[0], "after": None}
    changed = {"before": rows[1], "after": {"rowid": 1, "v": "d"}}
    with lab.handler() as handler:
        handler.handle(orders(*rows, key=None))
        if kind == "sqlite":
            handler.handle(orders(gone, changed, key=None, offset=3))
            assert [one["v"] for one in lab.rows()] == ["c", "d"]
        else:
            with pytest.raises(Rejected, match="column rowid: its name hides"):
                handler.handle(orders(gone, changed, key=None, offset=3))
            assert [one["v"] for one in lab.rows()] == ["a", "b", "c"]


def test_a_statement_that_numbers_rows_heeds_a_column_named_rowid(make_lab: Callable[[str], DDLLab]) -> None:
    lab = make_lab("sqlite")
    lab.follow("CREATE TABLE t (id int PRIMARY KEY, rowid int)")
    with lab.engine.begin() as connection:
        connection.exec_driver_sql('INSERT INTO "db.t" VALUES (1, 7), (2, 7)')
    lab.follow("ALTER TABLE t ADD COLUMN n int AUTO_INCREMENT UNIQUE")
    assert lab.rows() == [("1", "7", "1"), ("2", "7", "2")]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("jsonb", '{"b":1,"a":[1,2]}'),
        ("json[]", ['{"a":1}']),
        ("point", b"\0\0\0\0" + struct.pack("<BIdd", 1, 1, 1.5, -2.0)),
        ("box", "(1,2),(3,4)"),
        ("jsonpath", "$.a"),
        ("xml", "<a/>"),
        ("citext[]", ["a"]),
    ],
)
def test_a_row_is_found_by_a_value_that_its_type_spells_anew(
    make_sql: Callable[[str], SqlLab], type_: str, value: Any
) -> None:
    lab = make_sql("postgres")
    lab.run("CREATE EXTENSION citext")
    lab.make("shop.orders", f"a int, v {type_}")
    row = {"a": 1, "v": value}
    with lab.handler() as handler:
        handler.handle(orders(row, {"a": 1, "v": None}, key=None))
        handler.handle(orders({"before": row, "after": {"a": 2, "v": value}}, key=None, offset=2))
        assert [one["a"] for one in lab.rows(columns="a")] == [1, 2]
        handler.handle(orders({"before": {"a": 2, "v": value}, "after": None}, key=None, offset=3))
    assert lab.rows() == [{"a": 1, "v": None}]
