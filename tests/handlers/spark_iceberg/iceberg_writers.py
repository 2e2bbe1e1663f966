"""A process that gives the same records to the same table as another one."""

from __future__ import annotations

import time
from pathlib import Path

from iceberg_lab import IcebergLake, change

from handlers import TargetUnavailable

RECORDS = 40
_MERGED = 10  # so many records are put after each commit that a writer waits for


def write(folder: Path, mode: str) -> None:
    """Each record by itself; what waits is merged all the time, and at the end."""
    lake = IcebergLake(folder, mode=mode, merge={"max_age": "50ms", "at_close": "20s"})
    for number in range(RECORDS):
        if number % _MERGED == 0:
            _wait_for_commits(lake, number // _MERGED)
        while True:
            try:
                lake.take(change(number, {"id": number, "name": "a"}))
                break
            except TargetUnavailable:
                time.sleep(0.05)
        time.sleep(0.02)
    time.sleep(1)
    lake.close()


def _wait_for_commits(lake: IcebergLake, most: int) -> None:
    """Wait until the table has so many, however slow the machine is."""
    deadline = time.monotonic() + 60
    while most and not (lake.catalog.table_exists("shop.orders") and len(lake.table().snapshots()) >= most):
        assert time.monotonic() < deadline, "the other records are not merged"
        time.sleep(0.1)
