"""Replicas in Iceberg: the source's rows, in one commit for many batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from iceberg_lab import IcebergLake, change


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[IcebergLake]:
    made = IcebergLake(tmp_path)
    yield made
    made.close()


def test_rows_are_inserted_updated_and_deleted_by_key(lake: IcebergLake) -> None:
    lake.take(change(1, {"id": 1, "name": "a"}), change(2, {"id": 2, "name": "b"}))
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    lake.take(
        change(3, {"id": 1, "name": "c"}, op="update", before={"id": 1, "name": "a"}),
        change(4, None, op="delete", before={"id": 2, "name": "b"}),
        change(5, {"id": 3, "name": "d"}),
    )
    lake.merge()
    assert lake.rows() == [{"id": 1, "name": "c"}, {"id": 3, "name": "d"}]
    assert lake.types() == {"id": "int", "name": "string"}
    assert [each.summary.operation.value for each in lake.table().snapshots()] == ["append", "overwrite"]
