"""Two workers of one group that both take a table for theirs, as they may for a while after a rebalance."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from pathlib import Path

import pytest
from iceberg_lab import IcebergLake
from iceberg_writers import RECORDS, write


@pytest.mark.parametrize("mode", ["replica", "changelog"])
def test_two_processes_bring_each_change_in_once(tmp_path: Path, mode: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    both = [spawn.Process(target=write, args=(tmp_path, mode)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join(240)
    assert [each.exitcode for each in both] == [0, 0]
    lake = IcebergLake(tmp_path, mode=mode)
    try:
        with lake.handler._open.table("shop", "orders") as sink:  # type: ignore[union-attr]
            sink.load()
            sink.merge()
        assert Counter(row["id"] for row in lake.rows()) == Counter(range(RECORDS))
        assert len(lake.table().snapshots()) > 3
    finally:
        lake.close()
