"""`PYTHONPATH=tests python -m tests.model --minutes 10`; `--seed 7 --target sqlite` repeats what failed."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from servers.clickhouse_server import ClickHouseServer
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from servers.redis_node import RedisNode
from servers.search_node import SearchNode
from spark_sessions import SparkKeeper

from worker.local.broker import Broker

from .checking import check
from .drawing import TOLD, WRITERS, Drawing
from .targets.opening import TARGETS, opened_target

_SERVERS = {
    "postgres": PostgresServer,
    "mariadb": MariaDBServer,
    "redis_server": RedisNode,
    "clickhouse": ClickHouseServer,
    "search_node": SearchNode,
    "broker": Broker,
}
_EXAMPLES = 300
"""With each seed."""
_SLOW = (
    {"clickhouse": 30, "elasticsearch": 30, "duckdb": 60}
    | dict.fromkeys(("iceberg", "iceberg-history", "iceberg-changelog"), 20)
    | dict.fromkeys(("spark", "spark-small", "spark-history", "spark-changelog"), 2)
)
"""Target -> examples with each seed. Those of Spark are many histories each."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long to go on (default: 10)")
    parser.add_argument("--seed", type=int, help="the first one (default: any)")
    parser.add_argument("--target", action="append", choices=TARGETS, help="only these targets")
    parser.add_argument("--tool", action="append", choices=WRITERS, help="only what these tools write")
    parser.add_argument("--no-rules", action="store_true", help="without column rules")
    parser.add_argument("--stop", action="store_true", help="end with the first failure")
    asked = parser.parse_args()
    first = random.SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    broken, number = 0, first
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with ExitStack() as stack:
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=memory)))

        @cache
        def server(kind: str) -> Any:
            if kind == "spark_keeper":
                keeper = SparkKeeper(folder / "spark")
                stack.callback(keeper.stop)
                return keeper
            made = _SERVERS[kind]()
            stack.callback(made.close)
            made.start()
            return made

        targets = {
            name: stack.enter_context(opened_target(name, server, folder)) for name in asked.target or TARGETS
        }
        began = time.monotonic()
        until = began + 60 * asked.minutes
        while (number == first or time.monotonic() < until) and not (broken and asked.stop):
            for name, target in targets.items():
                drawing = Drawing(target, asked.tool or TOLD, not asked.no_rules)
                last = time.monotonic()
                try:
                    check(target, drawing, first=number, count=_SLOW.get(name, _EXAMPLES))
                except AssertionError as error:
                    broken += 1
                    after = f"found after {time.monotonic() - began:.1f} s"
                    print(f"seed {number}, target {name}, {after}: {error}", flush=True)
                print(f"{name}: {time.monotonic() - last:.1f} s", file=sys.stderr, flush=True)
            number += 1
    print(f"seeds {first} to {number - 1}, {len(targets)} targets: {broken} failures")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
