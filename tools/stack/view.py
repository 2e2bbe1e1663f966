"""Show a replica with its unmerged rows, every two seconds, until Ctrl-C.

    python tools/stack/view.py FOLDER [--once]

FOLDER is the table's: `.../lake/shop/orders`. The last rows are shown.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from decimal import Decimal
from pathlib import Path

from rich.console import Console
from rich.table import Table

from handlers.spark import SparkSection
from handlers.spark.read.current import current
from handlers.spark.read.view import NothingToSee
from handlers.spark.runtime.session import SharedSpark
from worker.observing import logs

_SECONDS = 2.0
_ROWS = 8
# For few rows: their plan is finished before its code would be compiled.
_CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def main(arguments: list[str]) -> int:
    """Return 0 after showing it, 1 if there is no such table."""
    logs.configure("warning")
    table, once = arguments[0].rstrip("/"), "--once" in arguments
    with tempfile.TemporaryDirectory(prefix="binlane-view-") as folder:
        section = SparkSection.model_validate({"driver_memory": "1g", "ui": False, "conf": _CONF})
        spark = SharedSpark(section, Path(folder), "view")
        try:
            stopped = threading.Event()
            _ = spark.session  # waits until it runs; Spark handles SIGINT itself, and queries then fail
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            while not stopped.is_set():
                if _show(spark, table) and once:
                    break
                stopped.wait(_SECONDS)
        except LookupError as fault:
            print(f"view.py: {fault}", file=sys.stderr)  # noqa: T201 - the answer
            return 1
        finally:
            spark.stop()
    return 0


def _show(spark: SharedSpark, table: str) -> bool:
    """Print the rows. Return False if none are visible: a statement of the source is not applied yet."""
    try:
        rows = sorted(current(spark.session, table).toArrow().to_pylist(), key=lambda row: -_number(row))
    except NothingToSee as fault:
        print(f"not yet: {fault}", flush=True)  # noqa: T201 - the answer
        return False
    shown = Table(title=f"{time.strftime('%H:%M:%S')} {Path(table).name}: {len(rows):,} rows")
    for column in rows[0] if rows else ():
        shown.add_column(column)
    for row in rows[:_ROWS]:
        shown.add_row(*map(str, row.values()))
    Console(highlight=False).print(shown)
    return True


def _number(row: dict[str, object]) -> float:
    """Return the value of the first column if it is a number, else 0."""
    first = next(iter(row.values()))
    return float(first) if isinstance(first, int | float | Decimal) else 0.0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
