"""Tables made without Spark: as Spark makes them, and by one writer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.delta.commits.commit_notes import LostCommit, held_in_files
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.own_commit import can_be_made
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.beside import Held
from handlers.spark.log.stores.interface import temporary_name
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions, SparkSection
from handlers.spark.read.in_duckdb import read_at
from handlers.spark.rows.shape import Mode
from handlers.spark.runtime.conf import has_table_defaults
from handlers.spark.table_ref import quoted

BY_RS = MergeOptions(engine="auto")
ORDERS = shape(id=pa.int64(), name=pa.string())
PLACE = {"topic": "cdc", "partition": 0, "index": 0}
KINDS = shape(
    ("id", "small"),
    id=pa.int64(),
    small=pa.int16(),
    tiny=pa.int8(),
    number=pa.int32(),
    single=pa.float32(),
    real=pa.float64(),
    price=pa.decimal128(20, 4),
    text=pa.string(),
    data=pa.binary(),
    flag=pa.bool_(),
    day=pa.date32(),
    moment=pa.timestamp("us", tz="UTC"),
    clock=pa.timestamp("us"),
    tags=pa.list_(pa.string()),
)
VALUES: dict[str, Any] = {
    "small": 7,
    "tiny": -8,
    "number": 9,
    "single": 0.5,
    "real": float("nan"),
    "price": Decimal("-1.2500"),
    "text": "\U0001f600",
    "data": b"\xff\x00",
    "flag": True,
    "day": date(1582, 10, 10),
    "moment": datetime(1, 1, 1, 0, 0, 0, 1, UTC),
    "clock": datetime(9999, 12, 31, 23, 59, 59, 999_999),
    "tags": ["a", None],
}


class Renaming(LocalFiles):
    """Another writer's rename takes the place of the first version, as Spark's can on a local disk."""

    def put(self, path: str, data: bytes | pa.Buffer) -> None:
        super().put(path, data)
        if path.endswith(f"{0:020d}.json"):
            Path(path).write_text('{"commitInfo":{"engineInfo":"another"}}\n', encoding="utf-8")


def bring(
    table: Table, files: LocalFiles | None = None, *, makes_tables: bool = True, after: int = 0
) -> bool:
    """All segments, by delta-rs or not at all."""
    segments = table.log.segments
    small = WithoutSpark(table.options, files or LocalFiles(), makes_tables=makes_tables)
    note = table.note(segments[0].number, segments[-1].number)
    return small.apply(Bringing(table.ref, segments, table.shape, note, after))


def first_version(table: Table) -> dict[str, Any]:
    """What the table is, without what is each table's own."""
    lines = Path(table.path, "_delta_log", f"{0:020d}.json").read_text(encoding="utf-8").splitlines()
    found: dict[str, Any] = {}
    for line in lines:
        found |= json.loads(line)
    metadata, parts = found["metaData"], found["protocol"].items()
    return {
        "schema": json.loads(metadata["schemaString"]),
        "properties": metadata["configuration"],
        "partitions": metadata["partitionColumns"],
        "format": metadata["format"],
        "protocol": {name: sorted(each) if isinstance(each, list) else each for name, each in parts},
        "txn": (found["txn"]["appId"], found["txn"]["version"]),
    }


def test_the_rest_of_a_first_commit_is_no_table(make_table: MakeTable) -> None:
    """Of a worker that was killed before it named the commit."""
    table = make_table(merge=BY_RS)
    rest = Path(table.path, "_delta_log", temporary_name())
    rest.parent.mkdir(parents=True)
    rest.write_bytes(b"{")
    table.put(ORDERS, {"id": 1})
    assert held_in_files(LocalFiles(), table.path, table.ref.app_id) == Held()
    assert bring(table)
    assert table.makers == "d"


@pytest.mark.parametrize("mode", ["replica", pytest.param("changelog", marks=pytest.mark.soak)])
def test_a_new_table_is_as_spark_makes_it(make_table: MakeTable, mode: Mode) -> None:
    tables = {
        by_rs: make_table(mode=mode, merge=BY_RS if by_rs else MergeOptions(engine="spark"))
        for by_rs in (True, False)
    }
    for table in tables.values():
        rows: Iterator[dict[str, Any]] = (
            {"id": number, "op": "insert", "offset": number, **PLACE, **(VALUES if number else {"small": 0})}
            for number in range(3)
        )
        table.put(KINDS, *rows)
        table.put(KINDS, {"id": 0, "small": 0, "op": "delete", "offset": 3, **PLACE})
        table.merge()
    ours, sparks = tables[True], tables[False]
    assert (ours.makers, sparks.makers) == ("d", "s")
    assert first_version(ours) == first_version(sparks)
    assert ours.types() == sparks.types()
    assert len(ours.rows()) == (2 if mode == "replica" else 4)
    assert repr(ours.rows()) == repr(sparks.rows())
    as_json = "SELECT to_json(struct(*)) FROM {t}"
    assert sorted(ours.sql(as_json).collect()) == sorted(sparks.sql(as_json).collect())


def test_what_spark_makes_otherwise_is_for_spark(make_table: MakeTable) -> None:
    for options in (
        {"properties": {"delta.logRetentionDuration": "interval 7 days"}},
        {"partition_by": ["name"]},
        {"cluster_by": ["name"]},
    ):
        table = make_table(merge=BY_RS, **options)
        table.put(ORDERS, {"id": 1, "name": "a"})
        assert not bring(table)
    table = make_table(merge=BY_RS)
    table.put(ORDERS, {"id": 1, "name": "a"})
    assert not bring(table, makes_tables=False)
    gone = make_table(merge=BY_RS)
    gone.put(ORDERS, {"id": 1, "op": "delete"})
    assert not bring(gone)
    for each in (table, gone):
        assert not Path(each.path, "_delta_log").exists()


def test_names_that_need_mapping_are_mapped_as_by_spark(make_table: MakeTable) -> None:
    tables = [make_table(merge=merge) for merge in (BY_RS, MergeOptions(engine="spark"))]
    for table in tables:
        for name in ("a", "b"):
            table.put(
                shape(("the id",), **{"the id": pa.int64(), "n": pa.string()}), {"the id": 1, "n": name}
            )
            table.merge()
    assert [table.makers for table in tables] == ["dd", "ss"]
    ours, sparks = (first_version(table) for table in tables)
    for version in (ours, sparks):
        for field in version["schema"]["fields"]:
            assert field["metadata"].pop("delta.columnMapping.physicalName").startswith("col-")
    assert ours == sparks
    for table in tables:
        assert [tuple(row) for row in table.sql("SELECT * FROM {t}").collect()] == [(1, "b")]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": pa.int64(), "price": pa.decimal128(38, 10)}, True),
        ({"id": pa.int64(), "_before": pa.struct([("price", pa.decimal128(10, 2))])}, True),
        ({}, False),
        ({"id": pa.int64(), "ID": pa.int64()}, False),
        ({"id": pa.null()}, False),
        ({"id": pa.uint64()}, False),
        ({"the id": pa.int64()}, True),
        ({"_before": pa.struct([("the id", pa.int64())])}, False),
    ],
)
def test_which_columns_a_new_table_may_have(columns: dict[str, pa.DataType], expected: bool) -> None:
    assert can_be_made(pa.schema(list(columns.items()))) is expected


@pytest.mark.parametrize("kind", ["struct<a:int>", "map<string,int>", "array<struct<a:int>>", "variant"])
def test_an_empty_table_with_types_of_parts_is_for_spark(tmp_path: Path, kind: str) -> None:
    table = Table(None, tmp_path / "t", merge=MergeOptions(engine="auto"))
    own = WithoutSpark(table.options, LocalFiles())
    assert not own.create(table.ref, {"id": "bigint", "s": kind}, {}, "{}")
    assert not (tmp_path / "t").exists()


def test_the_first_rows_of_a_table_that_a_statement_has_created_need_no_spark(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=BY_RS)
    own = WithoutSpark(table.options, LocalFiles())
    assert own.create(table.ref, {"id": "bigint", "name": "string"}, {}, '{"binlane":{}}')
    table.put(ORDERS, {"id": 1, "name": "a"})
    assert bring(table)
    assert table.rows() == [(1, "a")]
    commit = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    commit.unlink()  # what it said is unknown: it may have had segments of this log
    assert held_in_files(LocalFiles(), table.path, "binlane:shop.other", 1) is None


@pytest.mark.parametrize("has_hint", [True, False])
def test_a_table_of_which_a_checkpoint_alone_is_left_may_have_segments(
    tmp_path: Path, has_hint: bool
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{10:020d}.checkpoint.parquet").write_bytes(b"PAR1")
    if has_hint:
        (log / "_last_checkpoint").write_text('{"version": 10, "size": 1}')
    assert held_in_files(LocalFiles(), str(tmp_path), "binlane:shop.orders") is None


@pytest.mark.parametrize("name", ["a b", "ü ✓", "a#b?", "a%20b", "a[b]", "a^b", "a|b", "a\\b"])
def test_folders_whose_names_are_special(make_table: MakeTable, tmp_path: Path, name: str) -> None:
    table = make_table(merge=BY_RS)
    path = str(tmp_path / name / "t")
    table.path, table.ref = path, replace(table.ref, sql=f"delta.{quoted(path)}", path=path)
    (tmp_path / "a b").mkdir()
    for number in range(2):
        table.put(ORDERS, {"id": number})
        note = table.note(number + 1, number + 1)
        small = WithoutSpark(table.options, LocalFiles())
        assert small.apply(Bringing(table.ref, table.log.segments[-1:], table.shape, note, number))
    assert not list((tmp_path / "a b").glob("*")) or name == "a b"
    assert sorted(read_at(path).column("id").to_pylist()) == [0, 1]


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_another_writer_makes_it_first(
    make_table: MakeTable, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(mode=mode, merge=BY_RS)
    table.put(ORDERS, {"id": 1, "op": "insert", "offset": 1, **PLACE})
    rows = WithoutSpark._rows

    def overtaken(self: WithoutSpark, *given: Any) -> Any:
        made = rows(self, *given)
        monkeypatch.setattr(WithoutSpark, "_rows", rows)
        assert bring(table)
        return made

    monkeypatch.setattr(WithoutSpark, "_rows", overtaken)
    with pytest.raises(MergeConflict, match="another writer has put version 0"):
        bring(table)
    assert table.rows("id") == [(1,)]
    assert table.merged == 1


def test_a_first_version_that_another_writer_takes_is_not_counted(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, {"id": 1})
    with pytest.raises(MergeConflict, match="another writer has put version 0"):
        bring(table, Renaming())


def test_what_a_crash_left_is_no_hindrance(make_table: MakeTable) -> None:
    table = make_table(merge=BY_RS)
    table.put(ORDERS, {"id": 1})
    assert bring(table)
    for file in Path(table.path, "_delta_log").iterdir():
        file.unlink()
    Path(table.path, "_delta_log").rmdir()  # as before the commit: its file of rows is there
    again = make_table(merge=BY_RS)
    assert again.path != table.path
    assert not table.log.after(1)
    with pytest.raises(LostCommit):
        bring(table, after=1)
    assert bring(table)
    assert table.rows("id") == [(1,)]


@pytest.mark.parametrize(
    ("given", "environment", "expected"),
    [
        ({}, {}, False),
        ({"conf": {"spark.sql.shuffle.partitions": 4}}, {}, False),
        ({"conf": {"spark.databricks.delta.properties.defaults.appendOnly": True}}, {}, True),
        ({"remote": "sc://localhost:15002"}, {}, True),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}, True),
    ],
)
def test_where_new_tables_may_have_defaults(
    given: dict[str, Any], environment: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert has_table_defaults(SparkSection(**given)) is expected
