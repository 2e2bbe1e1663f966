"""Whatever Spark or a table is set to, commits bring all rows, as they are."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from delta_lab import MakeTable, shape

from handlers.spark.delta.commits.exactly_once import settings
from handlers.spark.delta.modes import replica
from handlers.spark.runtime.errors import SPARK_ERRORS

_ORDERS = shape(id=pa.int64(), name=pa.string())


def test_rows_that_cannot_be_read_are_not_passed_over(make_table: MakeTable) -> None:
    table = make_table()
    table.put(_ORDERS, {"id": 1})
    table.merge()
    table.put(_ORDERS, {"id": 2})
    damaged = Path(table.log.segments[-1].path)
    damaged.write_bytes(b"PAR1" + bytes(damaged.stat().st_size - 8) + b"PAR1")
    with settings(table.spark, {"spark.sql.files.ignoreCorruptFiles": "true"}):
        with pytest.raises(SPARK_ERRORS, match="FAILED_READ_FILE"):
            table.merge()
        assert table.spark.conf.get("spark.sql.files.ignoreCorruptFiles") == "true"
    assert (table.rows("id"), table.merged) == ([(1,)], 1)


def test_old_dates_stay_what_they_are(make_table: MakeTable) -> None:
    table = make_table()
    old = date(1500, 1, 1)
    table.put(shape(id=pa.int64(), day=pa.date32()), {"id": 1, "day": old})
    with settings(table.spark, {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"}):
        table.merge()
    assert table.rows("day") == [(old,)]


def test_a_key_is_what_it_is_however_texts_of_statements_are_read(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "_SMALL", 0)  # where it is the bound of a MERGE
    table, named = make_table(), shape(id=pa.string(), n=pa.int32())
    with settings(table.spark, {"spark.sql.parser.escapedStringLiterals": "true"}):
        for number in (1, 2):
            table.put(named, {"id": "C:\\O'Brien", "n": number})
            table.merge()
    assert table.rows() == [("C:\\O'Brien", 2)]


def test_the_change_feed_tells_of_changed_rows_alone(make_table: MakeTable) -> None:
    table = make_table(properties={"delta.enableChangeDataFeed": "TRUE"})
    table.put(_ORDERS, {"id": 1, "name": "a"}, {"id": 2, "name": "a"})
    table.merge()
    table.put(_ORDERS, {"id": 1, "name": "b"})
    table.merge()
    feed = table.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    found = feed.load(table.path).select("id", "name", "_change_type").collect()
    assert sorted(map(tuple, found)) == [(1, "a", "update_preimage"), (1, "b", "update_postimage")]
