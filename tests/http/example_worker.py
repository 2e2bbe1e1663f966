"""A worker's status as it looks in real life, for any moment: steady tables, a hot one, a stuck one."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec

from worker.configuration.shown import Setting
from worker.http.watch import Sources
from worker.observing.overview.figures import lag_of
from worker.observing.overview.timeline import History, Pulse, TableHours, Timeline
from worker.observing.status import (
    CheckpointStatus,
    LaneStatus,
    Pace,
    PartitionStatus,
    TableState,
    TableStatus,
    TargetStatus,
    WorkerStatus,
)

__all__ = ["ERROR", "PagedWorker", "pulse_of", "status_at"]

ERROR = (
    "handler spark: [DELTA_CONCURRENT_APPEND] Files were added to the root of the table by a concurrent "
    "update; 10 attempts used up, on_failure: halt <b>not bold</b>"
)
_FULL_LANE = 3
_SHOP = (
    ("orders", 900),
    ("order_items", 2_600),
    ("payments", 700),
    ("stock", 1_900),
    ("customers", 60),
    ("carts", 410),
    ("shipments", 35),
    ("prices_with_a_rather_long_name_for_a_table", 4),
)


def status_at(
    seconds: float, *, shards: int = 6, lanes: int = 16, partitions: int = 12, waiting: int = 0
) -> WorkerStatus:
    """The status `seconds` after the start, with `8 * shards` tables and `waiting` Spark tables."""
    tables = []
    for shard in range(shards):
        for number, (name, rate) in enumerate(_SHOP):
            state: TableState = ("running", "queued", "idle", "idle")[(int(seconds) + number + shard) % 4]
            error, attempt, failed = None, 0, 0
            if shard == 0 and name == "payments":
                state, error, failed = "blocked", ERROR, 10
            if shard == 1 and name == "stock":
                state, attempt, failed = "retrying", 3, 3
                error = "handler mirror: connection to db.internal:5432 refused"
            tables.append(
                TableStatus(
                    table=f"shop_{shard:02d}.{name}",
                    lane=(shard * 7 + number * 3) % lanes,
                    finished_records=0 if state == "blocked" else int(seconds * rate / (shard + 1)),
                    failed_batches=failed,
                    state=state,
                    error=error,
                    delay_seconds=None if state == "idle" else 0.4 + number + (310 if error else 0),
                    queued_records=0 if state == "idle" else rate // (shard + 1),
                    attempt=attempt,
                )
            )
    return WorkerStatus(
        name="shop-replica",
        state="running",
        version="0.1.0",
        uptime_seconds=seconds,
        partitions=[_partition(seconds, number) for number in range(partitions)],
        lanes=[_lane(seconds, number) for number in range(lanes)],
        tables=tables,
        checkpoint=CheckpointStatus(last_success="2026-11-21T10:00:05Z", last_error=None),
        lane_max_records=10_000,
        max_bytes=256 * 2**20,
        handlers=[_spark(waiting)] if waiting else [],
    )


def _spark(waiting: int) -> dict[str, Any]:
    tables = [
        {
            "table": f"shop_{number:02d}.orders",
            "waiting_rows": 1_500 * number,
            "waiting_bytes": 96_000 * number,
            "waiting_seconds": 1.5 * number if number else None,
            "merged_source_time_ms": 1_795_255_205_000 - 2_000 * number,
            "error": ERROR if number == 1 else None,
        }
        for number in range(waiting)
    ]
    place = {"master": "local[2]", "version": "4.2.0", "ui": "http://127.0.0.1:4040"}
    return {"handler": "replica", "type": "spark", "spark": place, "tables": tables}


def _partition(seconds: float, number: int) -> PartitionStatus:
    fetched = int(seconds * 1_100) + 5_000_000 * (number + 1)
    behind = (number * 7_919) % 23_000
    return PartitionStatus(
        topic="cdc.shop",
        partition=number,
        position=fetched,
        committed=fetched - behind,
        unfinished=behind // 3,
        finished_ahead=behind - behind // 3,
        lag=behind + 40,
        paused=number == 7,
        delay_seconds=behind / 900 if behind else None,
    )


def _lane(seconds: float, number: int) -> LaneStatus:
    fill = (number * 37 + int(seconds) * (number % 5)) % 100
    busy = number % 4 != 3
    return LaneStatus(
        lane=number,
        queued_records=fill * 100,
        queued_bytes=fill * 48_000,
        running_table=f"shop_{number % 6:02d}.{_SHOP[number % 8][0]}" if busy else None,
        running_seconds=0.1 * fill if busy else None,
        busy_seconds=seconds * (number % 10) / 10,
    )


def pulse_of(status: WorkerStatus) -> Pulse:
    """What a history is told of such a worker."""
    return Pulse(
        status.finished_records or 0,
        lag_of(status),
        max((each.delay_seconds or 0.0 for each in status.partitions), default=None),
        frozenset(table.table for table in status.tables if table.state == "blocked"),
    )


class PagedWorker:
    """A worker with an hour behind it, for the page: a blocked table, windows of partitions, a timeline."""

    def __init__(self) -> None:
        self.shards = 6
        self.seconds = 3_700.0
        self.healed = False
        self.error = ERROR
        self.topic = "cdc.shop"
        self.names: dict[str, str] = {}
        """Names that tables have in place of their own."""
        self.answers = threading.Event()
        self.answers.set()
        self.set_back = 0.0
        """By how many seconds its clock was set back."""
        self.timeline = Timeline(str, clock=time.time)
        self.history = History(
            lambda: pulse_of(self.status()),
            lambda: (int(self.seconds / 5), 0),
            self.timeline,
            clock=lambda: self.seconds,
            wall_clock=lambda: time.time() - 3_700 + self.seconds - self.set_back,
        )
        self.table_hours = TableHours(lambda: self.seconds, lambda: time.time() - 3_700 + self.seconds)
        self.cause = False
        """Whether lane 3 has no room, because of `shop_01.stock`, which is retried."""
        self.seconds = 0.0
        self.history._due = self.table_hours._due = 0.0
        while self.seconds < 3_700:
            self.history.look()
            self.table_hours.look(lambda: self.status().tables)
            self.seconds += 5
        self.timeline.note("info", {"event": "partition_assigned", "partition": "cdc.shop[0]"})
        self.sources = Sources(
            self.status,
            self.history,
            self.timeline,
            settings=lambda: [
                Setting("kafka.group_id", "shop", given=True),
                Setting("kafka.properties.sasl.password", "***", given=True),
                Setting("lanes.count", "16", given=False),
            ],
            config=lambda: "/etc/binlane/shop.yaml",
            table_points=self.table_hours.points,
        )

    def status(self) -> WorkerStatus:
        self.answers.wait(30)
        self.seconds += 1
        status = status_at(self.seconds, shards=self.shards)
        tables = [msgspec.structs.replace(each, **self._table(each)) for each in status.tables]
        partitions = [
            msgspec.structs.replace(
                each,
                topic=self.topic,
                committed=20_000,
                first_unfinished=20_500,
                position=25_000,
                finished_ahead=2_000,
                window=[0.0] + [0.5] * 9,
                unread=1_000 * each.partition + 7_000,
                lag=0 if self.healed else each.lag,
                paused=False,
            )
            for each in status.partitions
        ]
        lanes = [
            msgspec.structs.replace(
                each,
                running_table=next(iter(self.names.values()))
                if self.names and each.running_table
                else each.running_table,
            )
            for each in status.lanes
        ]
        if self.cause:
            pace = Pace(rate=24.0, lag_growth=310.0, waiting=1.0)
            status = msgspec.structs.replace(status, waiting_seconds=290.0, pace=pace)
            partitions = [
                msgspec.structs.replace(each, paused=True, paused_by="lanes", repeated=4_000)
                for each in partitions
            ]
            lanes = [msgspec.structs.replace(each, waited_for=each.lane == _FULL_LANE) for each in lanes]
        targets = [TargetStatus(handler="__dead_letter__", up=True)]
        return msgspec.structs.replace(
            status, tables=tables, partitions=partitions, lanes=lanes, targets=targets
        )

    def _table(self, table: TableStatus) -> dict[str, Any]:
        name = self.names.get(table.table, table.table)
        if self.healed:
            return {"state": "idle", "error": None, "table": name, "delay_seconds": None}
        if self.cause and table.state == "retrying":
            filled = {"lane_records": 9_964, "standing_seconds": 300.0, "held_seconds": 305.0}
            return {"table": name, "lane": _FULL_LANE, "calls": {"mirror": (57, 0.031, 2.5)}, **filled}
        if table.state != "blocked":
            return {"table": name}
        stands = {"halted": True, "topic": "cdc.shop", "partition": 3, "offset": 4711}
        return {"table": name, "error": self.error, **stands}
