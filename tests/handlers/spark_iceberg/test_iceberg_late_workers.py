"""A worker that stood still, or was killed, changes no column that another worker has changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from iceberg_lab import IcebergLake, change
from msgspec.structs import replace

from handlers import TargetUnavailable
from handlers.mysql import ddl
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.engine import tables
from handlers.spark.engine.table.log_end import LogEnd
from handlers.spark.iceberg.altering import Altering
from handlers.spark.iceberg.catalog import IcebergCatalog
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.log.marks import Marks
from handlers.spark.options import SparkSection
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef

MakeLake = Callable[..., IcebergLake]
_REF = TableRef("`shop`.`orders`", None, "unused", "binlane:shop.orders")
_WIDER = {"id": "int", "name": "varchar(20)", "n": "int"}


def _ddl(lake: IcebergLake, offset: int, clause: str) -> None:
    lake.take(change(offset, None, None, op="ddl", sql=f"ALTER TABLE orders {clause}"))


@pytest.mark.parametrize(
    ("statement", "undone"),
    [
        ("ADD COLUMN n int", "DROP COLUMN n"),
        ("RENAME COLUMN name TO label", "RENAME COLUMN label TO name"),
        ("MODIFY name text, ADD COLUMN n int", "DROP COLUMN n"),
    ],
)
def test_a_statement_is_not_followed_again_if_another_worker_has_undone_it(
    lake: IcebergLake, statement: str, undone: str
) -> None:
    """A worker that stood still just before its commit. The columns look as they did, with the same ids."""
    lake.take(change(1, {"id": 1, "name": "a"}))
    lake.merge()
    section = SparkSection(iceberg=lake.catalog_properties)
    late = TableCommit(_REF, IcebergCatalog(section, lake.folder).load(("shop", "orders")))
    steps = ddl.parse(f"ALTER TABLE orders {statement}", "shop")
    Altering(late, CommitNote("w", "h", 0, 0, 0, {}), {}).apply(steps)
    _ddl(lake, 2, statement)
    _ddl(lake, 3, undone)
    with pytest.raises(MergeConflict):
        late.commit()
    assert lake.types() == {"id": "int", "name": "string"}


@pytest.mark.parametrize("has_put", [False, True])
def test_no_column_is_added_that_another_worker_has_renamed(
    make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch, has_put: bool
) -> None:
    """Or the source could not rename it back, and a default would be missed."""
    late, other = make_lake(), make_lake()
    late.take(change(1, {"id": 1, "name": "a"}))
    late.merge()
    row = change(2, {"id": 2, "name": "b", "n": 1}, _WIDER)
    if has_put:
        late.take(row)
        with monkeypatch.context() as away:
            away.setattr(TableCommit, "commit", _is_away)
            with pytest.raises(TargetUnavailable):
                late.merge()
    with monkeypatch.context() as process:
        process.setattr(tables, "_serving", {})  # as in another process
        other.take(row)
        _ddl(other, 3, "RENAME COLUMN name TO label")
    late.merge() if has_put else late.take(row)
    assert list(other.types()) == ["id", "label", "n"]
    _ddl(other, 4, "RENAME COLUMN label TO name")
    other.merge()
    assert [each["name"] for each in other.rows()] == ["a", "b"]


def _is_away(*_: Any) -> None:
    raise ConnectionError("away")


def test_a_statement_is_not_repeated_after_one_of_another_partition(
    lake: IcebergLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is killed before it records the first statement may get the partitions in any order."""
    lake.partitions = {("cdc", 0), ("cdc", 1)}
    lake.take(change(1, {"id": 1, "name": "a"}))
    again = "ALTER TABLE orders DROP COLUMN name, ADD COLUMN name varchar(9) DEFAULT 'x'"
    first = change(2, None, None, op="ddl", sql=again)
    put_mark = LogEnd.put_mark

    def killed(end: LogEnd, shape: Shape, marks: Marks) -> None:
        if marks.highest()["cdc", 0][0] == 2:
            raise RuntimeError("killed")
        put_mark(end, shape, marks)

    with monkeypatch.context() as mark:
        mark.setattr(LogEnd, "put_mark", killed)
        with pytest.raises(Exception, match="killed"):
            lake.take(first)
    lake.crash()
    second = change(0, None, None, op="ddl", sql="ALTER TABLE orders ADD COLUMN n int")
    row = change(1, {"id": 2, "name": "b", "n": 1}, _WIDER)
    lake.take(replace(second, partition=1), replace(row, partition=1))
    lake.take(first)
    lake.merge()
    assert [each["name"] for each in lake.rows()] == ["x", "b"]
