"""Spark reads from a segment's Parquet file the types and values that were meant."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from piece_lab import change, one_piece
from spark_sessions import SparkKeeper

from handlers.spark.runtime.session import SharedSpark

UUID = "0191d6e0-0000-7000-8000-000000000000"
WIDE = Decimal("9" * 28 + "." + "9" * 10)
MANY = Decimal("9" * 35 + "." + "1" * 30)
VALUES: dict[str, tuple[str, Any, str, Any]] = {
    # column: (source type, its value, Spark's type, what Spark reads)
    "c_tiny": ("tinyint", -128, "tinyint", -128),
    "c_smallu": ("smallint unsigned", 65535, "int", 65535),
    "c_year": ("year", 2155, "smallint", 2155),
    "c_big": ("bigint", -(2**63), "bigint", -(2**63)),
    "c_bigu": ("bigint unsigned", 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    "c_bit": ("bit(8)", 255, "bigint", 255),
    "c_bit64": ("bit(64)", 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
    "c_dec": ("decimal(38,10)", WIDE, "decimal(38,10)", WIDE),
    "c_many": ("decimal(65,30)", MANY, "string", f"{MANY:f}"),
    "c_open": ("numeric", Decimal("11.5"), "decimal(20,2)", Decimal("11.50")),
    "c_float": ("float", 0.10000000149011612, "float", 0.10000000149011612),
    "c_double": ("double", -1.7976931348623157e308, "double", -1.7976931348623157e308),
    "c_bool": ("boolean", True, "boolean", True),
    "c_date": ("date", date(1000, 1, 1), "date", date(1000, 1, 1)),
    "c_dt": (
        "datetime(6)", datetime(9999, 12, 31, 23, 59, 59, 999999), "timestamp_ntz",
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    "c_old": ("datetime", datetime(1000, 1, 1), "timestamp_ntz", datetime(1000, 1, 1)),
    "c_ts": (
        "timestamp(3)", datetime(2038, 1, 19, 3, 14, 7, 999000, UTC), "timestamp",
        datetime(2038, 1, 19, 3, 14, 7, 999000, UTC),
    ),
    "c_time": ("time(3)", -timedelta(hours=838, milliseconds=5), "string", "-838:00:00.005"),
    "c_text": ("longtext", "字 😀", "string", "字 😀"),
    "c_json": ("json", '{"k":[1,null]}', "string", '{"k":[1,null]}'),
    "c_enum": ("enum('a','b')", "b", "string", "b"),
    "c_set": ("set('a','b','c')", ("a", "c"), "array<string>", ["a", "c"]),
    "c_bytes": ("varbinary(4)", b"\x00\xff", "binary", b"\x00\xff"),
    "c_uuid": ("uuid", UUID, "string", UUID),
    "c_null": ("int", None, "int", None),
}  # fmt: skip
TYPES = {"id": "int", **{name: type_text for name, (type_text, _, _, _) in VALUES.items()}}
ROW = {"id": 1, **{name: value for name, (_, value, _, _) in VALUES.items()}}
READ = {name: value for name, (_, _, _, value) in VALUES.items()}


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper) -> SharedSpark:
    return spark_keeper.get()


@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_every_type_is_read_as_it_was_meant(spark: SharedSpark, tmp_path: Path, mode: Any) -> None:
    piece = one_piece(
        change(0, "insert", ROW, types=TYPES),
        change(1, "update", {**ROW, "id": 2}, {**ROW, "id": 2}, types=TYPES),
        change(2, "delete", None, {**ROW, "id": 3}, types=TYPES),
        mode=mode,
    )
    pq.write_table(piece.rows, tmp_path / "00000000000000000001.parquet")
    frame = spark.session.read.parquet(str(tmp_path))

    types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    assert {name: types[name] for name in VALUES} == {name: kept for name, (_, _, kept, _) in VALUES.items()}
    assert (types["_op"], types["_source_time"]) == ("string", "timestamp")
    rows = {row["id"]: row for row in frame.toArrow().to_pylist()}
    for row in (rows[1], rows[2]):
        assert {name: row[name] for name in VALUES} == READ
    assert rows[1]["_source_time"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        milliseconds=1_790_000_000_123
    )
    if mode == "changelog":
        fields = frame.schema["_before"].dataType.fields
        assert {field.name: field.dataType.simpleString() for field in fields} == {
            name: types[name] for name in piece.shape.schema.names
        }
        assert rows[1]["_before"] is None
        assert rows[2]["_before"] == {"id": 2, **READ}
    if mode == "replica":
        assert types["_absent"] == "array<string>"
        assert all(rows[3][name] is None for name in VALUES)
    else:
        assert {name: types[name] for name in ("_topic", "_partition", "_offset", "_index")} == {
            "_topic": "string", "_partition": "int", "_offset": "bigint", "_index": "int"
        }  # fmt: skip
        assert {name: rows[3][name] for name in VALUES} == READ
