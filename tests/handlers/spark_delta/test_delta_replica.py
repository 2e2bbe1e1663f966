"""Replicas with a key: the table is as the last change of each key left it."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, at, shape

from handlers.spark.delta.commits.exactly_once import settings
from handlers.spark.delta.modes import replica
from handlers.spark.options import MergeOptions

ORDERS = shape(id=pa.int64(), name=pa.string(), price=pa.int32())


WAYS = ("as a small table", "as a large table", "without Spark")


def in_short(*ways: str) -> Any:
    """What random changes show in each way, this test does in these; in the others by `make soak`."""
    marked = [pytest.param(way, marks=() if way in ways else pytest.mark.soak) for way in WAYS]
    return pytest.mark.parametrize("way", marked, indirect=True)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small tables are written anew, others are merged into or appended to; without Spark, anew, too."""
    if request.param == "as a large table":
        monkeypatch.setattr(replica, "_SMALL", 0)
    return str(request.param)


def merging(way: str) -> dict[str, Any]:
    """The options of a table that is brought up in this way."""
    return {"merge": MergeOptions(engine="auto" if way == "without Spark" else "spark")}


def operations(table: Table) -> list[str]:
    """Of the table's commits, the first to the last."""
    found = table.sql("DESCRIBE HISTORY {t}").select("operation", "operationParameters").collect()
    parameters = [(row.operation, row.operationParameters) for row in reversed(found)]
    return [how.get("mode", name) for name, how in parameters]


@in_short("without Spark")
def test_the_last_change_of_each_key_stands(make_table: MakeTable, way: str) -> None:
    orders = make_table(**merging(way))
    orders.put(
        ORDERS, {"id": 1, "name": "a"}, {"id": 2, "name": "b", "op": "insert"}, {"id": 9, "op": "delete"}
    )
    orders.put(ORDERS, {"id": 2, "op": "delete"}, {"id": 3, "name": "c", "price": 7})
    orders.merge()
    assert orders.rows() == [(1, "a", None), (3, "c", 7)]
    orders.put(ORDERS, {"id": 1, "name": "A"}, {"id": 3, "op": "delete"}, {"id": 4, "name": "d"})
    orders.put(ORDERS, {"id": 4, "op": "delete"}, {"id": 2, "name": "back"}, {"id": 8, "op": "delete"})
    orders.merge()
    assert orders.rows() == [(1, "A", None), (2, "back", None)]
    assert orders.commits == 1
    assert orders.merged == 4
    assert orders.makers == ("dd" if way == "without Spark" else "ss")


def test_a_key_is_what_it_is_whatever_spark_takes_for_a_variable(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "_SMALL", 0)  # where it is the bound of a MERGE
    named, key = shape(id=pa.string(), n=pa.int32()), "${env:PATH} ${nothing}"
    table = make_table()
    for number in (1, 2):
        table.put(named, {"id": key, "n": number})
        table.merge()
    assert table.rows() == [(key, 2)]


def test_rows_of_narrower_types_are_appended(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_SMALL", 0)
    table = make_table()
    table.put(shape(id=pa.int64(), N=pa.decimal128(10, 2)), {"id": 1, "N": Decimal("1.5"), "op": "insert"})
    table.merge()
    table.put(shape(id=pa.int32(), n=pa.decimal128(8, 1)), {"id": 2, "n": Decimal("2.5"), "op": "insert"})
    table.merge()
    assert operations(table)[-1] == "Append"
    assert table.rows() == [(1, Decimal("1.50")), (2, Decimal("2.50"))]


def test_a_moment_is_a_key_in_any_time_zone(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_SMALL", 0)  # where it is the bound of a MERGE
    timed, table = shape(id=pa.timestamp("us", tz="UTC"), n=pa.int32()), make_table()
    clocks_back = datetime(2026, 10, 25, 1, tzinfo=UTC)
    moments = [clocks_back - timedelta(minutes=30), clocks_back + timedelta(minutes=40)]
    with settings(table.spark, {"spark.sql.session.timeZone": "Europe/Berlin"}):
        for number in (1, 2):
            table.put(timed, *({"id": moment, "n": number} for moment in moments))
            table.merge()
    assert table.rows("n") == [(2,), (2,)]


@in_short("without Spark")
def test_an_insert_of_a_row_that_is_there_replaces_it(make_table: MakeTable, way: str) -> None:
    orders = make_table(**merging(way))
    orders.put(ORDERS, {"id": 1, "name": "a", "op": "insert"})
    orders.merge()
    orders.put(ORDERS, {"id": 1, "name": "b", "op": "insert"}, {"id": 2, "name": "c", "op": "insert"})
    orders.merge()
    orders.put(ORDERS, {"id": 3, "name": "d", "op": "insert"})
    orders.merge()
    assert orders.rows() == [(1, "b", None), (2, "c", None), (3, "d", None)]
    _, *later = operations(orders)
    told = {"as a large table": ["MERGE", "Append"], "as a small table": ["Overwrite", "Overwrite"]}
    assert later == told.get(way, ["MERGE", "MERGE"])


def test_columns_that_a_row_does_not_carry_stay(make_table: MakeTable) -> None:
    odd = shape(("id",), **{"id": pa.int64(), "it's a \\ `name`": pa.string(), "price": pa.int32()})
    orders = make_table()
    orders.put(
        odd, {"id": 1, "it's a \\ `name`": "a", "price": 1}, {"id": 2, "it's a \\ `name`": "b", "price": 2}
    )
    orders.merge()
    lacking = [
        {"id": 1, "price": 5, "absent": ["it's a \\ `name`"]},
        {"id": 2, "absent": ["price"]},
        {"id": 3, "price": 6, "absent": ["it's a \\ `name`"]},
    ]
    orders.put(odd, *lacking, partial=True)
    orders.merge()
    assert orders.rows() == [(1, "a", 5), (2, None, 2), (3, None, 6)]


@pytest.mark.soak
def test_columns_of_the_table_alone_stay(make_table: MakeTable) -> None:
    orders = make_table()
    orders.put(ORDERS, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    orders.merge()
    orders.sql("ALTER TABLE {t} ADD COLUMNS (mine string)")
    orders.sql("UPDATE {t} SET mine = 'x'")
    orders.put(ORDERS, {"id": 1, "name": "A"}, {"id": 3, "name": "c"})
    orders.merge()
    assert orders.rows() == [(1, "A", None, "x"), (2, "b", None, "x"), (3, "c", None, None)]
    assert operations(orders)[-1] == "MERGE"


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "", "A", "ä'\\\n", "a ", "x" * 100]),
    "bytes": (pa.binary(), [b"a", b"", b"\x00", b"\x00\x01"]),
    "digits": (pa.decimal128(38, 0), [Decimal(0), Decimal(-1), Decimal("9" * 38)]),
    "moment": (pa.timestamp("us", tz="UTC"), [at(0), at(1)]),
    "clock": (
        pa.timestamp("us"),
        [datetime(2026, 1, 1, 1, 1, 1, 1), datetime(1000, 1, 1), datetime(9999, 12, 31)],
    ),
    "day": (pa.date32(), [date(2026, 1, 1), date(1000, 1, 1)]),
    "tiny": (pa.int8(), [0, -128, 127]),
    "big": (pa.int64(), [0, -(2**63), 2**63 - 1]),
    "float": (pa.float64(), [0.5, 0.0, -1e300]),
}


@in_short("as a large table", "without Spark")
def test_keys_of_every_type(make_table: MakeTable, way: str) -> None:
    keyed = shape(tuple(KEYS), **{name: arrow for name, (arrow, _) in KEYS.items()}, v=pa.int32())
    first = {name: values[0] for name, (_, values) in KEYS.items()}
    keys = [first] + [{**first, name: one} for name, (_, values) in KEYS.items() for one in values[1:]]
    table = make_table(**merging(way))
    table.put(keyed, *({**key, "v": 1} for key in keys))
    table.merge()
    table.put(keyed, *({**key, "v": 2} for key in keys[:-1]))
    table.merge()
    assert table.rows() == sorted(
        [(*key.values(), 2) for key in keys[:-1]] + [(*keys[-1].values(), 1)], key=repr
    )
    table.put(keyed, *({**key, "op": "delete"} for key in keys[1:]))
    table.merge()
    assert table.rows() == [(*first.values(), 2)]


def test_names_that_need_care(make_table: MakeTable) -> None:
    names = ("a.b", "sp ace", "ba`ck", "Ca;se", "quo'te", "select")
    odd = shape(("a.b", "sp ace"), **dict.fromkeys(names, pa.string()))
    table = make_table(partition_by=["SP ACE"])
    table.put(odd, dict(zip(names, "abcdef", strict=True)), dict(zip(names, "ghijkl", strict=True)))
    table.merge()
    table.put(odd, {**dict(zip(names, "abCDEF", strict=True))}, {"a.b": "g", "sp ace": "h", "op": "delete"})
    table.merge()
    assert table.rows() == [tuple("abCDEF")]
    assert table.sql("DESCRIBE DETAIL {t}").collect()[0].partitionColumns == ["sp ace"]


@in_short("without Spark")
def test_narrower_values_fit_a_wider_table(make_table: MakeTable, way: str) -> None:
    table = make_table(**merging(way))
    wide = shape(id=pa.int64(), price=pa.decimal128(12, 3), day=pa.timestamp("us"))
    table.put(wide, {"id": 1, "price": Decimal("1.125"), "day": datetime(2026, 1, 1, 2)})
    table.merge()
    narrow = shape(id=pa.int32(), price=pa.decimal128(6, 1), day=pa.date32())
    table.put(narrow, {"id": 1, "price": Decimal("2.5"), "day": date(2026, 1, 2)}, {"id": 2})
    table.merge()
    assert table.rows() == [(1, Decimal("2.500"), datetime(2026, 1, 2)), (2, None, None)]
    assert table.types() == {"id": "bigint", "price": "decimal(12,3)", "day": "timestamp_ntz"}


@pytest.mark.soak
def test_random_changes_come_to_what_a_model_says(make_table: MakeTable, way: str) -> None:
    chance = random.Random(way)
    keyed = shape(("a", "b"), a=pa.string(), b=pa.int32(), x=pa.string(), y=pa.float64())
    table, model = make_table(**merging(way)), {}
    for _ in range(4):
        for _ in range(chance.randint(1, 4)):
            keys = {(chance.choice("abcdefgh"), chance.randint(0, 9)) for _ in range(chance.randint(1, 40))}
            rows = []
            for a, b in sorted(keys):
                op = chance.choice(("insert", "upsert", "upsert", "delete"))
                if op == "insert" and (a, b) in model:
                    op = "upsert"
                row = {"a": a, "b": b, "x": chance.choice((None, "p", "q")), "y": chance.choice((None, 0.5))}
                if op == "delete":
                    model.pop((a, b), None)
                else:
                    model[a, b] = tuple(row.values())
                rows.append({"op": op, **row})
            table.put(keyed, *rows)
        table.merge()
        assert table.rows() == sorted(model.values(), key=repr)
