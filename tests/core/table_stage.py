"""A router and lanes of which a test does the fetcher's and the processors' part; few tables are kept."""

from __future__ import annotations

from building import Clock, Scripted, assignment, configuration, record
from lane_building import lanes_of
from row_stepping import never

from worker.attempts.circuit import BoundHandler
from worker.fetching.routing import Router
from worker.formats.interface import Record
from worker.lanes.snapshot import snapshot
from worker.observing.metric_definitions import TableLabels
from worker.observing.metrics import Metrics
from worker.observing.status import CheckpointStatus, Look, WorkerStatus
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.sharding import spread
from worker.units.table_book import TableBook
from worker.units.work import Work

__all__ = ["KEEP", "TableStage"]

KEEP = 3


class TableStage:
    """A router, tables of which few are kept, and lanes; batches are taken and ended by hand."""

    def __init__(self, *, order_by: str = "table", labels: int = 4, keep: int = KEEP) -> None:
        self.clock = Clock()
        self.metrics = Metrics()
        self.metrics.tables = TableLabels(labels)
        self.lanes = lanes_of(self.clock, count=2)
        rules = configuration({"match": "shop.*"}, lanes={"count": 2, "order_by": order_by})
        bound = [BoundHandler("h0", (Scripted(),))]
        self.book = TableBook(rules, lambda _: bound, self.metrics.tables.label, keep=keep, clock=self.clock)
        self.router = Router(self.book, self.metrics, on_undecodable="halt")
        self.of: Assignment = assignment()
        self.next = 0
        self.metrics.attach(self.look)

    def poll(self, *records: Record) -> None:
        """As the fetcher does it."""
        self.clock.now += 1.0
        delivery = Delivery()
        self.router.let_go(self.lanes.at_rest)
        if records:
            self.router.route(self.of, list(records), delivery)
        self.next += len(records)
        if delivery.parts:
            assert self.lanes.offer(delivery)

    def one_each(self, *names: str, database: str = "shop") -> None:
        self.poll(*(record(self.next + n, name, database) for n, name in enumerate(names)))

    def take(self, lane: int = 0) -> Work | None:
        """The next batch to be handled, if one is ready; what comes before it is spread."""
        while any(each.ready for each in self.lanes.lanes):
            work = self.lanes.take(lane)
            assert work is not None
            assert work.decode(never) is None
            if not work.spreads:
                return work
            result = spread(work)
            self.counted(work, lane, result.records)
            self.lanes.spread(lane, work, result)
        return None

    def counted(self, work: Work, lane: int, records: int) -> None:
        work.unit.finished_records += records
        self.lanes.lanes[lane].finished_records += records

    def finish(self, work: Work, lane: int = 0) -> None:
        self.counted(work, lane, work.finish_records(work.records))
        self.lanes.finish(lane, work)

    def finish_all(self) -> None:
        while (work := self.take()) is not None:
            self.finish(work)

    def look(self) -> Look:
        units, gone = self.book.counted()
        seen = snapshot(self.lanes.seen, units, 1_000)
        status = WorkerStatus(
            name="shop",
            state="running",
            version="1",
            uptime_seconds=1.0,
            partitions=[],
            lanes=[],
            tables=[],
            checkpoint=CheckpointStatus(last_success=None, last_error=None),
        )
        return Look(status, [*gone.items(), *seen.finished], seen.standing.tables)

    def finished(self) -> dict[str, float]:
        """What Prometheus gets: label -> records finished."""
        families = self.metrics.registry.collect()
        family = next(each for each in families if each.name == "binlane_records_finished")
        return {sample.labels["table"]: sample.value for sample in family.samples}
