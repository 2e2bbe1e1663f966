"""Values of every source type come back from each target as they were."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from captured import records, truth
from sql_lab import SqlLab, orders

from handlers import Batch, Change
from worker.formats.registry import get

WIDEST: dict[str, tuple[str, list[Any]]] = {
    "tiny": ("tinyint", [-128, 127]),
    "tiny_u": ("tinyint unsigned", [0, 255]),
    "small": ("smallint", [-32768, 32767]),
    "small_u": ("smallint unsigned", [0, 65535]),
    "medium": ("mediumint", [-(2**23), 2**23 - 1]),
    "medium_u": ("mediumint unsigned", [0, 2**24 - 1]),
    "int_": ("int(11)", [-(2**31), 2**31 - 1]),
    "int_u": ("int unsigned", [0, 2**32 - 1]),
    "big": ("bigint", [-(2**63), 2**63 - 1]),
    "big_u": ("bigint unsigned", [0, 2**64 - 1]),
    "dec": ("decimal(38,10)", [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal("0.0000000001")]),
    "dec65": ("decimal(65,30)", [Decimal("-" + "9" * 35 + "." + "9" * 30), Decimal("1E-30")]),
    "single": ("float", [0.10000000149011612, 3.4e38]),
    "double_": ("double", [0.1, -1.7976931348623157e308]),
    "bit1": ("bit(1)", [0, 1]),
    "bit64": ("bit(64)", [0, 2**64 - 1]),
    "day": ("date", [date(1000, 1, 1), date(9999, 12, 31)]),
    "at": ("datetime(6)", [datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    "at3": ("datetime(3)", [datetime(2025, 1, 1, 0, 0, 0, 120000), None]),
    "stamp": (
        "timestamp(6)",
        [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC)],
    ),
    "span": ("time(6)", [-timedelta(hours=838, minutes=59, seconds=58, microseconds=1), timedelta(0)]),
    "year_": ("year", [1901, 2155]),
    "char_": ("char(10)", ["", "ä 😀"]),
    "varchar_": ("varchar(200)", ["trailing ", "a'b\"c\\d\te\nf%s"]),
    "text_": ("longtext", ["", "x" * 70000]),
    "bin_": ("binary(8)", [b"\0\1\2\3\0\0\0\0", b"\xff" * 8]),
    "blob_": ("longblob", [b"", bytes(range(256))]),
    "enum_": ("enum('x,l','small','it''s')", ["x,l", "it's"]),
    "set_": ("set('d','c','b')", [(), ("d", "b")]),
    "json_": ("json", ['{"a":[1,2.50,1e100],"b":"\\\\u0000 é"}', "5"]),
    "shape": ("geometry", [b"\0\0\0\0\1\1\0\0\0" + b"\0" * 16, None]),
    "yes": ("boolean", [True, False]),
    "uid": ("uuid", ["5f2b1c1e-0000-4000-8000-00000000000a", None]),
}


def single(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def same(dialect: str, type_text: str, stored: Any, value: Any) -> bool:
    """Whether what the target's driver gives is the value."""
    if stored is None or value is None:
        return stored is value
    if type_text == "float":
        # Drivers print a single as its shortest decimal; MySQL's with six digits.
        near = abs(stored - value) <= abs(value) * 1e-5
        return bool(near if dialect == "mysql" else single(stored) == single(value))
    for kind, read in READ.items():
        if isinstance(value, kind):
            return bool(read(stored) == (value.replace(tzinfo=None) if kind is datetime else value))
    return bool((str(stored) if type_text == "uuid" else stored) == value)


def _number(stored: Any) -> Decimal:
    # MySQL's bit comes as bytes.
    return Decimal(int.from_bytes(stored, "big") if isinstance(stored, bytes) else str(stored))


def _labels(stored: Any) -> tuple[str, ...]:
    return tuple(stored) if isinstance(stored, list) else tuple(stored.split(",")) if stored else ()


def _in_utc(stored: Any) -> datetime:
    at = datetime.fromisoformat(stored) if isinstance(stored, str) else stored
    assert at.tzinfo is None or at.utcoffset() == timedelta(0)
    return at.replace(tzinfo=None)


# The first that fits: a bool is an int, a datetime a date.
READ: dict[Any, Any] = {
    bool: bool,
    (int, Decimal): _number,
    tuple: _labels,
    timedelta: lambda stored: stored if isinstance(stored, timedelta) else _span(stored),
    datetime: _in_utc,
    date: lambda stored: date.fromisoformat(stored) if isinstance(stored, str) else stored,
}


def _span(text: str) -> timedelta:
    hours, minutes, seconds = text.lstrip("-").split(":")
    span = timedelta(hours=int(hours), minutes=int(minutes), microseconds=round(float(seconds) * 1_000_000))
    return -span if text.startswith("-") else span


def test_the_ends_of_every_type_come_back(sql: SqlLab) -> None:
    types = {"id": "int", **{name: text for name, (text, _) in WIDEST.items()}}
    rows = [{"id": place, **{name: ends[place] for name, (_, ends) in WIDEST.items()}} for place in (0, 1)]
    rows.append({"id": 2, **dict.fromkeys(WIDEST)})
    with sql.handler() as handler:
        handler.handle(orders(*rows, types=types))
    stored = sql.rows()
    wrong = [
        (name, found[name], row[name])
        for found, row in zip(sorted(stored, key=lambda one: one["id"]), rows, strict=True)
        for name, text in types.items()
        if not same(sql.dialect, text, found[name], row[name])
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "type_text", ["bigint unsigned", "decimal(20,4)", "binary(4)", "varchar(9)", "datetime(6)"]
)
def test_keys_of_any_type_find_their_row(sql: SqlLab, type_text: str) -> None:
    keys: dict[str, list[Any]] = {
        "bigint unsigned": [2**64 - 1, 5],
        "decimal(20,4)": [Decimal("1.5000"), Decimal("9999999999999999.9999")],
        "binary(4)": [b"\0\1\0\0", b"\xff\xfe\0\0"],
        "varchar(9)": ["a", "A"],
        "datetime(6)": [datetime(2025, 1, 1), datetime(2025, 1, 1, 0, 0, 0, 1)],
    }
    one, two = keys[type_text]
    types = {"id": type_text, "v": "int"}
    with sql.handler() as handler:
        handler.handle(orders({"id": one, "v": 1}, {"id": two, "v": 1}, types=types))
        handler.handle(
            orders(
                {"before": {"id": one, "v": 1}, "after": {"id": one, "v": 2}},
                {"before": {"id": two, "v": 1}, "after": None},
                offset=2,
                types=types,
            )
        )
    assert [row["v"] for row in sql.rows()] == [2]


def test_values_without_types_make_columns_that_hold_them(sql: SqlLab) -> None:
    row = {
        "id": 1,
        "big": 2**63,
        "ratio": 0.1,
        "price": Decimal("1.25"),
        "name": "n",
        "raw": b"\0",
        "at": datetime(2025, 1, 1, 1, 1, 1, 5),
        "day": date(2025, 1, 1),
        "span": timedelta(hours=-30),
        "tags": ("a", "b"),
        "doc": {"a": [1]},
        "yes": True,
        "none": None,
    }
    with sql.handler() as handler:
        handler.handle(orders({"id": 0}, row))
    found = next(one for one in sql.rows() if one["id"] == 1)
    doc = found.pop("doc")
    assert json.loads(doc) == row.pop("doc")
    assert [name for name, value in row.items() if not same(sql.dialect, "", found[name], value)] == []


def test_values_go_into_columns_of_another_kind_where_nothing_is_lost(server: SqlLab) -> None:
    boolean = "boolean" if server.dialect == "postgresql" else "tinyint(1)"
    server.make(
        "shop.orders",
        f"id int PRIMARY KEY, digits varchar(40), amount varchar(40), at varchar(40), flag {boolean}, "
        "tags varchar(40), span time(6), day date, whole bigint",
    )
    with server.handler() as handler:
        handler.handle(
            orders(
                {
                    "id": 1,
                    "digits": 2**64,
                    "amount": Decimal("1E+3"),
                    "at": datetime(2025, 1, 1, 1, 1, 1),
                    "flag": 1,
                    "tags": ("a", "b"),
                    "span": timedelta(hours=5),
                    "day": datetime(2025, 2, 2),
                    "whole": Decimal("12.00"),
                }
            )
        )
    [row] = server.rows()
    assert (row["digits"], row["amount"], row["at"]) == (str(2**64), "1000", "2025-01-01 01:01:01")
    assert (row["flag"], row["tags"], row["day"], row["whole"]) == (1, "a,b", date(2025, 2, 2), 12)
    assert str(row["span"]) in ("05:00:00", "5:00:00")


def test_numbers_that_are_none_and_numbers_without_end_come_into_postgresql(
    make_sql: Callable[[str], SqlLab],
) -> None:
    lab = make_sql("postgres")
    lab.make("shop.orders", "id int PRIMARY KEY, ratio double precision, amount numeric")
    given = [
        (0.1, Decimal("0.10")),
        (None, Decimal("NaN")),
        (float("nan"), None),
        (float("-inf"), Decimal("-1E+30")),
        (1e300, Decimal(2**70)),
    ]
    rows = [{"id": at, "ratio": ratio, "amount": amount} for at, (ratio, amount) in enumerate(given)]
    with lab.handler() as handler:
        handler.handle(orders(*rows))
    assert [(str(row["ratio"]), row["amount"]) for row in lab.rows(columns="id, ratio, amount::text")] == [
        ("0.1", "0.10"),
        ("None", "NaN"),
        ("nan", None),
        ("-inf", "-1" + "0" * 30),
        ("1e+300", str(2**70)),
    ]


def test_the_captured_rows_of_every_type_end_as_the_source_has_them(sql: SqlLab) -> None:
    """Canal's stream of shop.all_types, with the DDL in between."""
    table = truth()["shop.all_types"]
    canal = get("canal")
    with sql.handler() as handler:
        for record in records("canal"):
            changes: list[Change] = []
            try:
                route = canal.route(record.value() or b"")
            except ValueError:
                continue
            if (route.database, route.table) == ("shop", "all_types"):
                canal.decode(record, changes)
                if changes:
                    handler.handle(Batch("shop.all_types", changes, database="shop", name="all_types"))
    stored = {int(row["id"]): row for row in sql.rows("shop.all_types")}
    assert len(stored) == len(table.rows)
    wrong = [
        (row["id"], column, stored[row["id"]][column], value)
        for row in table.rows
        for column, value in row.items()
        # Canal reads latin1 as UTF-8; an ALTER's default for the rows that were there is the DDL's to prove.
        if column != "c_latin"
        and not _equal(sql.dialect, table.columns[column], stored[row["id"]][column], value)
    ]
    assert wrong == []


def _equal(dialect: str, type_text: str, stored: Any, true: Any) -> bool:
    """Whether a stored value is the one in the truth's spelling."""
    name = type_text.partition("(")[0].split()[0]
    if stored is None or true is None:
        return stored is true
    if name == "json":
        return bool(json.loads(stored) == json.loads(true["json"]))
    return same(dialect, name, stored, TRUE.get(name, lambda value: value)(true))


def _bytes(true: dict[str, str]) -> bytes:
    return base64.b64decode(true["base64"])


TRUE: dict[str, Any] = {
    "set": lambda true: tuple(true.split(",")) if true else (),
    "decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": _span,
    **dict.fromkeys(("binary", "varbinary", "blob"), _bytes),
}


def test_nan_is_no_null_in_sqlite(make_sql: Callable[[str], SqlLab]) -> None:
    lab = make_sql("sqlite")
    with lab.handler() as handler:
        values = (math.nan, math.inf, -math.inf, 1.5)
        handler.handle(orders(*({"id": n, "x": x} for n, x in enumerate(values))))
    found = {row["id"]: row["x"] for row in lab.rows()}
    assert found == {0: "NaN", 1: math.inf, 2: -math.inf, 3: 1.5}


@pytest.mark.parametrize(
    ("iso", "postgresql", "duckdb"),
    [
        ("P1Y2M3DT4H5M6.5S", "1 year 2 mons 3 days 04:05:06.5", "1 year 2 months 3 days 04:05:06.5"),
        ("P0Y1M2DT0H0M-1.5S", "1 mon 2 days -00:00:01.5", "1 month 2 days -00:00:01.5"),
        ("P0Y-1M40DT0H0M0.0S", "-1 mons +40 days", "-1 month 40 days"),
        ("P0Y0M0DT0H0M0.0S", "00:00:00", "00:00:00"),
    ],
)
def test_an_interval_as_text_keeps_its_months_and_days(
    sql: SqlLab, iso: str, postgresql: str, duckdb: str
) -> None:
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "span": iso}, types={"id": "int", "span": "interval"}))
    [row] = sql.rows(columns="CAST(span AS char(99)) AS span" if sql.dialect != "sqlite" else "span")
    expected = {"postgresql": postgresql, "duckdb": duckdb}.get(sql.dialect, iso)
    assert row["span"].strip() == expected
