"""A worker is stopped before Spark's commit. Meanwhile, others drop the table and make the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.modes import bringing, replica
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions

ROWS = shape(id=pa.int64(), name=pa.string())
SPARK = MergeOptions(engine="spark")


def once(real: Callable[..., Any], meanwhile: Callable[[], object], *, at: int) -> Callable[..., Any]:
    """`real`, after whose call number `at` something happens before it returns."""
    calls = 0

    def done(*given: Any) -> Any:
        nonlocal calls
        found = real(*given)
        calls += 1
        if calls == at:
            meanwhile()
        return found

    return done


def made_by_a_statement(table: Table) -> None:
    """It has no rows, so Delta knows nothing of the log's."""
    own = WithoutSpark(table.options.model_copy(update={"merge": MergeOptions(engine="auto")}), LocalFiles())
    assert own.create(table.ref, {"id": "bigint", "name": "string"}, {}, "{}")


@pytest.mark.parametrize("is_left", [True, False], ids=["files of a failed attempt", "nothing"])
def test_a_table_that_another_worker_has_made_gets_no_former_rows(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch, is_left: bool
) -> None:
    table = make_table(merge=SPARK)
    table.put(ROWS, {"id": 1, "name": "former"})
    if is_left:
        Path(table.path, "_delta_log").mkdir(parents=True)
        Path(table.path, "part-0.parquet").touch()
    module, name, at = (bringing, "exists", 2) if is_left else (replica, "look", 1)
    late = once(getattr(module, name), lambda: made_by_a_statement(table), at=at)
    with monkeypatch.context() as stopped:
        stopped.setattr(module, name, late)
        with pytest.raises(MergeConflict, match="made the next one"):
            table.merge()
    assert table.rows() == []
    assert table.makers == "d"
    table.put(ROWS, {"id": 2, "name": "later"})
    table.merge(table.log.segments[-1])
    assert table.rows("id, name") == [(2, "later")]


def test_a_merge_into_a_dropped_table_changes_no_later_one(
    make_table: MakeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(merge=SPARK)
    for number in range(2):
        table.put(ROWS, {"id": number, "name": "former"})
    table.merge(table.log.segments[0])

    def meanwhile() -> None:
        LocalFiles().rename(table.path, f"{table.path}.away")
        made_by_a_statement(table)

    late = once(replica.look, meanwhile, at=1)
    with monkeypatch.context() as stopped:
        stopped.setattr(replica, "look", late)
        with pytest.raises(MergeConflict, match="made the next one"):
            table.merge(table.log.segments[1])
    assert table.rows() == []
    table.put(ROWS, {"id": 2, "name": "later"})
    table.merge(table.log.segments[-1])
    assert table.rows("id, name") == [(2, "later")]
