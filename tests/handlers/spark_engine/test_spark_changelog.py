"""Mode changelog: every change is a row, once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from spark_lake import TYPES, MakeLake, change

from handlers import Rejected
from handlers.rows import shard_of

BORN = datetime(2026, 2, 3, 4, 5)


def test_a_row_is_what_it_became_with_what_it_was_before_and_where_it_came_from(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog")
    lake.take(
        change(0, {"id": 1, "name": "a"}),
        change(1, {"id": 1, "name": "b"}, op="update", before={"id": 1, "name": "a"}),
        change(2, None, op="delete", before={"id": 1, "name": "b"}),
    )
    whole = "_offset, _op, id, name, _before, _topic, _partition, _index, _sql, _source_time"
    moments = [datetime.fromtimestamp(1_790_000_000.123 + offset / 1000, UTC) for offset in range(3)]
    rows = [
        (0, "insert", 1, "a", None, "cdc", 0, 0, None, moments[0]),
        (1, "update", 1, "b", {"id": 1, "name": "a"}, "cdc", 0, 0, None, moments[1]),
        (2, "delete", 1, "b", None, "cdc", 0, 0, None, moments[2]),
    ]
    assert lake.view(whole) == rows
    lake.merge()
    assert lake.rows(whole) == lake.view(whole) == rows
    assert list(lake.types()) == [
        "_op", "_source_time", "_topic", "_partition", "_offset", "_index", "_sql", "_before", "id", "name",
    ]  # fmt: skip


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_statements_are_kept_in_their_place_and_columns_follow_them(make_lake: MakeLake, format: str) -> None:
    lake = make_lake(mode="changelog", format=format)
    alter, drop = "ALTER TABLE orders ADD born datetime", "ALTER TABLE orders DROP name"
    lake.take(change(0, None, None, op="ddl", sql="CREATE TABLE orders ..."))
    lake.take(
        change(1, {"id": 1, "name": "a"}),
        change(2, None, None, op="ddl", sql=alter),
        change(3, {"id": 2, "name": "b", "born": BORN}, {**TYPES, "born": "datetime"}),
        change(4, None, None, op="ddl", sql=drop),
        change(5, {"id": 3, "born": BORN}, {"id": "int", "born": "datetime"}),
    )
    lake.take(change(6, None, None, op="truncate", sql="TRUNCATE orders"))
    lake.merge()
    columns, path = "_offset, _op, _sql, id, name, born", lake.folder / "lake/shop/orders"
    rows = [
        (0, "ddl", "CREATE TABLE orders ...", None, None, None),
        (1, "insert", None, 1, "a", None),
        (2, "ddl", alter, None, None, None),
        (3, "insert", None, 2, "b", BORN),
        (4, "ddl", drop, None, None, None),
        (5, "insert", None, 3, None, BORN),
        (6, "truncate", "TRUNCATE orders", None, None, None),
    ]
    assert lake.view(columns) == rows
    if format == "delta":
        assert lake.rows(columns) == rows
    else:
        # Plain files: any reader of Parquet will do.
        frame = lake.spark.read.option("mergeSchema", "true").parquet(str(path))
        assert sorted(tuple(row) for row in frame.selectExpr(*columns.split(", ")).collect()) == rows
        assert {each.suffix for each in path.iterdir()} == {".parquet"}


def test_rows_of_narrower_types_than_before_are_added(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog", merge={"at_close": "0s"})
    wide = {"id": "int", "n": "decimal(10,2)", "at": "datetime"}
    lake.take(change(0, {"id": 1, "n": Decimal("1.5"), "at": BORN}, wide))
    lake.sink().merge()
    narrow = {"id": "smallint", "n": "decimal(8,1)", "at": "date"}
    old, new = ({"id": 2, "n": Decimal(n), "at": BORN.date()} for n in ("2.5", "3.5"))
    lake.take(change(1, new, narrow, op="update", before=old), change(2, new, narrow))
    columns = "_offset, id, n, at, _before.n AS before"
    midnight = datetime(2026, 2, 3)
    rows = [
        (0, 1, Decimal("1.50"), BORN, None),
        (1, 2, Decimal("3.50"), midnight, Decimal("2.50")),
        (2, 2, Decimal("3.50"), midnight, None),
    ]
    assert lake.view(columns) == rows
    lake.sink().merge()
    assert lake.view(columns) == rows
    assert lake.rows("_offset, id, n, at") == [row[:4] for row in rows]
    assert lake.types()["n"] == "decimal(10,2)"


def test_an_old_row_that_its_struct_cannot_hold_is_rejected(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog", merge={"at_close": "0s"})
    lake.take(change(0, {"id": 1, "n": 5}, {"id": "int", "n": "int"}))
    lake.sink().merge()
    types = {"id": "int", "n": "decimal(10,0)"}
    large, new = ({"id": 1, "n": Decimal(n)} for n in (3_000_000_000, 7))
    with pytest.raises(Rejected, match=r"offset 2: the table's column is an int32: give it") as found:
        lake.take(change(1, new, types), change(2, new, types, op="update", before=large))
    assert found.value.at == 1
    lake.take(change(1, new, types), change(3, new, types, op="update", before=new))
    lake.sink().merge()
    assert lake.rows("_offset, n, _before.n AS old") == [(0, 5, None), (1, 7, None), (3, 7, 7)]


@pytest.mark.parametrize("format", ["delta", "parquet"])
def test_shards_of_one_table_written_at_once_and_again_are_there_once(
    make_lake: MakeLake, format: str
) -> None:
    lake = make_lake(mode="changelog", format=format)
    changes = [change(offset, {"id": offset % 10, "name": f"n{offset}"}) for offset in range(40)]
    shards: dict[int | None, list[int]] = {}
    for place, one in enumerate(changes):
        shards.setdefault(shard_of(one), []).append(place)

    def write(shard: int | None, places: list[int], pieces: int) -> None:
        for start in range(0, len(places), pieces):
            lake.take(*(changes[place] for place in places[start : start + pieces]), shard=shard)

    def write_all(pieces: int) -> None:
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(write, shard, places, pieces) for shard, places in shards.items()]:
                done.result()

    write_all(2)
    lake.crash()
    write_all(3)  # all comes again, cut otherwise
    lake.take(*changes)  # and once more, as a batch of the whole table
    lake.merge()
    assert sorted(row[0] for row in lake.view("_offset")) == list(range(40))


def test_columns_of_any_name_come_behind_a_statement_that_came_first(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog")
    lake.take(change(0, None, op="ddl", sql="CREATE TABLE orders (id INT, `a b` INT, `d.o``t` INT)"))
    lake.merge()
    types = {"id": "int", "a b": "int", "d.o`t": "int"}
    lake.take(change(1, {"id": 1, "a b": 2, "d.o`t": 3}, types))
    lake.merge()
    assert lake.view("_op, `a b`, `d.o``t`") == [("ddl", None, None), ("insert", 2, 3)]
