"""Values of a retyped column: as the source has them after its statement, in the form of later rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from ddl_lab import DDLLab

from handlers import Rejected

DAY = date(2024, 2, 29)
NOON = datetime(2024, 2, 29, 12, 11, 10)
CLOCK = timedelta(hours=-100, minutes=-1)


def tenths(count: int) -> timedelta:
    return timedelta(milliseconds=100 * count)


CONVERTED: list[tuple[str, Any, str, Any]] = [
    ("decimal(12,4)", "2.5000", "decimal(20,0)", "3"),
    ("decimal(12,4)", "-2.5000", "int", -3),
    ("decimal(12,4)", "2.5000", "bigint unsigned", 3),
    ("decimal(30,0)", str(2**64 - 1), "bigint unsigned", 2**64 - 1),
    ("varchar(30)", "12", "bigint unsigned", 12),
    ("varchar(30)", "abc  ", "char(30)", "abc"),
    ("text", "abc ", "char(9)", "abc"),
    ("date", DAY, "datetime", datetime(2024, 2, 29)),
    ("datetime", NOON, "date", DAY),
    ("datetime", NOON, "varchar(30)", str(NOON)),
    ("datetime(6)", NOON + tenths(4), "datetime", NOON),
    ("datetime(6)", NOON + tenths(4), "datetime(1)", NOON + tenths(4)),
    ("datetime(6)", NOON + tenths(4), "timestamp", NOON.replace(tzinfo=UTC)),
    ("timestamp", NOON.replace(tzinfo=UTC), "varchar(30)", str(NOON)),
    ("timestamp", NOON.replace(tzinfo=UTC), "datetime", NOON),
    ("varchar(30)", str(NOON), "datetime", NOON),
    ("varchar(30)", str(DAY), "datetime(6)", datetime(2024, 2, 29)),
    ("time(3)", CLOCK - tenths(4), "time", CLOCK),
    ("varchar(30)", "-100:01:00", "time", CLOCK),
    ("set('a','b')", ("a", "b"), "blob", b"a,b"),
    ("json", '{"a":"\\\\"}', "blob", b'{"a":"\\\\"}'),
]


def retype(lab: DDLLab, old: str, value: Any, new: str) -> None:
    lab.follow(f"CREATE TABLE t (id int PRIMARY KEY, c {old})")
    lab.put({"id": "int", "c": old}, {"id": 1, "c": value}, {"id": 2, "c": None})
    lab.follow(f"ALTER TABLE t MODIFY c {new}")


@pytest.mark.parametrize(
    ("old", "value", "new", "after"), CONVERTED, ids=[f"{one[0]} to {one[2]}" for one in CONVERTED]
)
def test_a_converted_value_is_that_of_a_new_row(
    lab: DDLLab, old: str, value: Any, new: str, after: Any
) -> None:
    lab.follow(f"CREATE TABLE u (id int PRIMARY KEY, c {new})", table="u")
    lab.put({"id": "int", "c": new}, {"id": 1, "c": after}, {"id": 2, "c": None}, table="u")
    retype(lab, old, value, new)
    assert lab.rows() == lab.rows(table="u")


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "duckdb"])
@pytest.mark.parametrize(
    ("old", "value", "new"),
    [
        ("datetime(6)", NOON + tenths(6), "datetime"),
        ("timestamp(6)", (NOON + tenths(5)).replace(tzinfo=UTC), "timestamp"),
        ("time(3)", CLOCK - tenths(6), "time"),
        ("varchar(9)", "nine", "int"),
        ("date", DAY, "int"),
        ("date", DAY, "decimal(12,2)"),
    ],
)
def test_a_value_that_may_differ_in_the_source_stops_the_statement(
    make_lab: Callable[[str], DDLLab], kind: str, old: str, value: Any, new: str
) -> None:
    lab = make_lab(kind)
    with pytest.raises((Rejected, sa.exc.SQLAlchemyError)):
        retype(lab, old, value, new)
    lab.put({"id": "int", "c": old}, {"id": 3, "c": value})
    assert len({row[1] for row in lab.rows()}) == 2  # NULL, and its value as before


@pytest.mark.parametrize(
    ("old", "value", "new"), [("int", 1, "enum('a')"), ("int", 1, "time"), ("int", 12, "year")]
)
def test_sqlite_takes_no_number_for_what_mysql_reads_in_it(
    make_lab: Callable[[str], DDLLab], old: str, value: Any, new: str
) -> None:
    lab = make_lab("sqlite")
    with pytest.raises(Rejected, match=rf"column c of db\.t cannot become .*, such as '{value}'"):
        retype(lab, old, value, new)
    assert lab.rows() == [("1", str(value)), ("2", None)]
