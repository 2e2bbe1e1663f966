"""`binlane verify` on real databases: what is equal is found equal, and each difference is told."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from verify_lab import Stage, url
from view_lab import shape

pytestmark = pytest.mark.usefixtures("each_reader")

ITEMS = shape(id=pa.int64(), name=pa.string(), price=pa.decimal128(10, 2))


def item(id: int, name: str | None = "n", price: str = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": id, "name": name, "price": Decimal(price), **more}


def insert(connection: sa.Connection, *rows: str) -> None:
    connection.exec_driver_sql(f"INSERT INTO items VALUES {', '.join(rows)}")


def test_tables_that_only_spark_reads_are_compared(stage: Stage, shop: sa.Connection) -> None:
    insert(shop, "(1, 'n', 1.5)", "(2, 'n', 1.5)", "(3, 'n', 1.5)")
    table = stage.replicate("items", ITEMS, item(1))
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    table.table("id BIGINT, name STRING, price DECIMAL(10,2)", properties=vectors)
    table.spark.sql(f"INSERT INTO {table.ref.sql} SELECT id, 'n', 1.5 FROM range(2, 9, 1, 1)")
    table.spark.sql(f"DELETE FROM {table.ref.sql} WHERE id > 3")
    assert stage.verify(url(shop))[0] == 0
    shop.exec_driver_sql("DELETE FROM items WHERE id = 2")
    assert stage.verify(url(shop))[1]["tables"][0]["different_rows"] == 1


def test_each_difference_is_told_with_both_values(stage: Stage, shop: sa.Connection) -> None:
    insert(shop, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 2.25)", "(4, 'n', 1.5)")
    stage.replicate("items", ITEMS, item(1), item(3, "x", "2.20"), item(4), item(5, "y" * 100))
    code, told = stage.verify(url(shop), "--chunk", "2")
    [table] = told["tables"]
    assert (code, told["equal"]) == (1, False)
    counted = ("state", "source_rows", "replica_rows", "ranges", "different_ranges", "different_rows")
    assert [table[name] for name in counted] == ["different", 4, 4, 3, 3, 3]
    assert table["differences"] == [
        {
            "row": "missing",
            "key": {"id": "2"},
            "columns": {"name": {"source": "here"}, "price": {"source": "1.5"}},
        },
        {
            "row": "different",
            "key": {"id": "3"},
            "columns": {
                "name": {"source": "NULL", "replica": "x"},
                "price": {"source": "2.25", "replica": "2.2"},
            },
        },
        {
            "row": "surplus",
            "key": {"id": "5"},
            "columns": {"name": {"replica": f"{'y' * 80}... (100 characters)"}, "price": {"replica": "1.5"}},
        },
    ]
    code, out, _ = stage.run("verify", "--against", url(shop), "--settle", "0s", "--limit", "1")
    assert code == 1
    assert "shop.items id=2: not in the replica: name is here; price is 1.5\n" in out
    assert "shop.items: 2 more rows differ\n" in out


def test_a_pattern_that_no_table_fits_is_told(stage: Stage, shop: sa.Connection) -> None:
    """Nor does one fit that goes elsewhere; an empty one does, though nothing of it can be compared."""
    shop.exec_driver_sql("CREATE TABLE audit (id INTEGER PRIMARY KEY)")
    replicas = {"match": "shop.*", "handlers": [{"type": "spark", "mode": "replica"}]}
    stage.configure([{"match": "shop.audit", "handlers": [{"type": "log"}]}, replicas])
    arguments = ("verify", "--against", url(shop), "--json", "shop.items", "shop.itmes", "shop.audit")
    code, out, err = stage.run(*arguments)
    unmet = (
        "no replica, and no table that should have a replica, matches 'shop.itmes', 'shop.audit' "
        "(database.table)"
    )
    assert (code, err) == (1, f"binlane verify: {unmet}\n")
    assert json.loads(out) == {"equal": False, "error": unmet, "tables": []}
    assert stage.verify(url(shop), "shop.it*")[0] == 0


def test_what_is_on_its_way_is_waited_for(stage: Stage, shop: sa.Connection) -> None:
    """A row that never rests is equal, too, once the replica shows a state that the source was seen in."""
    insert(shop, "(1, 'n', 1.5)", "(2, 'first', 1.5)", "(3, 'n', 1.5)")
    items = stage.replicate("items", ITEMS, item(1, "old"), item(2, "old"), item(4))
    looks = 0

    def sleep(_: float) -> None:
        nonlocal looks
        looks += 1
        shop.exec_driver_sql(f"UPDATE items SET name = 'at look {looks}' WHERE id = 2")
        if looks == 2:
            items.put(
                *({"op": "upsert", **row} for row in (item(1), item(2, "at look 1"), item(3))),
                {"op": "delete", "id": 4},
                of=ITEMS,
            )

    report = stage.compare(url(shop), sleep)
    assert (report.is_equal, looks) == (True, 2)

    def idle(_: float) -> None:
        nonlocal looks
        looks += 1

    shop.exec_driver_sql("UPDATE items SET name = 'lost' WHERE id = 1")
    report = stage.compare(url(shop), idle, settle=0.5)
    assert not report.is_equal
    assert looks > 2
    assert [each.key for each in report.tables[0].check.outcome.differences] == [(1,), (2,)]  # type: ignore[union-attr]  # it was compared


@pytest.mark.soak
def test_the_table_alone_is_compared_when_asked(stage: Stage, shop: sa.Connection) -> None:
    insert(shop, "(1, 'n', 1.5)", "(2, 'n', 1.5)")
    items = stage.table("items")
    items.table("id BIGINT, name STRING, price DECIMAL(10,2)", "(1, 'n', 1.5)")
    items.put({"op": "insert", **item(2)}, of=ITEMS)
    assert stage.verify(url(shop), "--through", "view")[0] == 0
    code, told = stage.verify(url(shop), "--through", "table")
    assert (code, told["tables"][0]["differences"][0]["key"]) == (1, {"id": "2"})


@pytest.mark.soak
def test_rows_without_a_key_are_compared_as_often_as_they_are_there(
    stage: Stage, shop: sa.Connection
) -> None:
    shop.exec_driver_sql("CREATE TABLE tags (name TEXT)")
    shop.exec_driver_sql("INSERT INTO tags VALUES ('a'), ('a'), ('b'), (NULL)")
    tags = stage.table("tags")
    tags.table("name STRING", "('a')", "('b')", "('b')", "(NULL)")
    tags.put(of=shape((), name=pa.string()))
    code, told = stage.verify(url(shop), "shop.tags")
    [table] = told["tables"]
    assert (code, table["source_rows"], table["replica_rows"], table["different_rows"]) == (1, 4, 4, 2)
    assert [(each["row"], each["columns"]) for each in table["differences"]] == [
        ("missing", {"name": {"source": "a"}}),
        ("surplus", {"name": {"replica": "b"}}),
    ]
    tags.spark.sql(f"UPDATE {tags.ref.sql} SET name = 'a' WHERE name = 'b'")
    shop.exec_driver_sql("UPDATE tags SET name = 'a' WHERE name = 'b'")
    assert stage.verify(url(shop), "shop.tags")[0] == 0


def test_tables_and_columns_of_one_side_are_told(stage: Stage, shop: sa.Connection) -> None:
    for name in ("empty", "lost", "outside"):
        shop.exec_driver_sql(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY)")
    shop.exec_driver_sql("INSERT INTO lost VALUES (1)")
    shop.exec_driver_sql("ALTER TABLE items ADD note TEXT")
    stage.replicate("gone", ITEMS, item(1))
    stage.replicate("items", shape(id=pa.int64(), NAME=pa.string(), old=pa.string()))
    rule = {"match": "/shop.(items|lost|empty|gone)/", "handlers": [{"type": "spark", "mode": "replica"}]}
    stage.configure([rule])
    code, told = stage.verify(url(shop))
    assert code == 1
    assert {each["table"]: each["state"] for each in told["tables"]} == {
        "shop.gone": "no source", "shop.items": "different", "shop.lost": "no replica",
    }  # fmt: skip
    assert told["tables"][1]["notes"] == [
        "the replica has no column price, note", "the source has no column old (any more)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--against", "oracle://h/d"], "allowed: postgresql://"),
        (["--against", "sqlite:///shop.db", "--settle", "soon"], "--settle: found 'soon'"),
        (["--against", "sqlite:///shop.db", "--through", "glass"], "allowed: view, table"),
        (["--against", "sqlite:///shop.db", "orders"], "nearest"),
        ([], "--against"),
    ],
)
def test_what_cannot_be_asked_is_a_fault_of_the_command_line(
    stage: Stage, arguments: list[str], said: str
) -> None:
    code, out, err = stage.run("verify", *arguments)
    assert (code, out) == (2, "")
    assert said in " ".join(err.replace("│", " ").split())


def test_a_source_that_does_not_answer_is_told_without_its_password(stage: Stage) -> None:
    code, _, err = stage.run("verify", "--against", "mysql://root:hush-hush@127.0.0.1:1/shop")
    assert code == 1
    assert "the source database" in err
    assert "hush-hush" not in err
    code, _, err = stage.run("verify", "--against", f"sqlite:///{stage.folder / 'no.db'}")
    assert (code, "unable to open" in err) == (1, True)
    assert not (stage.folder / "no.db").exists()
