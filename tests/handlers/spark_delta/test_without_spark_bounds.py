"""What commits without Spark leave to Spark, or leave alone: by what a table holds, and what it asks for."""

from __future__ import annotations

import os
import time
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from delta_lab import MakeTable, Table, at, shape

from handlers.spark.delta.commits.exactly_once import settings
from handlers.spark.delta.log_actions import OnlySpark
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions
from handlers.spark.read.in_duckdb import read_at
from handlers.spark.rows.parquet_files import has_other_names

BY_RS = MergeOptions(engine="auto")
ORDERS = shape(id=pa.int64(), name=pa.string())
MODULE = "handlers.spark.delta.without_spark"
OLD = 60 * 86_400
"""Seconds: twice as long as Delta keeps the log by default."""


def bring(table: Table) -> bool:
    """The newest segment, by delta-rs or not at all."""
    newest = table.log.segments[-1]
    note = table.note(newest.number, newest.number)
    small = WithoutSpark(table.options, LocalFiles())
    return small.apply(Bringing(table.ref, [newest], table.shape, note, newest.number - 1)) is not None


def test_a_table_that_has_become_empty_is_gone_on_with(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, {"id": 1})
    assert bring(table)
    table.put(ORDERS, {"id": 1, "op": "delete"})
    assert bring(table)
    table.put(ORDERS, {"id": 2, "op": "delete"})
    assert bring(table)
    table.sql("DELETE FROM {t}").collect()
    table.put(ORDERS, {"id": 3})
    assert bring(table)
    assert table.rows("id") == [(3,)]


def test_files_without_statistics_are_for_spark(make_table: MakeTable) -> None:
    table = make_table()
    table.spark.conf.set("spark.databricks.delta.stats.collect", "false")
    try:
        table.put(ORDERS, {"id": 1})
        table.merge()
    finally:
        table.spark.conf.unset("spark.databricks.delta.stats.collect")
    table.options = table.options.model_copy(update={"merge": BY_RS})
    table.put(ORDERS, {"id": 2})
    assert not bring(table)
    table.merge()
    assert table.rows("id") == [(1,), (2,)]


def test_dates_of_the_former_calendar_are_for_spark(make_table: MakeTable) -> None:
    table, of = make_table(), shape(id=pa.int64(), day=pa.date32())
    days = [(1, date(1, 1, 1)), (2, date(1000, 1, 1)), (3, date(2026, 1, 1))]
    with settings(table.spark, {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY"}):
        table.put(of, *({"id": number, "day": day} for number, day in days[:2]))
        table.merge()
    table.options = table.options.model_copy(update={"merge": BY_RS})
    table.put(of, {"id": 3, "day": days[2][1]})
    assert not bring(table)
    table.merge()
    assert sorted(map(tuple, table.sql("SELECT * FROM {t}").collect())) == days
    table.put(of, {"id": 3, "day": days[2][1]})
    assert bring(table)


def test_files_with_other_capitals_in_names_are_for_spark(tmp_path: Path) -> None:
    """After CONVERT TO DELTA, Spark reads them."""
    table = Table(None, tmp_path / "t", merge=BY_RS)
    table.put(ORDERS, {"id": 1, "name": "a"})
    assert bring(table)
    [file] = Path(table.path).glob("*.parquet")
    pq.write_table(pq.read_table(file).rename_columns(["id", "Name"]), file)
    table.put(ORDERS, {"id": 2, "name": "b"})
    assert not bring(table)
    with pytest.raises(OnlySpark, match="other capitals"):
        read_at(table.path)
    of = pa.schema({"Element": pa.list_(pa.struct({"Part": pa.int64()}))})
    for name in ("part", "Part"):
        inside = pa.list_(pa.field("element", pa.struct({name: pa.int64()})))
        pq.write_table(pa.table({"Element": pa.array([None], inside)}), file)
        assert has_other_names(ds.dataset(str(file), schema=of)) is (name == "part")
    for of in ({"Name": pa.int64(), "Element": pa.struct({"Part": pa.int64(), "name": pa.int64()})}, {}):
        pq.write_table(pa.table({"name": [1], "Element": [{"Part": 1}]}), file)
        found = ds.dataset(str(file), schema=pa.schema(of))
        assert has_other_names(found) is bool(of), "the same name inside of another column"


def test_times_that_another_spark_wrote_stay_as_they_are(make_table: MakeTable) -> None:
    table, of = make_table(merge=BY_RS), shape(id=pa.int64(), ends=pa.timestamp("us", tz="UTC"))
    table.put(of, {"id": 1, "ends": at(0)})
    table.merge()
    with settings(table.spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        for moment in ("9999-12-31 00:00:00Z", "0005-01-01 00:00:00Z"):
            table.sql(f"INSERT INTO {{t}} VALUES (2, timestamp'{moment}')")
    micros = "SELECT unix_micros(ends) FROM {t} WHERE id > 1"
    before = sorted(map(tuple, table.sql(micros).collect()))
    assert WithoutSpark(table.options, LocalFiles()).optimize(table.ref)
    assert sorted(map(tuple, table.sql(micros).collect())) == before


def test_a_table_that_takes_much_memory_is_for_spark(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, *({"id": number, "name": "x" * 1000} for number in range(100)))
    assert bring(table)
    table.put(ORDERS, {"id": 1})
    monkeypatch.setattr(f"{MODULE}.MOST_MEMORY", 50_000)
    assert not bring(table)
    monkeypatch.undo()
    assert bring(table)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_log_is_kept_where_the_table_asks_for_it(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, wanted: bool
) -> None:
    table = make_table(merge=BY_RS)
    monkeypatch.setattr("handlers.spark.delta.checkpoints.CHECKPOINT_EVERY", 1)
    for number in range(3):
        table.put(ORDERS, {"id": number})
        assert bring(table)
    if not wanted:
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableExpiredLogCleanup' = 'false')")
    first = Path(table.path, "_delta_log", f"{0:020d}.json")
    for file in first.parent.iterdir():
        os.utime(file, (time.time() - OLD,) * 2)
    monkeypatch.setattr("handlers.spark.delta.checkpoints._CLEAN_EVERY", 1)
    for number in range(2):
        table.put(ORDERS, {"id": 10 + number})
        assert bring(table)
    assert first.exists() is not wanted
    assert len(table.rows()) == 5


def test_columns_that_only_differ_for_spark_are_not_taken_for_each_other(make_table: MakeTable) -> None:
    both = shape(("stra\u00dfe",), **{"stra\u00dfe": pa.int64(), "strasse": pa.int64()})
    table = make_table(merge=BY_RS)
    table.put(both, *({"stra\u00dfe": key, "strasse": 9 - key} for key in range(1, 4)))
    table.merge()
    table.put(both, {"stra\u00dfe": 2, "strasse": 100})
    table.merge()
    assert table.rows() == [(1, 8), (2, 100), (3, 6)]


def test_a_commit_that_cannot_be_written_is_for_spark_to_tell(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    table.sql("CREATE TABLE {t} (id bigint, name string NOT NULL) USING delta")
    table.put(ORDERS, {"id": 1, "name": "a"})
    table.merge()
    assert table.makers == "sd"
    table.put(ORDERS, {"id": 2})
    assert not bring(table)
    assert table.commits == 1
    with pytest.raises(Exception, match=r"NOT NULL|NOT_NULL"):
        table.merge()
