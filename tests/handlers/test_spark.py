"""The Spark handler on a real Spark with real Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from captured import CapturedRecord
from spark_lake import TYPES, Lake, change

from handlers import Change, PartialFailure
from handlers.spark.changelog import IncompatibleSchema, SparkFailure, path_safe
from handlers.spark.rows import UnfitValue
from worker.formats.canal.format import Canal


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps one Spark running for all tests here."""
    lake = Lake(tmp_path_factory.mktemp("spark"))
    yield
    lake.handler.close()


@pytest.fixture
def lake(spark: None, tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.handler.close()


WIDE = f"{'9' * 28}.{'9' * 10}"
WIDEST = f"{'9' * 35}.{'1' * 30}"
EXTREMES = {
    # column: (MySQL type, Canal's text, Spark's type, what is read back)
    "c_tiny": ("tinyint", "-128", "tinyint", -128),
    "c_tinyu": ("tinyint unsigned", "255", "smallint", 255),
    "c_bool": ("tinyint(1)", "1", "tinyint", 1),
    "c_small": ("smallint", "-32768", "smallint", -32768),
    "c_smallu": ("smallint unsigned", "65535", "int", 65535),
    "c_medium": ("mediumint unsigned", "16777215", "int", 16777215),
    "c_int": ("int", "-2147483648", "int", -2147483648),
    "c_intu": ("int(10) unsigned", "4294967295", "bigint", 4294967295),
    "c_big": ("bigint", "-9223372036854775808", "bigint", -9223372036854775808),
    "c_bigu": ("bigint unsigned", "18446744073709551615", "decimal(20,0)", Decimal("18446744073709551615")),
    "c_dec": ("decimal(10,2)", "-99999999.90", "decimal(10,2)", Decimal("-99999999.90")),
    "c_dec_short": ("decimal(10,2)", "9061.0", "decimal(10,2)", Decimal("9061.00")),
    "c_dec_whole": ("decimal(20,0) unsigned", "9" * 20, "decimal(20,0)", Decimal("9" * 20)),
    "c_dec_wide": ("decimal(38,10)", WIDE, "decimal(38,10)", Decimal(WIDE)),
    "c_dec_widest": ("decimal(65,30)", WIDEST, "string", WIDEST),
    "c_float": ("float", "0.5", "float", 0.5),
    "c_double": ("double", "-1.7976931348623157E308", "double", -1.7976931348623157e308),
    "c_bit1": ("bit(1)", "1", "bigint", 1),
    "c_bit64": ("bit(64)", "18446744073709551615", "decimal(20,0)", Decimal("18446744073709551615")),
    "c_date": ("date", "1000-01-01", "date", date(1000, 1, 1)),
    "c_zero": ("date", "0000-00-00", "date", None),
    "c_time": ("time", "-838:59:59", "string", "-838:59:59"),
    "c_time6": ("time(6)", "00:00:00.000001", "string", "00:00:00.000001"),
    "c_dt": ("datetime", "1000-01-01 00:00:00", "timestamp_ntz", datetime(1000, 1, 1)),
    "c_dt6": (
        "datetime(6)", "9999-12-31 23:59:59.999999", "timestamp_ntz",
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ),
    "c_ts3": (
        "timestamp(3)", "2038-01-19 03:14:07.999", "timestamp",
        datetime(2038, 1, 19, 3, 14, 7, 999000, tzinfo=UTC),
    ),
    "c_year": ("year", "2155", "smallint", 2155),
    "c_char": ("char(10)", "字 😀", "string", "字 😀"),
    "c_text": ("longtext", "", "string", ""),
    "c_bin": ("binary(4)", "ÿ\u0001", "binary", b"\xff\x01\x00\x00"),
    "c_blob": ("blob", "\u0000ÿ", "binary", b"\x00\xff"),
    "c_enum": ("enum('small','x,l')", "2", "string", "x,l"),
    "c_set": ("set('a','b','c')", "5", "array<string>", ["a", "c"]),
    "c_json": ("json", '{"k": [1, null]}', "string", '{"k":[1,null]}'),
    "c_odd": ("a_type_to_come(7)", "as it is", "string", "as it is"),
    "c_null": ("decimal(10,2)", None, "decimal(10,2)", None),
}  # fmt: skip


def test_every_type_is_read_back_as_it_was_in_the_source(lake: Lake) -> None:
    message = {
        "data": [{column: text for column, (_, text, _, _) in EXTREMES.items()}],
        "database": "shop",
        "es": 1_790_000_000_123,
        "isDdl": False,
        "mysqlType": {column: type_text for column, (type_text, _, _, _) in EXTREMES.items()},
        "old": None,
        "pkNames": ["c_big"],
        "sql": "",
        "table": "all_types",
        "type": "INSERT",
    }
    changes: list[Change] = []
    Canal().decode(CapturedRecord("cdc", 0, 41, 0, None, msgspec.json.encode(message), []), changes)
    lake.append(*changes, table="shop.all_types")

    types, [row] = lake.types("lake/shop/all_types"), lake.rows("lake/shop/all_types")
    assert {column: types[column] for column in EXTREMES} == {
        column: kept for column, (_, _, kept, _) in EXTREMES.items()
    }
    assert {column: row[column] for column in EXTREMES} == {
        column: value for column, (_, _, _, value) in EXTREMES.items()
    }
    assert {name: (types[name], row[name]) for name in types if name not in EXTREMES} == {
        "_op": ("string", "insert"),
        "_source_time": ("timestamp", datetime.fromtimestamp(1_790_000_000.123, UTC)),
        "_topic": ("string", "cdc"),
        "_partition": ("int", 0),
        "_offset": ("bigint", 41),
        "_index": ("int", 0),
        "_old_key": ("string", None),
        "_sql": ("string", None),
    }


def test_a_row_is_what_it_became_and_a_deleted_one_what_it_was(lake: Lake) -> None:
    lake.append(
        change(0, {"id": 1, "name": "a"}, TYPES),
        change(1, {"id": 1, "name": "b"}, TYPES, op="update", before={"id": 1, "name": "a"}),
        change(2, {"id": 2, "name": "b"}, TYPES, op="update", before={"id": 1, "name": "b"}),
        change(3, None, TYPES, op="delete", before={"id": 2, "name": "b"}),
    )
    assert [(row["_op"], row["id"], row["name"], row["_old_key"]) for row in lake.rows()] == [
        ("insert", 1, "a", None),
        ("update", 1, "b", None),
        ("update", 2, "b", '{"id":1}'),
        ("delete", 2, "b", None),
    ]


def test_statements_are_kept_in_their_place_and_columns_follow_them(lake: Lake) -> None:
    alter, drop = "ALTER TABLE orders ADD born datetime", "ALTER TABLE orders DROP name"
    born = datetime(2026, 2, 3, 4, 5)
    lake.append(change(0, None, None, op="ddl", sql="CREATE TABLE orders ..."))
    lake.append(change(1, {"id": 1, "name": "a"}, TYPES))
    lake.append(change(2, None, None, op="ddl", sql=alter))
    lake.append(change(3, {"id": 2, "name": "b", "born": born}, {**TYPES, "born": "datetime"}))
    lake.append(change(4, None, None, op="ddl", sql=drop))
    lake.append(change(5, {"id": 3, "born": born}, {"id": "int", "born": "datetime"}))
    lake.append(change(6, None, None, op="truncate", sql="TRUNCATE orders"))
    assert [(row["_op"], row["_sql"], row["id"], row["name"], row["born"]) for row in lake.rows()] == [
        ("ddl", "CREATE TABLE orders ...", None, None, None),
        ("insert", None, 1, "a", None),
        ("ddl", alter, None, None, None),
        ("insert", None, 2, "b", born),
        ("ddl", drop, None, None, None),
        ("insert", None, 3, None, born),
        ("truncate", "TRUNCATE orders", None, None, None),
    ]


def test_a_batch_whose_columns_change_in_the_middle_loses_nothing(lake: Lake) -> None:
    lake.append(
        change(0, {"id": 1, "name": "a"}, TYPES),
        change(1, {"id": 2, "name": "b", "more": 5}, {**TYPES, "more": "bigint"}),
        change(2, {"id": 3, "name": "c", "more": Decimal("1.5")}, {**TYPES, "more": "decimal(25,1)"}),
    )
    assert lake.types()["more"] == "decimal(25,1)"
    assert [row["more"] for row in lake.rows()] == [None, Decimal("5.0"), Decimal("1.5")]


WIDENED = {
    # column: (type, a value of it, the type later, a value of that, how Spark keeps both)
    "whole": ("int", 1, "bigint", 2**40, "bigint"),
    "tiny": ("tinyint", 1, "int", 2**20, "int"),
    "unsigned": ("bigint", 2**40, "bigint unsigned", Decimal(2**64 - 1), "decimal(20,0)"),
    "exact": ("decimal(6,1)", Decimal("1.5"), "decimal(12,3)", Decimal("123456789.125"), "decimal(12,3)"),
    "real": ("float", 0.5, "double", 0.1, "double"),
    "day": ("date", date(2026, 1, 2), "datetime", datetime(2026, 1, 2, 3), "timestamp_ntz"),
}


def test_columns_that_became_wider_are_widened_and_take_older_rows_still(lake: Lake) -> None:
    before = {column: case[0] for column, case in WIDENED.items()}
    after = {column: case[2] for column, case in WIDENED.items()}
    old = {column: case[1] for column, case in WIDENED.items()}
    new = {column: case[3] for column, case in WIDENED.items()}
    lake.append(change(0, old, before))
    lake.append(change(1, new, after))
    lake.append(change(2, old, before))
    types = lake.types()
    assert {column: types[column] for column in WIDENED} == {
        column: case[4] for column, case in WIDENED.items()
    }
    kept = [{column: row[column] for column in WIDENED} for row in lake.rows()]
    assert kept == [{**old, "day": datetime(2026, 1, 2)}, new, {**old, "day": datetime(2026, 1, 2)}]


def test_a_type_that_cannot_be_kept_with_the_old_one_is_told_with_table_and_offset(lake: Lake) -> None:
    lake.append(change(0, {"id": 1, "v": 1}, {"id": "int", "v": "int"}))
    with pytest.raises(IncompatibleSchema) as told:
        lake.append(change(7, {"id": 2, "v": "one"}, {"id": "int", "v": "varchar(5)"}))
    assert str(told.value) == (
        f"shop.orders from cdc[0] offset 7 on: column 'v' is int in the Delta table "
        f"{lake.folder}/lake/shop/orders, but the source's type is now kept as string. "
        f"Give the table another `path`, or change the Delta column"
    )
    assert [row["_offset"] for row in lake.rows()] == [0]


def test_what_was_appended_before_a_change_that_fails_counts_as_done(lake: Lake) -> None:
    with pytest.raises(PartialFailure) as told:
        lake.append(
            change(0, {"id": 1}, {"id": "int"}),
            change(1, {"id": 2}, {"id": "int"}),
            change(2, {"id": "three"}, {"id": "varchar(5)"}),
        )
    assert told.value.done == 2
    assert isinstance(told.value.cause, IncompatibleSchema)
    assert [row["_offset"] for row in lake.rows()] == [0, 1]


def test_a_value_that_does_not_fit_its_type_is_told_with_its_place(lake: Lake) -> None:
    with pytest.raises(UnfitValue, match=r"column 'id' \(tinyint\) holds '300' at cdc\[0\] offset 8"):
        lake.append(change(7, {"id": 1}, {"id": "tinyint"}), change(8, {"id": 300}, {"id": "tinyint"}))


def test_rows_of_a_source_without_types_are_kept_as_text(lake: Lake) -> None:
    lake.append(change(0, {"id": 1, "v": {"a": [1, None]}, "n": None}, None), change(1, {"id": "x"}, None))
    assert [(row["id"], row["v"], row["n"]) for row in lake.rows()] == [
        ("1", '{"a":[1,null]}', None),
        ("x", None, None),
    ]


def test_columns_of_any_name_are_kept(lake: Lake) -> None:
    lake.append(change(0, {"id": 1}, {"id": "int"}))
    lake.append(change(1, {"id": 2, "order total, €": 5}, {"id": "int", "order total, €": "int"}))
    assert [row["order total, €"] for row in lake.rows()] == [None, 5]
    first = change(0, {"a;b": 5}, {"a;b": "int"}, key=("a;b",))
    lake.append(first, table="shop.other")
    assert lake.rows("lake/shop/other")[0]["a;b"] == 5


def test_a_column_with_the_name_of_an_added_one_needs_another_prefix(lake: Lake, tmp_path: Path) -> None:
    row = change(0, {"id": 1, "_Op": "mine"}, {"id": "int", "_Op": "varchar(9)"})
    with pytest.raises(UnfitValue, match=r"column '_Op', which is also .* set `prefix`"):
        lake.append(row)
    other = Lake(tmp_path, prefix="cdc_")
    other.append(row)
    [kept] = other.frame("lake/shop/orders").collect()
    assert (kept["_Op"], kept["cdc_op"]) == ("mine", "insert")
    other.handler.close()


def test_each_table_has_its_place_whatever_its_name(spark: None, tmp_path: Path) -> None:
    lake = Lake(tmp_path, path="tables/{table}@{database}")
    for number, name in enumerate(("订单", "a/b", "a%2Fb", "..", "sp ace", "_x")):
        lake.append(change(number, {"id": number}, {"id": "int"}), table=f"shop.{name}")
        assert [row["id"] for row in lake.rows(f"tables/{path_safe(name)}@shop")] == [number]
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {
        "订单@shop", "a%2Fb@shop", "a%252Fb@shop", "%2E.@shop", "sp%20ace@shop", "_x@shop",
    }  # fmt: skip
    lake.handler.close()


def test_threads_write_different_tables_at_once(lake: Lake) -> None:
    def write(number: int) -> None:
        for offset in range(4):
            row = {"id": number, "at": datetime(2026, 1, number)}
            lake.append(change(offset, row, {"id": "int", "at": "datetime"}), table=f"shop.t{number}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(1, 5)))
    for number in range(1, 5):
        rows = lake.rows(f"lake/shop/t{number}")
        assert [(row["_offset"], row["id"]) for row in rows] == [(offset, number) for offset in range(4)]


def test_what_spark_cannot_do_is_told_in_one_line_with_table_and_offset(lake: Lake) -> None:
    (lake.folder / "lake").write_text("no folder")
    with pytest.raises(SparkFailure, match=r"^shop\.orders from cdc\[0\] offset 7 on: .*lake") as told:
        lake.append(change(7, {"id": 1}, {"id": "int"}))
    assert "\tat " not in str(told.value)
    assert "\n" not in str(told.value)
