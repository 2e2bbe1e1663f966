"""A process that gives the same records to the same table as another one."""

from __future__ import annotations

import time
from pathlib import Path

from iceberg_lab import IcebergLake, change

from handlers import TargetUnavailable

RECORDS = 40


def write(folder: Path, mode: str) -> None:
    """Each record by itself; what waits is merged all the time, and at the end."""
    lake = IcebergLake(folder, mode=mode, merge={"max_age": "50ms", "at_close": "20s"})
    for number in range(RECORDS):
        while True:
            try:
                lake.take(change(number, {"id": number, "name": "a"}))
                break
            except TargetUnavailable:
                time.sleep(0.05)
        time.sleep(0.02)
    time.sleep(1)
    lake.close()
