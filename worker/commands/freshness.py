"""How far each Spark table has come, as a table that SQL can read."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from handlers.spark.read.facts import Facts
from handlers.spark.read.moment import Moment
from worker.commands.tables import facts_of_all
from worker.configuration import Configuration
from worker.verifying.spark_lakes import opened_lakes

_TIME = pa.timestamp("ms", tz="UTC")
_OFFSET = pa.struct([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
_COLUMNS = pa.schema(
    [
        *((name, pa.string()) for name in ("table", "handler", "mode", "place")),
        *(("source_time", _TIME), ("merged_source_time", _TIME), ("behind_seconds", pa.float64())),
        *((f"waiting_{name}", pa.int64()) for name in ("rows", "segments", "bytes", "statements")),
        *((name, pa.int64()) for name in ("rows", "files", "bytes", "version")),
        *(("offsets", pa.list_(_OFFSET)), ("problems", pa.list_(pa.string())), ("read_at", _TIME)),
    ]
)


def freshness(configuration: Configuration) -> Moment:
    """Read how far each table has come, at this moment. Raises like `opened_lakes`, and BrokenLog."""
    with opened_lakes(configuration) as lakes:
        facts = facts_of_all([(lake, found) for lake in lakes for found in lake.tables(lambda _: True)])
    rows = pa.Table.from_pylist([*map(_row, facts)], _COLUMNS)
    return Moment("SELECT * FROM binlane_facts", {"binlane_facts": rows})


def _row(facts: Facts) -> dict[str, Any]:
    newest, merged = facts.source_time_ms, facts.merged_source_time_ms
    offsets = [
        {"topic": topic, "partition": partition, "offset": offset}
        for topic, partitions in facts.offsets.items()
        for partition, offset in partitions.items()
    ]
    behind = None if newest is None or merged is None else (newest - merged) / 1000
    times = {"source_time": newest, "merged_source_time": merged, "behind_seconds": behind}
    return asdict(facts) | times | {"offsets": offsets, "read_at": datetime.now(UTC)}
