"""FastStream with many workers: it keeps no order, and acknowledges records before they are handled.

Arguments are key=value, as those of Bench.java: bootstrap, topic, group, records, limit, threads, sleep. It
runs with the Python of an environment that has `faststream[confluent]`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker


async def main(options: dict[str, str]) -> None:
    wanted, seconds = int(options["records"]), int(options["sleep"]) / 1000
    broker = KafkaBroker(options["bootstrap"], logger=None)
    last: dict[str, int] = {}
    inside: dict[str, int] = {}
    told = {"first": 0.0, "last": 0.0, "records": 0, "cpu": 0.0, "slept": 0.0}
    faults = {"order": 0, "overlaps": 0, "peak": 0}
    done = asyncio.Event()

    @broker.subscriber(
        options["topic"],
        group_id=options["group"],
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK_FIRST,
        max_workers=int(options["threads"]),
    )
    async def handle(record: Any) -> None:
        if not told["first"]:
            told["first"], told["cpu"] = time.monotonic(), time.process_time()
        table, sequence = record["table"], int(record["id"])
        faults["order"] += sequence <= last.get(table, -1)
        last[table] = max(sequence, last.get(table, -1))
        inside[table] = inside.get(table, 0) + 1
        faults["overlaps"] += inside[table] > 1
        faults["peak"] = max(faults["peak"], sum(inside.values()))
        begun = time.monotonic()
        await asyncio.sleep(seconds)
        told["slept"] += time.monotonic() - begun
        inside[table] -= 1
        told["records"] += 1
        told["last"] = time.monotonic()
        if told["records"] == wanted:
            done.set()

    running = asyncio.create_task(FastStream(broker, logger=None).run())
    ok = True
    try:
        await asyncio.wait_for(done.wait(), int(options["limit"]))
    except TimeoutError:
        ok = False
    figures = {
        "progress": False,
        "records": told["records"],
        "seconds": told["last"] - told["first"],
        "cpu_seconds": time.process_time(),
        "cpu_at_first": told["cpu"],
        "rss_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "slept_seconds": told["slept"],
        "out_of_order": faults["order"],
        "overlaps": faults["overlaps"],
        "peak_parallel": faults["peak"],
        "ok": ok,
    }
    print(json.dumps(figures), flush=True)
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main(dict(argument.split("=", 1) for argument in sys.argv[1:])))
