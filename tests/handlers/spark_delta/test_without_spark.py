"""Commits of delta-rs beside those of Spark: the same rows, types and notes, and each segment once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, at, shape

from handlers.spark.delta.commits.commit_notes import LostCommit
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.commits.held_segments import last_note
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions
from handlers.spark.rows.shape import Mode

BY_RS = MergeOptions(engine="auto")
ORDERS = shape(id=pa.int64(), name=pa.string(), price=pa.int32())


def bring(table: Table, first: int, *, after: int = 0) -> bool:
    """The segments from this one on, by delta-rs or not at all."""
    segments = [each for each in table.log.segments if each.number >= first]
    note = table.note(segments[0].number, segments[-1].number)
    small = WithoutSpark(table.options, LocalFiles())
    return small.apply(Bringing(table.ref, segments, table.shape, note, after)) is not None


def by_spark(table: Table) -> None:
    """The next merges of the table are Spark's."""
    table.options = table.options.model_copy(update={"merge": MergeOptions(engine="spark")})


def by_rs(table: Table) -> None:
    table.options = table.options.model_copy(update={"merge": BY_RS})


@pytest.mark.soak
def test_spark_and_delta_rs_take_turns(make_table: MakeTable) -> None:
    table, model = make_table(merge=BY_RS), {}
    for number in range(10):
        if number == 6:
            table.sql("OPTIMIZE {t}").collect()
            table.sql("UPDATE {t} SET price = id")
            model = {key: (key, name, key) for key, (_, name, _) in model.items()}
        key, gone = number % 7, (number + 3) % 7
        table.put(ORDERS, {"id": key, "name": f"n{number}"}, {"id": gone, "op": "delete"})
        model[key] = (key, f"n{number}", None)
        model.pop(gone, None)
        (by_spark if number % 5 == 4 else by_rs)(table)
        table.merge()
        assert table.rows() == sorted(model.values(), key=repr)
    assert table.merged == 10
    assert table.makers in {"ddddsdsddds", "ddddsdssddds"}  # an OPTIMIZE may have nothing to do
    assert Path(table.path, "_delta_log/_last_checkpoint").exists()
    assert [tuple(row) for row in table.sql("SELECT * FROM {t}").sort("id").collect()] == sorted(
        model.values()
    )


def test_commits_carry_the_notes_of_the_log(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    for number in range(3):
        table.put(ORDERS, {"id": number})
        table.merge()
    assert table.makers == "ddd"
    note = last_note(table.spark, table.ref)
    assert note is not None
    assert (note["first"], note["segment"], note["source_time_ms"]) == (3, 3, 1003)
    assert note["marks"] == {"cdc": {"0": [3, 0]}}
    (newest,) = table.sql("DESCRIBE HISTORY {t} LIMIT 1").collect()
    assert json.loads(newest.userMetadata)["binlane"]["segment"] == 3


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_each_segment_is_brought_in_once_by_whomever(make_table: MakeTable, mode: Mode) -> None:
    table = make_table(mode=mode, merge=BY_RS)
    place = {"topic": "cdc", "partition": 0, "index": 0}
    for number in (1, 2):
        table.put(ORDERS, {"id": number, "op": "insert", "offset": number, **place})
        table.merge()
    assert table.makers == "dd"
    for first in (1, 2):
        with pytest.raises(MergeConflict, match="already has segment 2"):
            bring(table, first)
    by_spark(table)
    with pytest.raises(MergeConflict, match="already has segment 2"):
        table.merge(table.log.segments[-1])
    assert table.rows("id") == [(1,), (2,)]
    assert table.merged == 2


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_a_commit_that_comes_between_wins(
    make_table: MakeTable, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(mode=mode, merge=BY_RS)
    place = {"topic": "cdc", "partition": 0, "index": 0}
    for number in (1, 2):
        table.put(ORDERS, {"id": number, "op": "insert", "offset": number, **place})
    table.merge(table.log.segments[0])
    rows = WithoutSpark._rows

    def overtaken(self: WithoutSpark, *given: Any) -> Any:
        made = rows(self, *given)
        monkeypatch.setattr(WithoutSpark, "_rows", rows)
        by_spark(table)
        table.merge(table.log.segments[1])
        return made

    monkeypatch.setattr(WithoutSpark, "_rows", overtaken)
    by_rs(table)
    with pytest.raises(MergeConflict):
        bring(table, 2)
    assert table.makers == "ds"
    assert table.rows("id") == [(1,), (2,)]


def test_a_statement_that_comes_between_is_looked_at_anew(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(merge=BY_RS)
    for number in (1, 2):
        table.put(ORDERS, {"id": number})
    table.merge(table.log.segments[0])
    rows = WithoutSpark._rows

    def altered(self: WithoutSpark, *given: Any) -> Any:
        made = rows(self, *given)
        table.sql("ALTER TABLE {t} ADD COLUMNS (mine string)")
        return made

    monkeypatch.setattr(WithoutSpark, "_rows", altered)
    with pytest.raises(MergeConflict):
        bring(table, 2)
    monkeypatch.undo()
    assert not bring(table, 2)  # it has a column of its own now: for Spark
    table.merge()
    assert table.rows() == [(1, None, None, None), (2, None, None, None)]
    assert table.merged == 2


@pytest.mark.soak
def test_a_restored_table_is_noticed(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    for number in range(3):
        table.put(ORDERS, {"id": number})
        table.merge()
    table.sql("RESTORE TABLE {t} TO VERSION AS OF 1").collect()
    table.put(ORDERS, {"id": 9})
    with pytest.raises(LostCommit):
        bring(table, 4, after=3)
    with pytest.raises(LostCommit):
        bring(table, 4)
    assert table.makers == "ddds"


PLAIN: dict[str, Any] = {}
ODD: dict[str, tuple[dict[str, Any], list[str]]] = {
    "partitioned": ({"partition_by": ["name"]}, []),
    "mapped": ({"properties": {"delta.columnMapping.mode": "name"}}, []),
    "with a feed": ({"properties": {"delta.enableChangeDataFeed": "true"}}, []),
    "with deletion vectors": ({"properties": {"delta.enableDeletionVectors": "true"}}, []),
    "with row ids": ({"properties": {"delta.enableRowTracking": "true"}}, []),
    "kept for long": ({"properties": {"delta.logRetentionDuration": "interval 400 days 12 hours"}}, []),
    "timed": ({"properties": {"delta.enableInCommitTimestamps": "true"}}, []),
    "checked": (PLAIN, ["ALTER TABLE {t} ADD CONSTRAINT few CHECK (id < 9)"]),
    "clustered": (PLAIN, ["ALTER TABLE {t} CLUSTER BY (id)"]),
    "with a column of its own": (PLAIN, ["ALTER TABLE {t} ADD COLUMNS (mine string)"]),
}


IN_SHORT = {"kept for long", "with a feed", "checked", "with a column of its own"}


@pytest.mark.parametrize(
    "what", [pytest.param(each, marks=() if each in IN_SHORT else pytest.mark.soak) for each in ODD]
)
def test_a_table_that_is_not_plain_is_for_spark(make_table: MakeTable, what: str) -> None:
    options, statements = ODD[what]
    table = make_table(merge=BY_RS, **options)
    table.put(ORDERS, {"id": 1, "name": "a", "price": 1}, {"id": 2, "name": "b"})
    table.merge()
    for statement in statements:
        table.sql(statement)
    before = table.commits
    table.put(ORDERS, {"id": 1, "name": "A", "price": 2})
    assert not bring(table, 2)
    assert table.commits == before


def test_what_is_large_or_partial_is_for_spark(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, *({"id": number} for number in range(100)))
    table.merge()
    table.put(ORDERS, {"id": 1, "absent": ["name"]}, partial=True)
    assert not bring(table, 2)
    table.merge()
    table.put(ORDERS, {"id": 1})
    for limit, value in {"_MOST_BYTES": 50, "MOST_MEMORY": 10}.items():
        with monkeypatch.context() as patch:
            patch.setattr(f"handlers.spark.delta.without_spark.{limit}", value)
            assert not bring(table, 3)
    assert bring(table, 3)
    assert table.makers == "dsd"


@pytest.mark.soak
def test_keys_that_are_equal_for_spark_alone_are_for_spark(make_table: MakeTable) -> None:
    floats = shape(("id",), id=pa.float64(), v=pa.int32())
    table = make_table(merge=BY_RS)
    for number, key in enumerate((0.0, -0.0, float("nan"), float("nan"))):
        table.put(floats, {"id": key, "v": number})
        table.merge()
    assert "d" not in table.makers
    assert [row[1] for row in table.rows()] == [1, 3]


@pytest.mark.soak
def test_spark_skips_no_file_that_has_the_row(make_table: MakeTable) -> None:
    """Of a file's least and greatest values a part may be noted: milliseconds, so many letters."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 999_999, UTC)
    kinds = shape(
        id=pa.int64(),
        moment=pa.timestamp("us", tz="UTC"),
        clock=pa.timestamp("us"),
        text=pa.string(),
        digits=pa.decimal128(38, 10),
        real=pa.float64(),
        bits=pa.bool_(),
        data=pa.binary(),
    )
    long = "ü" * 70 + "\U0001f600" * 70
    table = make_table(merge=BY_RS)
    table.put(kinds, {"id": 1})
    table.merge()
    values = {
        "moment": moment,
        "clock": moment.replace(tzinfo=None),
        "text": long,
        "digits": Decimal("9999999999999999999999999999.9999999999"),
        "real": float("nan"),
        "bits": True,
        "data": b"\xff" * 80,
    }
    table.put(kinds, {"id": 1, **values})
    table.merge()
    assert table.makers == "dd"
    for condition in (
        "moment >= '2026-01-02 03:04:05.999999+00:00'",
        "moment = '2026-01-02 03:04:05.999999+00:00'",
        "clock >= timestamp_ntz'2026-01-02 03:04:05.999999'",
        f"text >= '{long}'",
        f"text = '{long}'",
        "digits = 9999999999999999999999999999.9999999999bd",
        "real = double('nan')",
        "real > 1e300",
        "bits",
        "data = X'" + "ff" * 80 + "'",
        "id = 1",
    ):
        assert table.sql(f"SELECT id FROM {{t}} WHERE {condition}").count() == 1, condition
        assert table.sql(f"SELECT id FROM {{t}} WHERE NOT ({condition})").count() == 0, condition


def test_rows_of_before_stay_as_they_are(make_table: MakeTable) -> None:
    kinds = shape(id=pa.int64(), moment=pa.timestamp("us", tz="UTC"), day=pa.timestamp("us"), x=pa.float64())
    old = datetime(1, 1, 1, 0, 0, 0, 1)
    table = make_table(merge=BY_RS)
    table.put(
        kinds,
        {"id": 1, "moment": at(0) + timedelta(microseconds=1), "day": old, "x": -0.0},
        {"id": 2, "day": datetime(1582, 10, 10), "x": float("nan")},
    )
    by_spark(table)
    table.merge()
    by_rs(table)
    before, types = table.rows(), table.types()
    table.put(kinds, {"id": 3})
    table.merge()
    assert table.makers == "sd"
    assert [row for row in table.rows() if row[0] != 3] == before or repr(table.rows()[:2]) == repr(before)
    assert table.types() == types


def test_a_table_whose_files_were_removed_by_hand_is_for_spark_to_tell(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, {"id": 1})
    table.merge()
    table.put(ORDERS, {"id": 2})
    for file in Path(table.path).glob("*.parquet"):
        file.unlink()
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|FILE_NOT_EXIST|does not exist"):
        table.merge()
    assert table.merged == 1


@pytest.mark.soak
def test_a_reader_of_delta_rs_sees_the_same(make_table: MakeTable) -> None:
    table = make_table(mode="changelog", merge=BY_RS)
    place = {"topic": "cdc", "partition": 0, "index": 0}
    for number in range(12):
        table.put(ORDERS, {"id": number, "op": "insert", "offset": number, **place})
        table.merge()
    assert table.makers == "d" * 12
    assert table.commits == 11
    assert deltalake.DeltaTable(table.path).version() == 11
    assert sorted(row.id for row in table.sql("SELECT id FROM {t}").collect()) == list(range(12))
