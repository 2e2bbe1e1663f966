"""Java's class data sharing for the tests' Sparks: `python tests/class_archive.py` makes the archive once.

With it a Spark starts in half the time and with 20 s of CPU less until it is warm; the tests start some
thirty. Where it is missing, or of another Java, all runs as without
(https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html).
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import pyspark
import structlog
from integration.process import eventually
from spark_sessions import ARCHIVE, LIGHT, PLAIN_JAVA

from handlers.spark import SparkHandler
from handlers.spark.runtime import java_process
from handlers.testing import make_batch, opened


def main() -> int:
    if ARCHIVE.exists():
        return 0
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    java_process.JAVA_SECONDS = 300.0  # Java writes the archive as it ends
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    print(f"Remembering the classes of Spark {pyspark.__version__} for the tests ...", flush=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder, "spark.jsa")
        run(Path(folder), f"{PLAIN_JAVA} -XX:ArchiveClassesAtExit={made} -Xlog:disable")
        if made.exists():
            made.rename(ARCHIVE)
        else:
            print("Java made no archive of them: the tests go on without", file=sys.stderr)
    return 0


def run(folder: Path, java_options: str) -> None:
    """A worker's handler with rows that become a table, and change it."""
    conf = {**LIGHT["conf"], "spark.driver.extraJavaOptions": java_options}
    handler = SparkHandler(mode="replica", merge={"max_age": "0s", "at_close": "2m"})

    def all_is_merged() -> bool:
        return not any(table["waiting_rows"] for table in (handler.status() or {})["tables"])

    with opened(handler, folder, spark={**LIGHT, "conf": conf}):
        for number in range(3):
            handler.handle(make_batch("shop.t", [{"id": number, "name": "x"}], key="id"))
            eventually(all_is_merged, within=300, what="the row is merged", every=0.05)


if __name__ == "__main__":
    sys.exit(main())
