"""Replicas with a key: the table is as the last change of each key left it."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, at, shape

ORDERS = shape(id=pa.int64(), name=pa.string(), price=pa.int32())


def test_the_last_change_of_each_key_stands(make_table: MakeTable) -> None:
    orders = make_table()
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


def test_an_insert_of_a_row_that_is_there_replaces_it(make_table: MakeTable) -> None:
    orders = make_table()
    orders.put(ORDERS, {"id": 1, "name": "a", "op": "insert"})
    orders.merge()
    orders.put(ORDERS, {"id": 1, "name": "b", "op": "insert"}, {"id": 2, "name": "c", "op": "insert"})
    orders.merge()
    orders.put(ORDERS, {"id": 3, "name": "d", "op": "insert"})
    orders.merge()
    assert orders.rows() == [(1, "b", None), (2, "c", None), (3, "d", None)]


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


def test_columns_of_the_table_alone_stay(make_table: MakeTable) -> None:
    orders = make_table()
    orders.put(ORDERS, {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    orders.merge()
    orders.sql("ALTER TABLE {t} ADD COLUMNS (mine string)")
    orders.sql("UPDATE {t} SET mine = 'x'")
    orders.put(ORDERS, {"id": 1, "name": "A"}, {"id": 3, "name": "c"})
    orders.merge()
    assert orders.rows() == [(1, "A", None, "x"), (2, "b", None, "x"), (3, "c", None, None)]


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.string(), ["", "a", "A", "ä'\\\n", "a "]),
        (pa.binary(), [b"", b"\x00", b"\x00\x01", b"a"]),
        (pa.decimal128(38, 0), [Decimal(0), Decimal(-1), Decimal("9" * 38)]),
        (
            pa.timestamp("us"),
            [datetime(1000, 1, 1), datetime(2026, 1, 1, 1, 1, 1, 1), datetime(9999, 12, 31)],
        ),
        (pa.timestamp("us", tz="UTC"), [at(0), at(1)]),
        (pa.date32(), [date(1000, 1, 1), date(2026, 1, 1)]),
        (pa.int8(), [-128, 0, 127]),
        (pa.float64(), [0.0, 0.1, -1e300]),
    ],
)
def test_keys_of_every_type(make_table: MakeTable, arrow: pa.DataType, values: list[Any]) -> None:
    keyed = shape(("k", "n"), k=arrow, n=pa.int16(), v=pa.int32())
    table = make_table()
    table.put(keyed, *({"k": value, "n": 1, "v": 1} for value in values))
    table.merge()
    table.put(
        keyed, *({"k": value, "n": 1, "v": 2} for value in values[:-1]), {"k": values[-1], "n": 2, "v": 3}
    )
    table.merge()
    expected = [(value, 1, 2) for value in values[:-1]] + [(values[-1], 1, 1), (values[-1], 2, 3)]
    assert table.rows() == sorted(expected, key=repr)
    table.put(keyed, *({"k": value, "n": 1, "op": "delete"} for value in values))
    table.merge()
    assert table.rows() == [(values[-1], 2, 3)]


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


def test_narrower_values_fit_a_wider_table(make_table: MakeTable) -> None:
    table = make_table()
    wide = shape(id=pa.int64(), price=pa.decimal128(12, 3), day=pa.timestamp("us"))
    table.put(wide, {"id": 1, "price": Decimal("1.125"), "day": datetime(2026, 1, 1, 2)})
    table.merge()
    narrow = shape(id=pa.int32(), price=pa.decimal128(6, 1), day=pa.date32())
    table.put(narrow, {"id": 1, "price": Decimal("2.5"), "day": date(2026, 1, 2)}, {"id": 2})
    table.merge()
    assert table.rows() == [(1, Decimal("2.500"), datetime(2026, 1, 2)), (2, None, None)]
    assert table.types() == {"id": "bigint", "price": "decimal(12,3)", "day": "timestamp_ntz"}


@pytest.mark.parametrize("seed", [1, 2])
def test_random_changes_come_to_what_a_model_says(make_table: MakeTable, seed: int) -> None:
    chance = random.Random(seed)
    keyed = shape(("a", "b"), a=pa.string(), b=pa.int32(), x=pa.string(), y=pa.float64())
    table, model = make_table(), {}
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
