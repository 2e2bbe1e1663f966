"""`binlane verify --repair`: what differs is written as the source has it, and nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from verify_lab import Stage, url
from view_lab import HandMade, shape

from handlers.spark.runtime.session import SharedSpark
from worker.verifying import repairing

pytestmark = pytest.mark.usefixtures("each_reader")

PRICE = Decimal("1.50")
ITEMS = shape(id=pa.int64(), name=pa.string(), price=pa.decimal128(10, 2))


@pytest.fixture
def shop(shop: sa.Connection) -> sa.Connection:
    """With four items."""
    shop.exec_driver_sql(
        "INSERT INTO items VALUES (1, 'n', 1.5), (2, 'here', 1.5), (3, NULL, 2.25), (4, 'n', 1.5)"
    )
    return shop


def items(stage: Stage, *rows: str) -> HandMade:
    """A replica with a Delta table; a row of it that waits, so that its log tells the key."""
    table = stage.table("items")
    table.table("id BIGINT, name STRING, price DECIMAL(10,2)", *rows)
    table.put({"op": "upsert", "id": 4, "name": "n", "price": PRICE}, of=ITEMS)
    return table


def rows_of(table: HandMade) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.spark.sql(f"SELECT * FROM {table.ref.sql}").collect())


def test_rows_that_cannot_be_read_are_not_taken_for_missing(
    stage: Stage, shop: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = items(stage, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 2.25)")
    plain = SharedSpark.fresh

    def passing_over(spark: SharedSpark) -> Any:
        session = plain(spark)
        session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
        return session

    monkeypatch.setattr(SharedSpark, "fresh", passing_over)
    whole = {file: file.read_bytes() for file in Path(table.ref.path or "").glob("*.parquet")}
    for file, data in whole.items():
        file.write_bytes(data[: len(data) // 2])
    code, _, told = stage.run("verify", "--against", url(shop), "--settle", "0s", "--repair")
    for file, data in whole.items():
        file.write_bytes(data)
    assert (code, len(rows_of(table))) == (1, 3), told


def version_of(table: HandMade) -> int:
    return int(table.spark.sql(f"DESCRIBE HISTORY {table.ref.sql} LIMIT 1").collect()[0].version)


def test_rows_that_differ_are_written_in_one_commit_and_the_others_left(
    stage: Stage, shop: sa.Connection
) -> None:
    table = items(stage, "(1, 'n', 1.5)", "(3, 'x', 2.2)", "(5, 'gone', 1)")
    before = version_of(table)
    code, told = stage.verify(url(shop), "--repair")
    [found] = told["tables"]
    assert (code, told["equal"], found["state"], found["repaired_rows"]) == (0, True, "repaired", 3)
    assert version_of(table) == before + 1
    assert rows_of(table) == [
        (1, "n", Decimal("1.50")),
        (2, "here", Decimal("1.50")),
        (3, None, Decimal("2.25")),
    ]
    code, told = stage.verify(url(shop), "--repair")
    assert (code, told["tables"][0]["state"], version_of(table)) == (0, "equal", before + 1)


def between(monkeypatch: pytest.MonkeyPatch, *do: Callable[[], object]) -> None:
    """Each is done once, when the source was read and nothing is written yet."""
    left = list(do)
    merge = repairing._merge

    def late(*arguments: Any, **named: Any) -> str:
        if left:
            left.pop(0)()
        return merge(*arguments, **named)

    monkeypatch.setattr(repairing, "_merge", late)


@pytest.mark.soak
def test_what_a_worker_brings_in_meanwhile_is_newer_and_stays(
    stage: Stage, shop: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = items(stage, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(5, 'gone', 1)")

    def newer() -> None:
        # Both differ, and a worker brings in what the source has become since it was read.
        shop.exec_driver_sql("UPDATE items SET name = 'newer' WHERE id = 3")
        shop.exec_driver_sql("INSERT INTO items VALUES (5, 'again', 3)")
        table.spark.sql(f"INSERT INTO {table.ref.sql} VALUES (3, 'newer', 2.25)")
        table.spark.sql(f"UPDATE {table.ref.sql} SET name = 'again', price = 3 WHERE id = 5")

    between(monkeypatch, newer)
    written = []
    monkeypatch.setattr(repairing, "_write", counted(repairing._write, written))
    code, told = stage.verify(url(shop), "--repair")
    assert (code, told["tables"][0]["state"]) == (0, "repaired")
    assert written == [0]
    assert rows_of(table)[2:] == [(3, "newer", Decimal("2.25")), (5, "again", Decimal("3.00"))]


def counted(write: Callable[..., int], written: list[int]) -> Callable[..., int]:
    def counting(*arguments: Any) -> int:
        written.append(write(*arguments))
        return written[-1]

    return counting


@pytest.mark.soak
def test_what_waits_and_brings_a_wrong_row_back_is_told(stage: Stage, shop: sa.Connection) -> None:
    table = items(stage, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 2.25)")
    table.put({"op": "upsert", "id": 1, "name": "wrong", "price": PRICE}, of=ITEMS)
    code, told = stage.verify(url(shop), "--repair")
    [found] = told["tables"]
    assert (code, found["state"], found["different_rows"]) == (1, "different", 1)
    assert "not repaired: 1 rows differ although they were written. Either waiting changes" in found["error"]


@pytest.mark.soak
def test_a_table_that_cannot_be_repaired_is_left_and_told(stage: Stage, shop: sa.Connection) -> None:
    shop.exec_driver_sql("CREATE TABLE tags (name TEXT)")
    shop.exec_driver_sql("INSERT INTO tags VALUES ('a')")
    tags = stage.table("tags")
    tags.table("name STRING", "('b')")
    tags.put(of=shape((), name=pa.string()))
    table = items(stage, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, 'x', 2.25)")
    masked = {"columns": {"mask": {"price": "null"}}}
    stage.configure(
        [
            {"match": "shop.items", **masked, "handlers": [{"type": "spark", "mode": "replica"}]},
            {"match": "shop.*", "handlers": [{"type": "spark", "mode": "replica"}]},
        ]
    )
    versions = version_of(table), version_of(tags)
    code, told = stage.verify(url(shop), "--repair")
    errors = {each["table"]: each["error"] for each in told["tables"]}
    assert code == 1
    assert "mask, cast or add" in errors["shop.items"]
    assert "no key" in errors["shop.tags"]
    assert (version_of(table), version_of(tags)) == versions


def test_a_value_that_the_column_cannot_keep_is_told_and_nothing_is_written(
    stage: Stage, shop: sa.Connection
) -> None:
    shop.exec_driver_sql("UPDATE items SET price = 123456789012.5 WHERE id = 3")
    table = items(stage, "(1, 'x', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 2.25)")
    before = version_of(table)
    code, told = stage.verify(url(shop), "--repair")
    assert code == 1
    assert (
        "column price: 123456789012.5 does not fit into a column of type decimal(10,2)"
        in told["tables"][0]["error"]
    )
    assert version_of(table) == before


@pytest.mark.soak
def test_a_change_that_leaves_no_trace_meanwhile_is_seen_when_both_are_looked_at_again(
    stage: Stage, shop: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source deletes a row that the replica has not, and makes another what it is there."""
    table = items(stage, "(1, 'n', 1.5)", "(2, 'x', 1.5)", "(4, 'n', 1.5)")

    def back() -> None:
        shop.exec_driver_sql("DELETE FROM items WHERE id = 3")
        shop.exec_driver_sql("UPDATE items SET name = 'x' WHERE id = 2")

    between(monkeypatch, back)
    code, told = stage.verify(url(shop), "--repair")
    assert (code, told["tables"][0]["state"]) == (0, "repaired")
    assert rows_of(table) == [(1, "n", PRICE), (2, "x", PRICE), (4, "n", PRICE)]


@pytest.mark.parametrize(
    ("source", "replica", "said"),
    [
        pytest.param(
            ("FLOAT", "0.1"), ("FLOAT", "0.1"), "rows differ although they were written", id="float"
        ),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in [
                (("TIME", "'01:02:03'"), ("STRING", "'01:02:03.000'"), "is text here, but TIME"),
                (("BLOB", "x'00ff'"), ("STRING", "'AP8='"), "is text here, but BLOB"),
                (("TEXT", "NULL"), ("STRING", "NULL"), "a key is NULL"),
                (("DATETIME", "'2024-01-01 00:00:00.000000'"), ("TIMESTAMP_NTZ", "'2024-01-01'"), None),
            ]
        ),
    ],
)
def test_a_row_is_not_deleted_because_it_is_not_found_by_its_key(
    stage: Stage, shop: sa.Connection, source: tuple[str, str], replica: tuple[str, str], said: str | None
) -> None:
    (kind, found), (kept, there) = source, replica
    shop.exec_driver_sql(f"CREATE TABLE keys (k {kind} PRIMARY KEY, v TEXT)")
    shop.exec_driver_sql(f"INSERT INTO keys VALUES ({found}, 'right')")
    table = stage.table("keys")
    table.table(f"k {kept}, v STRING", f"({there}, 'wrong')")
    types = {"STRING": pa.string(), "FLOAT": pa.float32(), "TIMESTAMP_NTZ": pa.timestamp("us")}
    table.put(of=shape(("k",), k=types[kept], v=pa.string()))
    code, told = stage.verify(url(shop), "shop.keys", "--repair")
    [row] = rows_of(table)
    if said is None:
        assert (code, row[1]) == (0, "right")
    else:
        assert (code, row[1]) == (1, "wrong")
        assert said in told["tables"][0]["error"]


@pytest.mark.soak
def test_rows_that_are_missing_in_a_large_table_are_left_to_who_may_be_about_to_append_them(
    stage: Stage, shop: sa.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "_SMALL", 0)
    table = items(stage, "(1, 'n', 1.5)", "(3, 'x', 2.25)", "(5, 'gone', 1)")
    code, told = stage.verify(url(shop), "--repair")
    [found] = told["tables"]
    assert (code, found["state"], found["repaired_rows"], found["different_rows"]) == (1, "different", 2, 1)
    assert "missing in a large table" in found["error"]
    assert rows_of(table) == [(1, "n", PRICE), (3, None, Decimal("2.25"))]


@pytest.mark.soak
def test_a_fault_of_spark_is_told_and_no_conflict(stage: Stage, shop: sa.Connection) -> None:
    table = items(stage, "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, NULL, 1)")
    table.spark.sql(f"ALTER TABLE {table.ref.sql} ADD CONSTRAINT cheap CHECK (price < 2)")
    code, told = stage.verify(url(shop), "--repair")
    assert (code, told["tables"][0]["repaired_rows"]) == (1, 0)
    assert "CHECK constraint cheap" in told["tables"][0]["error"]


@pytest.mark.soak
def test_keys_that_are_there_twice_are_told(stage: Stage, shop: sa.Connection) -> None:
    items(stage, "(1, 'n', 1.5)", "(1, 'n', 1.5)", "(2, 'here', 1.5)", "(3, 'x', 2.25)")
    code, told = stage.verify(url(shop), "--repair")
    assert code == 1
    assert "a key occurs more than once: rebuild the table" in told["tables"][0]["error"]
