"""Changes of columns without Spark are those that Spark makes, and everybody goes on with the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_lab import Elsewhere, MakeTable, Table, shape

from handlers import Change as SourceChange
from handlers.mysql.ddl import TableName
from handlers.spark.ddl.follow import follow
from handlers.spark.ddl.progress import Surroundings
from handlers.spark.delta.checkpoints import write_checkpoint
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.few_files import Rewrite, exact_scalar
from handlers.spark.delta.own_commit import NextVersion
from handlers.spark.delta.table_columns import ColumnChange
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions
from handlers.spark.read.in_duckdb import read_at

OWN = MergeOptions(engine="auto")
BY_SPARK = MergeOptions(engine="spark")
ROWS = shape(id=pa.int64(), name=pa.string(), small=pa.int8())
MAPPED = ("delta.columnMapping.mode", "name")
WIDENED = ("delta.enableTypeWidening", "true")

Change = Callable[[ColumnChange], None]
STATEMENTS: list[tuple[str, Change]] = [
    ("SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", lambda columns: columns.set(*MAPPED)),
    ("ADD COLUMNS (tier string AFTER id)", lambda columns: columns.add("tier", "string", "id")),
    ("ADD COLUMNS (first decimal(12,2) FIRST)", lambda columns: columns.add("first", "decimal(12,2)", "")),
    ("ADD COLUMNS (`a b` array<string>)", lambda columns: columns.add("a b", "array<string>")),
    ("ADD COLUMNS (clock timestamp_ntz)", lambda columns: columns.add("clock", "timestamp_ntz")),
    ("RENAME COLUMN name TO `ü.x`", lambda columns: columns.rename("name", "ü.x")),
    ("DROP COLUMNS (tier)", lambda columns: columns.drop(["tier"])),
    ("SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')", lambda columns: columns.set(*WIDENED)),
    ("ALTER COLUMN small TYPE smallint", lambda columns: columns.widen("small", "smallint")),
    ("ALTER COLUMN small TYPE int", lambda columns: columns.widen("small", "int")),
    ("ALTER COLUMN small FIRST", lambda columns: columns.move("small", "")),
    ("ALTER COLUMN small AFTER id", lambda columns: columns.move("small", "id")),
    (
        "SET TBLPROPERTIES ('binlane.dropped_columns' = '[]')",
        lambda c: c.set("binlane.dropped_columns", "[]"),
    ),
]


def next_version(table: Table) -> NextVersion:
    found = WithoutSpark(table.options.model_copy(update={"merge": OWN}), LocalFiles()).next_version(
        table.ref
    )
    assert found is not None
    return found


def state(table: Table) -> dict[str, Any]:
    """The newest metadata and protocol. New columns have random names in files."""
    found: dict[str, Any] = {}
    for commit in sorted(Path(table.path, "_delta_log").glob("?" * 20 + ".json")):
        for line in commit.read_text(encoding="utf-8").splitlines():
            found |= {
                kind: each for kind, each in json.loads(line).items() if kind in ("metaData", "protocol")
            }
    metadata = found["metaData"]
    return {
        "columns": json.loads(re.sub(r"col-[0-9a-f-]{36}", "col-", metadata["schemaString"])),
        "configuration": metadata["configuration"],
        "protocol": {
            name: sorted(each) if isinstance(each, list) else each for name, each in found["protocol"].items()
        },
    }


def test_each_change_of_columns_is_the_one_that_spark_makes(make_table: MakeTable) -> None:
    ours, sparks = make_table(merge=OWN), make_table(merge=BY_SPARK)
    for table in (ours, sparks):
        table.put(ROWS, {"id": 1, "name": "x", "small": 5})
        table.merge()
    for statement, change in STATEMENTS:
        sparks.sql(f"ALTER TABLE {{t}} {statement}")
        assert next_version(ours).alter("CHANGE COLUMN", change)
        assert state(ours) == state(sparks), statement
    assert ours.makers == "d" * (len(STATEMENTS) + 1)
    assert ours.sql("SELECT * FROM {t}").collect() == sparks.sql("SELECT * FROM {t}").collect()
    # Each goes on with the other's table.
    for table, merge in ((ours, BY_SPARK), (sparks, OWN)):
        table.options = table.options.model_copy(update={"merge": merge})
        of = shape(
            first=pa.decimal128(12, 2),
            id=pa.int64(),
            small=pa.int32(),
            **{"ü.x": pa.string(), "a b": pa.list_(pa.string()), "clock": pa.timestamp("us")},
        )
        table.put(of, {"id": 2, "small": 70_000, "ü.x": "y", "a b": ["z", None], "first": Decimal("1.25")})
        table.put(of, {"id": 1, "small": 6, "ü.x": "X", "clock": datetime(9999, 12, 31)})
        for segment in table.log.segments[1:]:
            table.merge(segment)
    assert (ours.makers[-2:], sparks.makers[-2:]) == ("ss", "dd")
    columns = "first, id, small, `ü.x`, `a b`, clock"
    rows = ours.sql(f"SELECT {columns} FROM {{t}}").sort("id").collect()
    assert rows == sparks.sql(f"SELECT {columns} FROM {{t}}").sort("id").collect()
    assert [row.id for row in rows] == [1, 2]
    read = read_at(sparks.path).select(["first", "id", "small", "ü.x", "a b", "clock"]).sort_by("id")
    assert [tuple(each.values()) for each in read.to_pylist()] == [tuple(row) for row in rows]


def test_files_have_the_names_and_ids_of_the_mapping(make_table: MakeTable) -> None:
    table = make_table(merge=OWN)
    table.put(ROWS, {"id": 1, "name": "x", "small": 5})
    table.merge()
    for _, change in STATEMENTS[:2]:
        assert next_version(table).alter("ADD COLUMNS", change)
    table.put(
        shape(id=pa.int64(), tier=pa.string(), name=pa.string(), small=pa.int8()), {"id": 1, "tier": "gold"}
    )
    table.merge()
    columns = {each["name"]: each["metadata"] for each in json.loads(_schema(table))["fields"]}
    newest = max(Path(table.path).glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    fields = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in pq.read_schema(newest)}
    assert fields == {
        each["delta.columnMapping.id"]: each["delta.columnMapping.physicalName"] for each in columns.values()
    }
    assert table.sql("SELECT id FROM {t} WHERE tier = 'gold'").count() == 1
    assert table.sql("SELECT id FROM {t} WHERE tier > 'gold'").count() == 0


def _schema(table: Table) -> str:
    base = next_version(table).base
    assert base is not None
    return base.metadata.schema_string


def test_a_table_whose_name_mapping_is_off_gets_plain_columns(make_table: MakeTable) -> None:
    table = make_table(merge=BY_SPARK, properties={"delta.columnMapping.mode": "none"})
    table.put(ROWS, {"id": 1})
    table.merge()
    assert next_version(table).alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert "physicalName" not in _schema(table)
    table.sql("UPDATE {t} SET more = 'x'")
    assert table.rows("more") == [("x",)]


def test_one_of_two_changes_of_a_version_wins(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge(table.log.segments[-1])
    one, other = next_version(table), next_version(table)
    assert one.alter("ADD COLUMNS", lambda columns: columns.add("a", "int"))
    with pytest.raises(MergeConflict, match="another writer has put version 1"):
        other.alter("ADD COLUMNS", lambda columns: columns.add("b", "int"))
    assert '"a"' in _schema(table)
    assert '"b"' not in _schema(table)


@pytest.mark.parametrize(
    "change",
    [
        lambda columns: columns.add("ID", "int"),
        lambda columns: columns.rename("name", "Small"),
        lambda columns: columns.widen("id", "int"),
        lambda columns: columns.widen("small", "tinyint"),
        lambda columns: columns.drop(["id", "name", "small"]),
    ],
    ids=["added", "renamed", "wider", "widened", "dropped"],
)
def test_what_another_writer_has_changed_since_the_look_is_for_spark(tmp_path: Path, change: Change) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge(table.log.segments[-1])
    before = _schema(table)
    assert not next_version(table).alter("CHANGE COLUMN", change)
    assert _schema(table) == before


def test_a_commit_leaves_nothing_where_the_table_no_longer_is(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    for number in range(2):
        table.put(ROWS, {"id": number})
        table.merge(table.log.segments[-1])
    late, other = next_version(table), next_version(table)
    LocalFiles().rename(table.path, str(tmp_path / "renamed"))
    for version, rows in ((late, late.few_files({}, 1).columns.named.empty_table()), (other, None)):
        with pytest.raises(MergeConflict, match="moved or dropped"):
            version.put("WRITE", {}, rows=Rewrite((), () if rows is None else (rows,)))
    assert not [each for each in Path(table.path).rglob("*") if each.is_file()]


def test_a_commit_is_not_of_a_table_that_was_made_anew(tmp_path: Path) -> None:
    """It has as many versions as the former one. Nothing is put there."""
    puts: list[str] = []

    class Watched(LocalFiles):
        def put(self, path: str, data: Any) -> None:
            puts.append(path)
            super().put(path, data)

    table, other = Table(None, tmp_path / "t", merge=OWN), Table(None, tmp_path / "other", merge=OWN)
    for each, number in ((table, 1), (other, 2)):
        each.put(ROWS, {"id": number})
        each.merge(each.log.segments[-1])
    late = WithoutSpark(table.options, Elsewhere(Watched())).next_version(table.ref)
    assert late is not None
    LocalFiles().rename(table.path, str(tmp_path / "dropped"))
    LocalFiles().rename(other.path, table.path)
    with pytest.raises(MergeConflict, match="dropped before version 1"):
        late.put("WRITE", {}, rows=Rewrite((), (late.few_files({}, 1).columns.named.empty_table(),)))
    assert not [each for each in puts if "_delta_log" in each]
    assert sorted(each.name for each in Path(table.path, "_delta_log").iterdir()) == [f"{0:020d}.json"]


def test_a_log_may_begin_with_a_checkpoint(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge(table.log.segments[-1])
    write_checkpoint(LocalFiles(), table.path, 0, 0)
    next_ = next_version(table)
    Path(table.path, "_delta_log", f"{0:020d}.json").unlink()
    assert next_.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))


def test_a_commit_before_the_newest_checkpoint_counts_for_nothing(tmp_path: Path) -> None:
    """A worker that was suspended finds its version free: others have put it, and cleaned the log."""
    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge(table.log.segments[-1])
    late = next_version(table)
    for name in ("a", "b", "c"):
        assert next_version(table).alter("ADD COLUMNS", lambda columns, name=name: columns.add(name, "int"))  # type: ignore[misc]
    write_checkpoint(LocalFiles(), table.path, 2, 0)
    for version in range(2):
        Path(table.path, "_delta_log", f"{version:020d}.json").unlink()
    before = _schema(table)
    with pytest.raises(MergeConflict, match="cleaned the log"):
        late.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    assert _schema(table) == before


def test_a_put_whose_answer_is_lost_counts(tmp_path: Path) -> None:
    class Repeating(LocalFiles):
        """Like a client that repeats a put whose answer was lost."""

        def put(self, path: str, data: Any) -> None:
            super().put(path, data)
            if "_delta_log" in path:
                super().put(path, data)

    table = Table(None, tmp_path / "t", merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge(table.log.segments[-1])
    again = WithoutSpark(table.options, Repeating()).next_version(table.ref)
    assert again is not None
    assert again.alter("ADD COLUMNS", lambda columns: columns.add("a", "int"))


def test_what_an_older_protocol_needs_is_for_spark(make_table: MakeTable) -> None:
    table = make_table(merge=OWN)
    table.put(ROWS, {"id": 1})
    table.merge()
    first = Path(table.path, "_delta_log", f"{0:020d}.json")
    lines = [json.loads(line) for line in first.read_text(encoding="utf-8").splitlines()]
    mapped = {"minReaderVersion": 2, "minWriterVersion": 7, "writerFeatures": ["columnMapping"]}
    for protocol, places in (
        (mapped, (7,)),
        ({"minReaderVersion": 1, "minWriterVersion": 2}, (0, 4, 7)),
    ):
        for line in lines:
            if "protocol" in line:
                line["protocol"] = protocol
        first.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        for place in places:
            assert not next_version(table).alter("CHANGE COLUMN", STATEMENTS[place][1])
    assert next_version(table).alter("ADD COLUMNS", lambda columns: columns.add("a", "int"))


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (1.1, pa.float32(), None),
        (datetime(2026, 1, 1), pa.timestamp("us", tz="UTC"), None),
        (datetime(2026, 1, 1), pa.timestamp("us"), datetime(2026, 1, 1)),
        ("x", pa.int32(), None),
        (Decimal("1.25"), pa.decimal128(10, 1), None),
        (Decimal("1.25"), pa.decimal128(10, 2), Decimal("1.25")),
        (date(1, 1, 1), pa.date32(), date(1, 1, 1)),
        (["a"], pa.list_(pa.string()), ["a"]),
        (Decimal("1.5"), pa.int64(), None),
        (1.5, pa.int32(), None),
        (5, pa.date32(), None),
        (datetime(2026, 1, 1, 12), pa.date32(), None),
        (5, pa.decimal128(10, 2), Decimal(5)),
    ],
)
def test_only_certain_values_are_filled_in(value: Any, kind: pa.DataType, expected: Any) -> None:
    if expected is None:
        with pytest.raises((ValueError, TypeError, pa.ArrowException)):
            exact_scalar(value, kind)
    else:
        assert exact_scalar(value, kind).as_py() == expected


WIDER = {
    "tiny": (pa.int8(), "int", -128),
    "whole": (pa.int32(), "decimal(20,2)", -(2**31)),
    "real": (pa.float32(), "double", 1.1),
    "day": (pa.date32(), "timestamp_ntz", date(1582, 10, 4)),
    "price": (pa.decimal128(6, 1), "decimal(30,3)", Decimal("-99999.9")),
    "number": (pa.int16(), "double", 32767),
}


@pytest.mark.parametrize("own", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_files_of_narrower_types_are_rewritten_with_the_same_values(make_table: MakeTable, own: bool) -> None:
    table = make_table(merge=OWN)
    first = shape(id=pa.int64(), **{name: kind for name, (kind, _, _) in WIDER.items()})
    table.put(first, {"id": 1, **{name: value for name, (_, _, value) in WIDER.items()}}, {"id": 2})
    table.merge()

    def widen(columns: ColumnChange) -> None:
        columns.set(*WIDENED)
        for name, (_, type_, _) in WIDER.items():
            columns.widen(name, type_)

    if own:
        assert next_version(table).alter("CHANGE COLUMNS", widen)
    else:
        table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
        for name, (_, type_, _) in WIDER.items():
            table.sql(f"ALTER TABLE {{t}} ALTER COLUMN {name} TYPE {type_}")
    before = table.sql("SELECT * FROM {t} WHERE id = 1").collect()
    fields = next_version(table).columns.named
    table.put(shape(**{field.name: field.type for field in fields}), {"id": 2, "tiny": 70_000})
    table.merge()
    assert table.makers[-1] == "d"
    assert len(set(next_version(table).base.files)) == 1  # type: ignore[union-attr]
    assert table.sql("SELECT * FROM {t} WHERE id = 1").collect() == before
    assert [row.tiny for row in table.sql("SELECT tiny FROM {t}").sort("id").collect()] == [-128, 70_000]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {t} ADD COLUMNS (s array<struct<a: int>>)",
        "ALTER TABLE {t} ADD COLUMNS (s struct<a: int>)",
        "ALTER TABLE {t} ADD COLUMNS (s map<string, variant>)",
    ],
)
def test_parts_that_are_declared_or_renamed_are_for_spark(make_table: MakeTable, statement: str) -> None:
    table = make_table(merge=BY_SPARK, properties={"delta.columnMapping.mode": "name"})
    table.put(ROWS, {"id": 1})
    table.merge()
    assert next_version(table)
    table.sql(statement)
    options = table.options.model_copy(update={"merge": OWN})
    assert WithoutSpark(options, LocalFiles()).next_version(table.ref) is None


def test_a_statement_goes_on_after_a_crash_however_many_commits_of_others_follow(tmp_path: Path) -> None:
    table = Table(None, tmp_path / "t", merge=OWN)
    table.merge(table.put(ROWS, {"id": 1}))
    sql, name = "ALTER TABLE orders ADD COLUMN more int DEFAULT 5", TableName("shop", "orders")
    change = SourceChange("ddl", None, None, None, sql, 0, "cdc", 0, 5, 0, None, None)

    def follow_it(commits: int) -> None:
        """`commits`: of a worker that dies before the next one."""

        def next_of(_: Any) -> NextVersion:
            nonlocal commits
            commits -= 1
            if commits < 0:
                raise InterruptedError
            return next_version(table)

        no_session: Any = None
        around = Surroundings(
            table.options, lambda _: table.ref, LocalFiles(), f"{tmp_path}/_binlane", next_version=next_of
        )
        follow(no_session, change, around, name, note="{}", key=("id",))

    with pytest.raises(InterruptedError):
        follow_it(1)
    for number in range(30):
        columns = ColumnChange.of(next_version(table).base.metadata)  # type: ignore[union-attr]
        assert "more" in [each["name"] for each in columns.fields]
        next_version(table).alter("SET TBLPROPERTIES", lambda columns, n=number: columns.set("x", str(n)))  # type: ignore[misc]
    for kept in (tmp_path / "_binlane").rglob("*.steps"):
        kept.unlink()  # a worker that is killed writes none
    follow_it(9)
    assert read_at(table.path, ["more"])["more"].to_pylist() == [5]
