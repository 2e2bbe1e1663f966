"""Rows of several databases in one Iceberg table: each is its own, and nothing hidden is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from gathered_stream import HIDDEN, ROWS, batches
from iceberg_lab import IcebergLake


@pytest.mark.parametrize("merges", [1, 100])
@pytest.mark.parametrize("mode", ["replica", "history", "changelog"])
def test_of_each_database_its_own_rows(tmp_path: Path, mode: str, merges: int) -> None:
    lake = IcebergLake(tmp_path, mode=mode)
    for number, batch in enumerate(batches()):
        lake.handler.handle(batch)
        if number % merges == 0:
            lake.merge()
    lake.merge()
    rows = lake.rows("shops.users")
    assert HIDDEN not in repr(rows)
    assert "ssn" not in lake.types("shops.users")
    if mode == "history":
        rows = [row for row in rows if row["cdc_current"]]
    if mode != "changelog":
        assert sorted(({name: row[name] for name in ROWS[0]} for row in rows), key=repr) == sorted(
            ROWS, key=repr
        )
    else:
        assert len(rows) == 10
    lake.close()
