"""Mode replica: the Spark table is the source's table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec
import pytest
from captured import CapturedRecord
from spark_lake import Lake, change

from handlers import Change
from worker.formats.canal.format import Canal

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


def test_every_type_is_read_back_as_it_was_in_the_source_from_view_and_table(lake: Lake) -> None:
    message = {
        "data": [{column: text for column, (_, text, _, _) in EXTREMES.items()}],
        "database": "shop",
        "es": 1_790_000_000_123,
        "isDdl": False,
        "mysqlType": {column: type_text for column, (type_text, _, _, _) in EXTREMES.items()},
        "old": None,
        "pkNames": ["c_big"],
        "sql": "",
        "table": "orders",
        "type": "INSERT",
    }
    changes: list[Change] = []
    Canal().decode(CapturedRecord("cdc", 0, 41, 0, None, msgspec.json.encode(message), []), changes)
    lake.take(*changes)
    wanted = [tuple(value for _, _, _, value in EXTREMES.values())]
    assert lake.view() == wanted
    lake.merge()
    assert lake.rows() == wanted
    assert lake.types() == {column: kept for column, (_, _, kept, _) in EXTREMES.items()}


def test_the_last_change_of_each_key_wins_at_once_in_the_view_and_then_in_the_table(lake: Lake) -> None:
    lake.take(
        change(0, {"id": 1, "name": "a"}),
        change(1, {"id": 1, "name": "b"}, op="update", before={"id": 1, "name": "a"}),
        change(2, {"id": 2, "name": "b"}),
        change(3, {"id": 3, "name": "c"}, op="snapshot"),
        change(4, None, op="delete", before={"id": 2, "name": "b"}),
    )
    assert lake.view() == [(1, "b"), (3, "c")]
    lake.merge()
    lake.take(
        change(5, None, op="delete", before={"id": 3, "name": "c"}),
        change(6, {"id": 2, "name": "again"}),
        change(7, {"id": 1, "name": "z"}, op="update", before={"id": 1, "name": "b"}),
    )
    lake.take(change(8, None, op="delete", before={"id": 1, "name": "z"}))
    assert (lake.rows(), lake.view()) == ([(1, "b"), (3, "c")], [(2, "again")])
    lake.merge()
    assert lake.rows() == lake.view() == [(2, "again")]
    assert lake.types() == {"id": "int", "name": "string"}


@pytest.mark.soak
def test_a_row_without_all_its_columns_changes_those_that_it_has(lake: Lake) -> None:
    lake.take(change(0, {"id": 1, "name": "a"}), change(1, {"id": 2, "name": "b"}))
    lake.take(change(2, {"id": 1}, op="update"), change(3, {"id": 2, "name": "c"}, op="update"))
    lake.take(change(4, {"id": 1}, op="update"))
    lake.merge()
    assert lake.rows() == [(1, "a"), (2, "c")]


@pytest.mark.soak
def test_statements_take_effect_in_their_place_within_one_batch(lake: Lake) -> None:
    both = {"id": "int", "name": "varchar(20)", "stock": "int"}
    renamed = {"id": "int", "title": "varchar(20)", "stock": "bigint"}
    lake.take(
        change(0, {"id": 1, "name": "lost"}),
        change(1, None, None, op="truncate", sql="TRUNCATE orders"),
        change(2, {"id": 2, "name": "b"}),
        change(3, None, None, op="ddl", sql="ALTER TABLE orders ADD stock int NOT NULL DEFAULT 7"),
        change(4, {"id": 3, "name": "c", "stock": 1}, both),
        change(
            5,
            None,
            None,
            op="ddl",
            sql="ALTER TABLE orders CHANGE name title varchar(20), MODIFY stock bigint",
        ),
        change(6, {"id": 4, "title": "d", "stock": 2**40}, renamed),
    )
    assert lake.view() == [(2, "b", 7), (3, "c", 1), (4, "d", 2**40)]
    lake.take(change(7, None, None, op="ddl", sql="ALTER TABLE orders DROP COLUMN title"))
    lake.sink().merge()
    assert lake.rows() == [(2, 7), (3, 1), (4, 2**40)]
    assert lake.types() == {"id": "int", "stock": "bigint"}


WIDENED = {
    # column: (type, a value of it, the type later, a value of that, how Spark keeps both)
    "whole": ("int", 1, "bigint", 2**40, "bigint"),
    "tiny": ("tinyint", 1, "int", 2**20, "int"),
    "unsigned": ("bigint", 2**40, "bigint unsigned", Decimal(2**64 - 1), "decimal(20,0)"),
    "exact": ("decimal(6,1)", Decimal("1.5"), "decimal(12,3)", Decimal("123456789.125"), "decimal(12,3)"),
    "real": ("float", 0.5, "double", 0.1, "double"),
    "day": ("date", date(2026, 1, 2), "datetime", datetime(2026, 1, 2, 3), "timestamp_ntz"),
}


@pytest.mark.soak
def test_columns_that_came_or_became_wider_without_a_statement_are_followed(lake: Lake) -> None:
    before = {"id": "int", **{column: case[0] for column, case in WIDENED.items()}}
    after = {"id": "int", **{column: case[2] for column, case in WIDENED.items()}, "more": "text"}
    old = {column: case[1] for column, case in WIDENED.items()}
    new = {column: case[3] for column, case in WIDENED.items()}
    lake.take(
        change(0, {"id": 1, **old}, before),
        change(1, {"id": 2, **new, "more": "m"}, after),
        change(2, {"id": 3, **old}, before),
    )
    lake.merge()
    assert lake.types() == {
        "id": "int",
        **{column: case[4] for column, case in WIDENED.items()},
        "more": "string",
    }
    kept = (*list(old.values())[:-1], datetime(2026, 1, 2))
    assert lake.rows() == [(1, *kept, None), (2, *new.values(), "m"), (3, *kept, None)]


@pytest.mark.soak
def test_rows_of_a_table_without_a_key_are_there_as_often_as_in_the_source(lake: Lake) -> None:
    def keyless(offset: int, after: str | None, before: str | None = None) -> Change:
        op = "delete" if after is None else "insert" if before is None else "update"
        rows = [None if name is None else {"id": 1, "name": name} for name in (after, before)]
        return change(offset, rows[0], op=op, before=rows[1], key=())

    lake.take(*(keyless(offset, "a") for offset in range(3)), keyless(3, "b", "a"))
    lake.merge()
    lake.take(keyless(4, None, "a"), keyless(5, "b"))
    lake.merge()
    assert lake.rows() == [(1, "a"), (1, "b"), (1, "b")]


def test_columns_of_any_name_are_kept_and_types_can_be_told(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(columns={"Total": "decimal(12,2)"}, properties={"delta.appendOnly": "false", "own": "1"})
    lake.take(change(0, {"id": 1, "total": "1.5", "order total, €": 5}, None))
    lake.merge()
    assert lake.rows() == [(1, Decimal("1.50"), 5)]
    found = dict(lake.sql("SHOW TBLPROPERTIES {t}").collect())
    assert (found["delta.appendOnly"], found["own"]) == ("false", "1")
