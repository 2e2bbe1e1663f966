"""Columns of a replica that get another type, with their values."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from spark_ddl_lab import IN_ONE_LIFE, DDLLake, MakeLake

from handlers import Rejected

# Spark's type and value, the new type of the source, the value in it.
RETYPED: list[tuple[str, str, str, Any]] = [
    ("int", "7", "bigint", 7),
    ("bigint", "9223372036854775807", "decimal(20,0)", Decimal(2**63 - 1)),
    ("bigint", "9223372036854775807", "bigint unsigned", Decimal(2**63 - 1)),
    ("decimal(20,0)", "18446744073709551615", "varchar(20)", str(2**64 - 1)),
    ("decimal(20,0)", "18446744073709551615", "decimal(40,2)", f"{2**64 - 1}.00"),
    ("int", "5", "decimal(6,2)", Decimal("5.00")),
    ("int", "20240229", "date", date(2024, 2, 29)),
    ("bigint", "300", "smallint", 300),
    ("int", "2024", "year", 2024),
    ("decimal(6,3)", "1.500", "varchar(20)", "1.500"),
    ("decimal(6,3)", "1.500", "decimal(8,4)", Decimal("1.5000")),
    ("decimal(6,3)", "1.555", "decimal(6,2)", Decimal("1.56")),
    ("decimal(6,3)", "2.500", "int", 3),
    ("decimal(6,3)", "2.500", "double", 2.5),
    ("double", "2.5D", "int", 2),
    ("double", "2D", "varchar(20)", "2"),
    ("double", "2.5D", "varchar(20)", "2.5"),
    ("double", "1e20D", "varchar(20)", "1e20"),
    ("float", "1.5D", "double", 1.5),
    ("double", "1.5D", "float", 1.5),
    ("string", "'12'", "int", 12),
    ("string", "'2.5'", "int", 3),
    ("string", "'9007199254740993'", "bigint", 9007199254740993),
    ("string", "'18446744073709551615'", "bigint unsigned", Decimal(2**64 - 1)),
    ("string", "'2.5'", "decimal(6,2)", Decimal("2.50")),
    ("string", "'1e2'", "decimal(6,2)", Decimal("100.00")),
    ("string", "'0.4999999999999999'", "int", 0),
    ("string", "' 0.12345678901234567890 '", "decimal(30,20)", Decimal("0.12345678901234567890")),
    ("string", "'2.5'", "double", 2.5),
    ("string", "'abc'", "text", "abc"),
    ("string", "'é'", "blob", "é".encode()),
    ("string", "'ab'", "binary(3)", b"ab\0"),
    ("binary", "X'c3a9'", "text", "é"),
    ("date", "DATE'2024-02-29'", "varchar(20)", "2024-02-29"),
    ("date", "DATE'2024-02-29'", "datetime", datetime(2024, 2, 29)),
    ("date", "DATE'2024-02-29'", "int", 20240229),
    ("string", "'2024-02-29'", "date", date(2024, 2, 29)),
    ("string", "'2024-02-29 01:02:03.5'", "datetime(1)", datetime(2024, 2, 29, 1, 2, 3, 500_000)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03'", "timestamp",
     datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03'", "date", date(2024, 2, 29)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.5'", "time(2)", "01:02:03.50"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03'", "varchar(30)", "2024-02-29 01:02:03"),
    ("timestamp", "TIMESTAMP'2024-02-29 01:02:03'", "bigint", 20240229010203),
    ("string", "'-838:59:58.45'", "time", "-838:59:58"),
    ("string", "'01:02:03'", "time(3)", "01:02:03.000"),
    ("string", "'01:02:03.45'", "time(2)", "01:02:03.45"),
    ("string", "'b'", "enum('b','c','a')", "b"),
    ("int", "2", "enum('b','c','a')", "c"),
    ("string", "' a  '", "char(9)", " a"),
    ("int", "7", "character(9)", "7"),
    ("binary", "X'6120'", "char(9)", "a"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.4'", "datetime", datetime(2024, 2, 29, 1, 2, 3)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'1000-01-01 01:02:03.000449'", "datetime(4)",
     datetime(1000, 1, 1, 1, 2, 3, 400)),
    ("timestamp", "TIMESTAMP'1969-12-31 23:59:59.4'", "timestamp",
     datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'", "datetime(6)", datetime.max),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 23:59:59.4'", "date", date(2024, 2, 29)),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.25'", "decimal(16,2)",
     Decimal("20240229010203.25")),
    ("string", f"'{2**127}.5000'", "decimal(50,2)", f"{2**127}.50"),
    ("string", "'-7'", "decimal(50,2)", "-7.00"),
    ("double", "1.25D", "double(10,2)", 1.25),
    ("float", "1.25D", "double(10,2)", 1.25),
    ("smallint", "0", "year", 0),
    ("tinyint", "0", "year", 0),
    ("double", "2.5D", "bigint unsigned", Decimal(2)),
    ("double", "-1.5e-7D", "varchar(20)", "-0.00000015"),
    ("double", "1e-16D", "varchar(20)", "1e-16"),
    ("string", "'-00:00:00.4'", "time", "00:00:00"),
    ("string", "'-00:00:00.4'", "time(1)", "-00:00:00.4"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 23:59:59.4'", "bigint unsigned",
     Decimal("20240229235959")),
    ("array<string>", "array('a', 'b')", "set('c','b','a')", ["b", "a"]),
    ("array<string>", "array('a', 'b')", "varchar(9)", "a,b"),
    ("string", "'a,b'", "set('b','a')", ["b", "a"]),
    ("string", "''", "set('b','a')", []),
    ("string", "'{\"a\":[1]}'", "json", '{"a":[1]}'),
]  # fmt: skip


# Spark's type and value, the new type of the source. MySQL and MariaDB have other values then, or differ.
REFUSED = [
    ("string", "'-838:59:58.75'", "time"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.5'", "time"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.5'", "datetime"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'1960-02-29 01:02:03.0005'", "timestamp(3)"),
    ("timestamp", "TIMESTAMP'1960-02-29 01:02:03.654326'", "timestamp(5) NULL"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 23:59:59.5'", "date"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 01:02:03.5'", "bigint"),
    ("string", "'2024-02-29 23:59:59.5'", "date"),
    ("string", "'2024-02-29 01:02:03.5'", "datetime"),
    ("string", "'01:02:03'", "timestamp"),
    ("string", "'240229'", "date"),
    ("string", "'1.505'", "decimal(50,2)"),
    ("string", "'1e2'", "decimal(50,2)"),
    ("double", "1.255D", "double(10,2)"),
    ("float", "1.255D", "double(10,2)"),
    ("double", "1.255D", "float(10,2)"),
    ("smallint", "5", "year"),
    ("tinyint", "5", "year"),
    ("string", "'0'", "year"),
    ("int", "4", "enum('b','c','a')"),
    ("decimal(20,6)", "20240229010203.6", "datetime"),
    ("decimal(20,6)", "20240229010203.6", "datetime(3)"),
    ("double", "1e20D", "date"),
    ("string", "'A,b'", "set('b','a')"),
    ("string", "'1'", "set('b','a')"),
    ("string", "'-0'", "decimal(50,2)"),
    ("string", "'007'", "decimal(50,2)"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'2024-02-29 23:59:59.6'", "bigint unsigned"),
]


@IN_ONE_LIFE
def test_values_are_converted_as_mysql_does_in_one_commit(lake: DDLLake, mortal: bool) -> None:
    columns = "; ".join(f"c{at} {old}" for at, (old, *_) in enumerate(RETYPED))
    values = ", ".join(value for _, value, *_ in RETYPED)
    lake.put("t", f"id int; {columns}", f"1, {values}", f"2{', null' * len(RETYPED)}")
    clauses = ", ".join(f"MODIFY c{at} {new}" for at, (_, _, new, _) in enumerate(RETYPED))
    lake.follow(f"ALTER TABLE t {clauses}", mortal=mortal)
    first, second = lake.session.sql(f"SELECT * FROM {lake.sql_of('t')} ORDER BY id").toArrow().to_pylist()
    assert [first[f"c{at}"] for at in range(len(RETYPED))] == [value for *_, value in RETYPED]
    assert set(second.values()) == {2, None}
    assert lake.commits() == ["WRITE"]


def test_values_that_the_source_may_have_changed_otherwise_are_refused(lake: DDLLake) -> None:
    columns = "; ".join(f"c{at} {old}" for at, (old, *_) in enumerate(REFUSED))
    lake.put("t", f"id int; {columns}", f"1, {', '.join(value for _, value, _ in REFUSED)}")
    for at, (_, _, new) in enumerate(REFUSED):
        with pytest.raises(Rejected, match=f"column c{at} of db.t cannot become .*: 1 of its values"):
            lake.follow(f"ALTER TABLE t MODIFY c{at} {new}", mortal=False)
    lake.put("u", "a double; b date; c double", "null, null, null")
    for name, new in (("a", "decimal(50,2)"), ("b", "decimal(50,2)"), ("c", "enum('a')")):
        with pytest.raises(Rejected, match="there is no conversion of its values"):
            lake.follow(f"ALTER TABLE u MODIFY {name} {new}", mortal=False)
    assert lake.commits() == []


def test_what_delta_can_widen_is_not_written_anew(lake: DDLLake) -> None:
    lake.put("t", "id int; a tinyint; b decimal(6,1); c float; d date", "1, 2, 3.5, 4.5, DATE'2024-02-29'")
    lake.follow("ALTER TABLE t MODIFY A int, MODIFY b decimal(12,3), MODIFY c double, MODIFY d datetime(3)")
    assert lake.commits() == ["SET TBLPROPERTIES", "CHANGE COLUMNS"]
    assert lake.rows() == [(1, 2, Decimal("3.500"), 4.5, datetime(2024, 2, 29))]
    lake.follow("ALTER TABLE t MODIFY a int unsigned, MODIFY b decimal(12,3) NOT NULL")
    assert lake.columns()["a"] == "bigint"


@pytest.mark.soak
def test_a_value_that_has_no_place_in_the_new_type_stops_the_statement(lake: DDLLake) -> None:
    lake.put(
        "t",
        "id int; c string; s array<string>; n int",
        "1, 'nine', array('a'), 1",
        "2, '9', null, -300",
        "3, 'ten', null, 1",
    )
    told = r"column c of db\.t cannot become int: 2 of its values .* such as 'nine'"
    with pytest.raises(Rejected, match=told):
        lake.follow("ALTER TABLE t DROP n, MODIFY c int")
    with pytest.raises(Rejected, match=r"column n of db\.t cannot become tinyint: 1 of .* '-300'"):
        lake.follow("ALTER TABLE t MODIFY n tinyint")
    with pytest.raises(Rejected, match=told):
        lake.follow("ALTER TABLE t CHANGE n c int, CHANGE c n int")
    with pytest.raises(
        Rejected, match=r"column s of db\.t is array<string> .* cannot become int: there is no"
    ):
        lake.follow("ALTER TABLE t RENAME TO v, CHANGE s x int")
    with pytest.raises(Rejected, match=r"cannot parse DDL of db\.t: .*: ALTER TABLE t DROP c, FROBNICATE"):
        lake.follow("ALTER TABLE t DROP c, FROBNICATE")
    assert lake.commits() == []
    assert lake.columns() == {"id": "int", "c": "string", "s": "array<string>", "n": "int"}


@pytest.mark.soak
def test_a_rewritten_table_keeps_its_partitions_and_properties(make_lake: MakeLake) -> None:
    lake = make_lake(
        partition_by=["day"],
        properties={"delta.enableDeletionVectors": True, "lake.owner": "it's me"},
        overrides={"price": pa.decimal128(12, 2)},
    )
    lake.follow("CREATE TABLE t (id int PRIMARY KEY, `p,q` int, price double, day date)")
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES (1, 2, 3.5, DATE'2024-02-29')")
    lake.follow("ALTER TABLE t MODIFY `p,q` varchar(9), MODIFY price float")
    assert lake.rows() == [(1, "2", Decimal("3.50"), date(2024, 2, 29))]
    detail = lake.session.sql(f"DESCRIBE DETAIL {lake.sql_of('t')}").collect()[0]
    assert detail.partitionColumns == ["day"]
    assert detail.properties["delta.enableDeletionVectors"] == "true"
    assert detail.properties["lake.owner"] == "it's me"


def clustered_by(lake: DDLLake) -> list[str]:
    found: list[str] = lake.session.sql(f"DESCRIBE DETAIL {lake.sql_of('t')}").collect()[0].clusteringColumns
    return found


def test_a_clustered_table_stays_clustered_wherever_a_worker_dies(lake: DDLLake) -> None:
    lake.put("t", "id int; n string; `a.b` int", "1, '7', 3")
    lake.session.sql(f"ALTER TABLE {lake.sql_of('t')} CLUSTER BY (n, `a.b`)")
    lake.follow("ALTER TABLE t MODIFY n int, MODIFY `a.b` varchar(9)")
    assert lake.rows() == [(1, 7, "3")]
    assert clustered_by(lake) == ["n", "`a.b`"]
    lake.follow("ALTER TABLE t MODIFY n varbinary(9)")
    assert lake.rows() == [(1, b"7", "3")]
    assert clustered_by(lake) == ["`a.b`"]


def test_columns_are_given_a_type_whatever_their_case(make_lake: MakeLake) -> None:
    lake = make_lake(overrides={"price": pa.decimal128(12, 2)})
    lake.put("t", "id int", "1")
    lake.follow("ALTER TABLE t ADD Price double DEFAULT 1.5", mortal=False)
    assert lake.columns()["Price"] == "decimal(12,2)"


def test_a_change_data_feed_lets_columns_get_another_type_until_one_is_renamed(lake: DDLLake) -> None:
    """Delta refuses a commit that replaces rows and columns, if columns have ids."""
    lake.session.sql(
        f"CREATE TABLE {lake.sql_of('t')} (id int, n int) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} VALUES (1, 2)")
    lake.follow("ALTER TABLE t DROP gone, RENAME COLUMN lost TO found, MODIFY id varchar(9)", mortal=False)
    for sql in (
        "DROP id, MODIFY n varchar(9)",
        "CHANGE n m varchar(9)",
        "RENAME COLUMN n TO m",
        "MODIFY m varchar(9)",
    ):
        refused = pytest.raises(Rejected, match=r"with a change data feed and column mapping")
        with nullcontext() if "RENAME" in sql else refused:
            lake.follow(f"ALTER TABLE t {sql}", mortal=False)
        assert lake.rows() == [("1", 2)]
        assert list(lake.columns()) == ["id", "m" if " m" in sql and "CHANGE" not in sql else "n"]
    lake.session.sql(f"ALTER TABLE {lake.sql_of('t')} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    lake.follow("ALTER TABLE t MODIFY m varchar(9)", mortal=False)
    assert lake.rows() == [("1", "2")]


def test_a_table_that_computes_a_column_is_not_written_anew(lake: DDLLake) -> None:
    lake.session.sql(
        f"CREATE TABLE {lake.sql_of('t')} (id int, n int, twice int GENERATED ALWAYS AS (n * 2)) USING delta"
    )
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} (id, n) VALUES (1, 2)")
    with pytest.raises(
        Rejected, match=r"column id of db\.t cannot become .*, and twice would no longer be GENERATED"
    ):
        lake.follow("ALTER TABLE t MODIFY id varchar(9)", mortal=False)
    lake.session.sql(f"INSERT INTO {lake.sql_of('t')} (id, n) VALUES (2, 3)")
    assert lake.rows() == [(1, 2, 4), (2, 3, 6)]
