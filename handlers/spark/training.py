"""`python -m handlers.spark.training` makes the archive of Spark's classes (`runtime.class_archive`).

A small Spark does what a worker's does first, and Java writes what it loaded as it ends: 30 s of CPU, 200 MB.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import structlog

from handlers.spark.handler import SparkHandler
from handlers.spark.runtime.class_archive import OPTIONS, QUIET, kept, named, place
from handlers.testing import make_batch, opened

__all__ = ["main"]

_MERGE_SECONDS = 300.0


def main(*, nice: bool) -> None:
    """Make it, unless it is there; with `nice`, at the lowest priority, unless somebody else makes it.

    Raises OSError where nothing can be written, RuntimeError when Java makes none, and what SparkHandler.open
    raises."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if nice:
        os.nice(19)
    wanted = place()
    wanted.parent.mkdir(parents=True, exist_ok=True)
    with wanted.with_name(f"{wanted.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if not nice else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if kept(wanted):
            return
        prefix = f".{wanted.name}-"
        for leftover in wanted.parent.glob(f"{prefix}*"):  # of one that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=wanted.parent) as folder:
            made = Path(folder, "spark.jsa")
            _train(Path(folder), made)
            if not made.exists():
                raise RuntimeError("Java has made no archive of Spark's classes")
            made.chmod(0o644)
            for damaged in wanted.parent.glob(f"{wanted.name}.*.jsa"):
                damaged.unlink()
            made.rename(named(wanted, made.stat().st_size))


def _train(folder: Path, made: Path) -> None:
    """A worker's handler with rows that become a table, and change it."""
    java = f"-XX:ArchiveClassesAtExit={made} {QUIET} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    spark = {"master": "local[1]", "driver_memory": "1g", "ui": False, "conf": {OPTIONS: java}}
    handler = SparkHandler(mode="replica", merge={"max_age": "0s", "at_close": "2m"})
    with opened(handler, folder, spark=spark):
        for number in range(3):
            handler.handle(make_batch("shop.t", [{"id": number, "name": "x"}], key="id"))
            end = time.monotonic() + _MERGE_SECONDS
            while any(table["waiting_rows"] for table in (handler.status() or {})["tables"]):
                if time.monotonic() > end:
                    raise TimeoutError("a row is not merged")
                time.sleep(0.05)


if __name__ == "__main__":
    main(nice="--nice" in sys.argv[1:])
