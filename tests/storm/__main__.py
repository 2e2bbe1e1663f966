"""`python -m storm` in `tests`: one storm, and its table. `make storm` calls it."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from servers.postgres_server import PostgresServer

from storm.faults import FAKE_TIME
from storm.plan import KINDS, ONE_BROKER
from storm.rig import Scale
from storm.storming import storm


def main() -> int:
    parser = argparse.ArgumentParser(prog="make storm", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--brokers", type=int, default=3)
    parser.add_argument("--rate", type=float, help="records a second (default: 200; 1,000 if long)")
    parser.add_argument("--long", action="store_true", help="few faults, much to do, and what grows is drawn")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--folder", type=Path, help="for logs and data (default: a temporary one)")
    given = parser.parse_args()
    # Everything that was started is ended in any case; in the background SIGINT is ignored unless one asks.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = given.folder or Path(tempfile.mkdtemp(prefix="binlane-storm-"))
    share = given.minutes / (235 if given.long else 10)  # a fault a minute, or 235 in ten
    kinds = {kind: max(1, round(KINDS[kind][0] * share)) for kind in KINDS}
    if given.brokers == 1:
        kinds = {kind: count for kind, count in kinds.items() if kind in ONE_BROKER}
    if given.no_spark:
        del kinds["Spark killed"]
    if FAKE_TIME is None:
        del kinds["clock jumps"]
        print("No clock jumps: they need libfaketime (apt-get install faketime).")
    if os.geteuid():
        print("A full disk is a limit of the size of all files: only root can have a small disk.")
    scale = Scale(brokers=given.brokers, rate=given.rate or 200.0, spark=not given.no_spark, seed=given.seed)
    if given.long:
        scale = replace(scale, rate=given.rate or 1000.0, tables=34, spare=True, max_wait="500ms")
    print(
        f"seed {given.seed}, {given.minutes:g} minutes, {sum(kinds.values())} faults, in {folder}", flush=True
    )
    database = PostgresServer()
    try:
        database.start()
        url = database.new_database("storm")
        report = storm(
            folder, scale, kinds, given.minutes * 60, database=database, url=url, say=say, sampled=given.long
        )
    finally:
        database.close()
    print(report.table())
    for each in report.broken:
        print(f"BROKEN  {each}")
    if not report.broken and not given.folder and not given.long:
        shutil.rmtree(folder)
    return 1 if report.broken else 0


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
