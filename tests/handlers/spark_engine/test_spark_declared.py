"""Tables that declare more than the source: what they refuse, or would keep as another value, is rejected."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from spark_lake import Lake, MakeLake, change

from handlers import Change, Rejected, TargetUnavailable

REGIONS = {"id": "int", "region": "varchar(40)", "n": "int"}
BY_REGION = ("region", "id")


def make(lake: Lake, columns: str, more: str = "") -> None:
    """A table that is there already."""
    lake.spark.sql(f"CREATE TABLE delta.`{lake.folder / 'lake/shop/orders'}` ({columns}) USING delta {more}")


def rejected(lake: Lake, *changes: Any) -> Rejected:
    with pytest.raises(Rejected) as found:
        lake.take(*changes)
    return found.value


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize(
    ("mode", "values"),
    [
        pytest.param(
            "replica", ("", "__HIVE_DEFAULT_PARTITION__", "a\0b", "é" * 125, "%" * 83), id="replica-"
        ),
        *((mode, ("",)) for mode in ("history", "changelog")),
    ],
)
def test_what_delta_does_not_keep_of_a_partition_column_is_rejected(
    make_lake: MakeLake, mode: str, values: tuple[str, ...]
) -> None:
    lake = make_lake(mode=mode, partition_by=["region"])
    rows = [{"id": 1, "region": value, "n": 1} for value in values]
    good = change(1, {"id": 2, "region": "eu", "n": 1}, REGIONS, key=BY_REGION)
    for row in rows:
        with pytest.raises(Rejected, match=r"'region'.*partitioned") as found:
            lake.take(good, change(2, row, REGIONS, key=BY_REGION))
        assert found.value.at == 1
        gone = change(3, None, REGIONS, op="delete", before=row, key=BY_REGION)
        assert rejected(lake, gone).at == 0
    lake.take(good)
    lake.sink().merge()
    lake.merge()
    for row in rows:
        assert rejected(lake, change(4, row, REGIONS, key=BY_REGION)).at == 0
    assert lake.rows("id, region, n") == [(2, "eu", 1)]


@pytest.mark.usefixtures("told_to_merge")
def test_a_table_that_is_there_tells_what_it_is_partitioned_by(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int, region string, code binary", "PARTITIONED BY (Region, code)")
    types = {"id": "int", "region": "varchar(9)", "code": "varbinary(9)"}
    assert rejected(lake, change(1, {"id": 1, "region": "", "code": b"x"}, types)).at == 0
    lake.take(change(2, {"id": 2, "region": "a", "code": b"x"}, types))
    lake.crash()  # what the table declares is known without Spark, before it is merged
    assert rejected(lake, change(3, {"id": 2, "region": "", "code": b"x"}, types)).at == 0
    for code in (b"", b"\xff", b"\0"):
        assert rejected(lake, change(4, {"id": 2, "region": "b", "code": code}, types)).at == 0
    lake.sink().merge()
    assert lake.rows() == [(2, "a", b"x")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+02:00"])
def test_a_time_that_clocks_show_twice_is_rejected_by_a_partition(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    lake = make_lake(partition_by=["at"])
    lake.take(change(1, {"id": 1, "name": "a"}))  # there is a Spark
    monkeypatch.setitem(lake.sink()._work._world.spark.section.conf, "spark.sql.session.timeZone", zone)
    types = {"id": "int", "at": "timestamp"}
    moments = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1, 2)]
    moments.append(datetime(9999, 12, 31, 23, 59, tzinfo=UTC))
    rows = [change(number, {"id": number, "at": at}, types) for number, at in enumerate(moments)]
    if zone != "Europe/Berlin":
        lake.take(*rows, table="shop.items")
        return
    with pytest.raises(Rejected, match="clocks show twice") as found:
        lake.take(*rows, table="shop.items")
    assert found.value.at == 1
    lake.take(*rows[:1], *rows[2:], table="shop.items")


@pytest.mark.usefixtures("told_to_merge")
def test_the_row_before_an_update_is_no_partition_value(make_lake: MakeLake) -> None:
    lake = make_lake(mode="changelog", partition_by=["region"])
    before, after = {"id": 1, "region": "", "n": 1}, {"id": 1, "region": "eu", "n": 1}
    lake.take(change(1, after, REGIONS, op="update", before=before))
    lake.sink().merge()
    assert lake.rows("region, _before.region AS old") == [("eu", "")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize(
    ("columns", "more", "key"),
    [
        ("id char(5), name string", "", ("id",)),
        ("id string, name string, p char(5)", "PARTITIONED BY (p)", ("id",)),
        ("id string, name char(5)", "", ()),
    ],
)
def test_a_table_in_which_rows_would_be_compared_by_char_is_refused(
    make_lake: MakeLake, columns: str, more: str, key: tuple[str, ...]
) -> None:
    lake = make_lake()
    make(lake, columns, more)
    lake.sql("INSERT INTO {t} (id, name) VALUES ('a', 'x')")
    types = {"id": "char(5)", "name": "varchar(9)"}
    row, old = {"id": "a", "name": "new"}, {"id": "a", "name": "x"}
    told = rejected(lake, change(1, row, types, op="update", key=key, before=old))
    assert "is CHAR" in str(told)
    assert "rtrim" in str(told)


@pytest.mark.usefixtures("told_to_merge")
def test_a_value_as_long_as_a_folders_name_is_kept_by_a_partition(make_lake: MakeLake) -> None:
    lake = make_lake(partition_by=["region"])
    texts = ["x" * 248, "é" * 124, "%" * 82, "\x7f ^\\{[]?*:=/'\"#\x01"]
    for number, text in enumerate(texts):
        lake.take(change(number, {"id": number, "region": text, "n": 1}, REGIONS))
        lake.sink().merge()
    assert {region for (region,) in lake.rows("region")} == set(texts)


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_table_that_numbers_a_column_of_the_source_itself_is_refused(
    make_lake: MakeLake, mode: str
) -> None:
    lake = make_lake(mode=mode)
    make(lake, "id bigint GENERATED ALWAYS AS IDENTITY, name string")
    assert "GENERATED ALWAYS AS IDENTITY" in str(rejected(lake, change(1, {"id": 5, "name": "a"})))


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_a_column_may_be_called_as_what_spark_tells_of_files(make_lake: MakeLake, mode: str) -> None:
    lake = make_lake(mode=mode)
    lake.take(change(1, {"id": 1, "_metadata": "a"}, {"id": "int", "_metadata": "text"}))
    lake.sink().merge()
    assert lake.rows("_metadata") == [("a",)]


@pytest.mark.usefixtures("told_to_merge")
def test_char_beside_the_key_and_varchar_keys_are_kept(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id varchar(5), name char(4)")
    lake.sql("INSERT INTO {t} VALUES ('a', 'x')")
    types = {"id": "varchar(5)", "name": "char(9)"}
    lake.take(change(1, {"id": "a", "name": "new"}, types, op="update"))
    assert "4 characters" in str(rejected(lake, change(2, {"id": "b", "name": "fiver"}, types)))
    assert "5 characters" in str(rejected(lake, change(2, {"id": "b     ", "name": "ab"}, types)))
    lake.take(change(3, {"id": "ccccc", "name": "ab"}, types))
    lake.sink().merge()
    assert sorted(tuple(row) for row in lake.sql("SELECT * FROM {t}").collect()) == [
        ("a", "new "),
        ("ccccc", "ab  "),
    ]


@pytest.mark.usefixtures("told_to_merge")
def test_null_in_a_column_that_must_not_be_null_is_rejected(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int NOT NULL, name string NOT NULL")
    found = rejected(lake, change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": None}))
    assert "NOT NULL" in str(found)
    assert found.at == 1
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.crash()
    assert rejected(lake, change(2, {"id": 2, "name": None})).at == 0
    lake.take(change(3, None, op="delete", before={"id": 7}))
    without = change(4, {"id": 1}, op="update")
    assert rejected(lake, without).at == 0  # it is whole, and what it does not have is NULL
    partly = msgspec.structs.replace(without, lacks=frozenset({"name"}))
    of_another = msgspec.structs.replace(partly, after={"id": 2}, offset=5)
    assert "NOT NULL" in str(rejected(lake, change(4, {"id": 2}), of_another))
    lake.take(partly)
    lake.sink().merge()
    assert lake.rows() == [(1, "a")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize(
    ("kept", "told"),
    [("int", "decimal(10,0)"), pytest.param("bigint", "decimal(19,0)", marks=pytest.mark.soak)],
)
def test_a_number_that_a_whole_number_of_the_table_does_not_hold_is_rejected(
    make_lake: MakeLake, kept: str, told: str
) -> None:
    lake = make_lake()
    make(lake, f"id int, n {kept}")
    types = {"id": "int", "n": told}
    most = 2**31 - 1 if kept == "int" else 2**63 - 1
    good = [change(1, {"id": 1, "n": Decimal(most)}, types), change(2, {"id": 2, "n": None}, types)]
    for beyond in (most + 1, -most - 2):
        assert rejected(lake, *good, change(3, {"id": 3, "n": Decimal(beyond)}, types)).at == 2
    lake.take(*good)
    lake.sink().merge()
    assert lake.rows() == [(1, most), (2, None)]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("without_spark", [pytest.param(False, marks=pytest.mark.soak), True])
def test_rows_that_a_condition_refuses_are_rejected(make_lake: MakeLake, without_spark: bool) -> None:
    lake = make_lake(merge={"engine": "auto" if without_spark else "spark"})
    make(lake, "id int, name string, up string GENERATED ALWAYS AS (upper(name))")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT short CHECK (name <> 'bad')")
    types = {"id": "int", "name": "varchar(9)", "up": "varchar(9)"}
    ok = change(1, {"id": 1, "name": "ok", "up": "OK"}, types)
    for bad in ({"name": "bad", "up": "BAD"}, {"name": None, "up": None}, {"name": "a", "up": "B"}):
        assert rejected(lake, ok, change(2, {"id": 2, **bad}, types)).at == 1
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT"):  # as Delta itself has it
        lake.sql("INSERT INTO {t} (id, name) VALUES (2, NULL)")
    gone = change(3, None, types, op="delete", before={"id": 3, "name": "bad", "up": "BAD"})
    lake.take(ok, gone)
    lake.sink().merge()
    assert lake.rows() == [(1, "ok", "OK")]


@pytest.mark.usefixtures("told_to_merge")
def test_a_refused_row_behind_a_piece_is_the_one_that_is_rejected(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int, name string, n int")
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT short CHECK (name <> 'bad')")
    lake.take(change(1, {"id": 1, "name": "ok"}))
    wide = {"id": "int", "name": "varchar(20)", "n": "int"}
    good = [change(offset, {"id": offset, "name": "ok", "n": 1}, wide) for offset in (3, 4)]
    bad = change(5, {"id": 5, "name": "bad", "n": 1}, wide)
    # The first piece is put. The second one's first row is not at fault.
    assert rejected(lake, change(2, {"id": 2, "name": "ok"}), *good, bad).at == 3
    lake.take(change(2, {"id": 2, "name": "ok"}), *good)
    lake.sink().merge()
    assert [key for key, *_ in lake.rows()] == [1, 2, 3, 4]


@pytest.mark.usefixtures("told_to_merge")
def test_a_replica_of_an_append_only_table_is_refused(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int, name string", "TBLPROPERTIES ('delta.appendOnly' = 'true')")
    assert "delta.appendOnly" in str(rejected(lake, change(1, {"id": 1, "name": "a"})))


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_table_of_which_delta_forgets_what_it_holds_is_refused(make_lake: MakeLake, mode: str) -> None:
    lake = make_lake(mode=mode)
    property_ = "delta.setTransactionRetentionDuration"
    make(lake, "id int, name string", f"TBLPROPERTIES ('{property_}' = 'interval 7 days')")
    assert property_ in str(rejected(lake, change(1, {"id": 1, "name": "a"})))


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("ADD CONSTRAINT few CHECK (id < 2)", "CHECK constraint few.*what the table declares"),
        (
            "SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "what the table declares|delta.appendOnly is set",
        ),
    ],
)
def test_what_is_declared_later_lets_the_table_wait_and_judges_no_other_batch(
    make_lake: MakeLake, statement: str, told: str
) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.sink().merge()
    lake.take(change(2, {"id": 2, "name": None}))
    lake.sql(f"ALTER TABLE {{t}} {statement}")
    for _ in range(3):
        with pytest.raises(Exception, match=told):
            lake.sink().merge()
    with pytest.raises(TargetUnavailable, match=told):
        lake.take(change(3, {"id": 1, "name": "good"}))


@pytest.mark.usefixtures("told_to_merge")
def test_a_clustered_table_stays_clustered(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int, name string", "CLUSTER BY (name)")
    lake.sql("INSERT INTO {t} VALUES (1, 'x')")
    lake.take(change(1, {"id": 1, "name": "a"}, op="update"), change(2, {"id": 2, "name": "b"}))
    lake.sink().merge()
    assert lake.rows() == [(1, "a"), (2, "b")]
    assert clustered_by(lake) == ["name"]


def clustered_by(lake: Lake) -> list[str]:
    found: list[str] = lake.sql("DESCRIBE DETAIL {t}").collect()[0].clusteringColumns
    return found


@pytest.mark.usefixtures("told_to_merge")
def test_a_table_that_comes_to_declare_more_is_seen_by_the_rows_that_find_it(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.sink().merge()
    lake.sql("ALTER TABLE {t} ADD CONSTRAINT short CHECK (length(name) < 3)")
    wide = {"id": "int", "name": "varchar(20)", "more": "int"}
    bad = change(2, {"id": 2, "name": "long", "more": 1}, wide)  # with new columns the table is looked at
    assert rejected(lake, bad).at == 0
    lake.take(change(3, {"id": 2, "name": "ok", "more": 1}, wide))
    lake.sink().merge()
    assert lake.rows() == [(1, "a", None), (2, "ok", 1)]


_CHANGELOG = "_op string, _source_time timestamp, _topic string, _partition int, _offset bigint, _index int"


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize(
    ("own", "condition"),
    [
        pytest.param("name string NOT NULL", "id > 0 OR _op <> 'insert'", id="null"),
        pytest.param("name string", "length(name) > 1", id="condition"),
        pytest.param(
            "name string, own int DEFAULT 3",
            "length(name) > 1 AND own = 3",
            id="default",
            marks=pytest.mark.soak,
        ),
    ],
)
def test_a_changelog_judges_rows_that_tell_less(make_lake: MakeLake, own: str, condition: str) -> None:
    lake = make_lake(mode="changelog")
    defaults = "TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"
    make(lake, f"{_CHANGELOG}, id int, {own}", defaults)
    lake.sql(f"ALTER TABLE {{t}} ADD CONSTRAINT one CHECK ({condition})")
    good = change(1, {"id": 1, "name": "abc"})
    for less in (
        change(2, None, op="delete", before={"id": 1}),
        change(2, None, None, op="truncate"),
        change(2, None, None, op="ddl", sql="ALTER TABLE orders ADD INDEX (name)"),
    ):
        assert rejected(lake, less, good).at == 0
        lake.take(good)
        assert rejected(lake, less, good).at == 0
        lake.sink().merge()
        lake.crash()
    lake.take(change(3, None, op="delete", before={"id": 1, "name": "abc"}))
    lake.sink().merge()
    assert lake.rows("_op, id, name") == [("delete", 1, "abc"), ("insert", 1, "abc")]


@pytest.mark.usefixtures("told_to_merge")
@pytest.mark.parametrize("value", ["", pytest.param("__HIVE_DEFAULT_PARTITION__", marks=pytest.mark.soak)])
def test_what_a_partition_does_not_keep_of_what_the_table_computes_is_rejected(
    make_lake: MakeLake, value: str
) -> None:
    lake = make_lake()
    computed = "part string GENERATED ALWAYS AS (substr(name, 1, 50))"
    make(lake, f"id int, name string, {computed}", "PARTITIONED BY (Part)")
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": None}))
    assert "PARTITIONED BY" in str(rejected(lake, change(3, {"id": 3, "name": value})))
    partly = msgspec.structs.replace(change(4, {"id": 1, "name": value}, op="update"), lacks=None)
    assert rejected(lake, partly).at == 0
    lake.sink().merge()
    assert lake.rows("id, name, part") == [(1, "a", "a"), (2, None, None)]


@pytest.mark.usefixtures("told_to_merge")
def test_a_table_that_finds_columns_by_ids_is_changed_as_any(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(lake, "id int, name string, n int", "TBLPROPERTIES ('delta.columnMapping.mode' = 'id')")
    types = {"id": "int", "name": "varchar(9)", "n": "int", "a b": "int"}
    lake.take(change(1, {"id": 1, "name": "a", "n": 1, "a b": 2}, types))
    lake.take(change(2, None, None, op="ddl", sql="ALTER TABLE orders DROP COLUMN n"))
    lake.take(change(3, None, None, op="ddl", sql="ALTER TABLE orders RENAME COLUMN name TO title"))
    lake.sink().merge()
    assert lake.rows("id, title, `a b`") == [(1, "a", 2)]


@pytest.mark.usefixtures("told_to_merge")
def test_a_row_moves_to_the_partition_that_the_table_computes(make_lake: MakeLake) -> None:
    lake = make_lake()
    make(
        lake,
        "id BIGINT, created_at TIMESTAMP, day DATE GENERATED ALWAYS AS (CAST(created_at AS DATE))",
        "PARTITIONED BY (day)",
    )
    types = {"id": "bigint", "created_at": "timestamp"}

    def row(offset: int, id: int, day: int, op: str = "insert") -> Change:
        return change(offset, {"id": id, "created_at": datetime(2026, 11, day, 9, tzinfo=UTC)}, types, op=op)

    lake.take(row(1, 1, 1), row(2, 2, 1), row(3, 3, 1))
    lake.sink().merge()
    lake.take(
        row(4, 1, 2, "update"), change(5, None, types, op="delete", before={"id": 2, "created_at": None})
    )
    lake.sink().merge()
    assert lake.rows("id, day") == [(1, date(2026, 11, 2)), (3, date(2026, 11, 1))]
    assert lake.sql("DESCRIBE DETAIL {t}").collect()[0].partitionColumns == ["day"]
