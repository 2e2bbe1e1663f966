"""`python -m handlers.spark.training` makes the archive of Spark's classes (`runtime.class_archive`).

A small Spark does a worker's first steps, and Java writes the loaded classes when it ends: 30 s of CPU, 200
MB."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
import time
from pathlib import Path

import structlog

from handlers.spark.handler import SparkHandler
from handlers.spark.runtime.class_archive import OPTIONS, QUIET, keep, lock_of, own_folder, place, usable
from handlers.spark.runtime.jars import spark_jars_folder
from handlers.testing import make_batch, opened

_MERGE_SECONDS = 300.0
_KEPT = 4
"""The most archives on one machine: of the Javas, pysparks and places used last."""
_LEFT_SECONDS = 3600.0
"""Age from which a folder of another archive belongs to nobody."""


def main() -> None:
    """Make the archive unless it exists.

    Raises OSError if nothing can be written, RuntimeError if Java makes no archive, and what
    SparkHandler.open raises."""
    wanted = place()
    own_folder(wanted)
    with lock_of(wanted).open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if usable():
            return
        remove_unused(wanted)
        with tempfile.TemporaryDirectory(prefix=f".{wanted.name}-", dir=wanted.parent) as folder:
            made = Path(folder, "spark.jsa")
            _train(Path(folder), made)
            lock.truncate(0)
            lock.write(os.fsencode(spark_jars_folder()))  # `usable` reads it
            lock.flush()
            keep(made, wanted)


def remove_unused(wanted: Path) -> None:
    """Remove archives until there is room for one more within _KEPT. A Java that has one open continues."""

    def used(archive: Path) -> float:
        lock = lock_of(archive)
        return (lock if lock.exists() else archive).stat().st_mtime

    others = [each for each in wanted.parent.glob("spark-*.jsa") if not each.name.startswith(wanted.name)]
    others.sort(key=used, reverse=True)
    for unused in others[_KEPT - 1 :]:
        unused.unlink(missing_ok=True)
    for leftover in wanted.parent.glob(".spark-*"):  # left by a killed one
        own = leftover.name.startswith(f".{wanted.name}-")
        if own or time.time() - leftover.stat().st_mtime > _LEFT_SECONDS:
            shutil.rmtree(leftover, ignore_errors=True)


def _train(folder: Path, made: Path) -> None:
    """Run a worker's handler with rows that create a table and change it."""
    java = f"-XX:ArchiveClassesAtExit={made} {QUIET} -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    # Whatever Hadoop's default file system is: nobody else uses these tables.
    warehouse = f"file:{folder}/lake"
    spark = {"master": "local[1]", "driver_memory": "1g", "ui": False, "conf": {OPTIONS: java}}
    handler = SparkHandler(mode="replica", merge={"engine": "spark", "max_age": "0s", "at_close": "2m"})
    with opened(handler, folder, spark={**spark, "warehouse": warehouse}):
        for number in range(3):
            handler.handle(make_batch("shop.t", [{"id": number, "name": "x"}], key="id"))
            end = time.monotonic() + _MERGE_SECONDS
            while any(table["waiting_rows"] for table in (handler.status() or {})["tables"]):
                if time.monotonic() > end:
                    raise TimeoutError("a row is not merged")
                time.sleep(0.05)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    main()
