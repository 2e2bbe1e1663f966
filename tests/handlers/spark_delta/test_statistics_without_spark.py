"""What commits without Spark say of values is true: Spark passes over files by it."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, at, shape

from handlers.spark.delta.few_files import statistics
from handlers.spark.options import MergeOptions

BY_RS = MergeOptions(engine="auto")
_LONG = Decimal(2**53 + 1)
"""It has no equal among doubles."""
_VALUES: list[tuple[pa.DataType, Any, str]] = [
    (pa.decimal128(20, 0), _LONG, f"v >= {_LONG}BD"),
    (pa.decimal128(15, 2), Decimal("9999999999999.97"), "v >= 9999999999999.97BD"),
    (pa.float64(), math.nan, "v > 5"),
    (
        pa.timestamp("us"),
        datetime(2026, 1, 1, 0, 0, 0, 123_456),
        "v >= timestamp_ntz'2026-01-01 00:00:00.123456'",
    ),
    (
        pa.timestamp("us", "UTC"),
        datetime(2026, 1, 1, 0, 0, 0, 999_999),
        "v >= timestamp'2026-01-01 00:00:00.999999Z'",
    ),
    (pa.string(), "z" * 100, f"v >= '{'z' * 100}'"),
    (pa.date32(), date(2026, 1, 1), "v >= date'2026-01-01'"),
]


def test_bounds_are_told_where_they_are_those_of_the_values() -> None:
    kinds = [kind for kind, _, _ in _VALUES]
    rows = pa.table(
        [pa.array([value, None], kind) for kind, value, _ in _VALUES], names=list(map(str, kinds))
    )
    floats = pa.table({"double": [math.nan, 1.0], "struct": [{"v": _LONG}, None]})
    for table in (rows, floats):
        told = json.loads(statistics(table))["maxValues"]
        assert not {"decimal128(20, 0)", "double", "struct"}.intersection(told)
        assert table is floats or told["decimal128(15, 2)"] == 9999999999999.97


def found(table: Table, condition: str) -> int:
    [row] = table.sql(f"SELECT count(*) FROM {{t}} WHERE {condition}").collect()
    return int(row[0])


@pytest.mark.soak
def test_every_value_is_found(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    of = shape(id=pa.int64(), **{f"v{number}": kind for number, (kind, _, _) in enumerate(_VALUES)})
    row = {f"v{number}": value for number, (_, value, _) in enumerate(_VALUES)}
    small = {f"v{number}": 1.0 for number, (kind, _, _) in enumerate(_VALUES) if kind == pa.float64()}
    for key in (1, 2):  # the first makes the table
        table.put(of, {"id": key, **row}, {"id": 3, **small})
        table.merge()
    assert table.makers == "dd"
    counts = {
        condition: found(table, condition.replace("v", f"v{number}", 1))
        for number, (_, _, condition) in enumerate(_VALUES)
    }
    assert counts == dict.fromkeys(counts, 2)


def test_every_value_within_a_struct_is_found(make_table: MakeTable) -> None:
    table = make_table(mode="changelog", merge=BY_RS)
    row = {"id": 1, "v": _LONG, "op": "update", "source_time": at(0), "before": {"id": 1, "v": _LONG}}
    for offset in (1, 2):
        place = {"topic": "cdc", "partition": 0, "index": 0, "offset": offset}
        table.put(shape(id=pa.int64(), v=pa.decimal128(20, 0)), {**row, **place})
        table.merge()
    assert table.makers == "dd"
    assert found(table, f"_before.v >= {_LONG}BD") == 2


def test_a_key_is_merged_into_its_row_in_a_large_table(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = shape(id=pa.decimal128(20, 0), name=pa.string())
    table = make_table(merge=BY_RS)
    for name in ("a", "b"):
        table.put(of, {"id": _LONG, "name": name})
        table.merge()
    table.options = table.options.model_copy(update={"merge": MergeOptions.model_validate({})})
    monkeypatch.setattr("handlers.spark.delta.modes.replica._SMALL", 0)
    table.put(of, {"id": _LONG, "name": "c"})
    table.merge()
    assert table.rows() == [(_LONG, "c")]
