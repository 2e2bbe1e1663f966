"""The metrics that are read from the worker's status at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from worker.observing.meters import TableLabels, family
from worker.observing.status import LaneStatus, Look, PartitionStatus, TableStatus, WorkerStatus


def of_status(look: Look, labels: TableLabels) -> Iterator[Metric]:
    """Yield the families of a status. Unknown values (None) have no sample, because 0 would be wrong."""
    status = look.status
    yield from _of_tables(look, labels)
    yield from _of_lanes(status.lanes)
    yield from _of_bounds(status)
    yield from _of_partitions(status.partitions, held_up=look.held_up)
    up = family("binlane_target_up")
    for target in status.targets:
        up.add_metric([target.handler], target.up)
    yield up
    if status.kafka is not None:
        if status.kafka.up is not None:
            yield _single("binlane_kafka_up", status.kafka.up)
        yield _single("binlane_poll_idle_seconds", status.kafka.quiet_seconds)
        yield _single("binlane_membership_unconfirmed_seconds", status.kafka.unconfirmed_seconds)


def _of_tables(look: Look, labels: TableLabels) -> Iterator[Metric]:
    finished: dict[str, int] = {}
    for table, records in look.finished:
        label = labels.label(table)
        finished[label] = finished.get(label, 0) + records
    counter = family("binlane_records_finished_total")
    for label, records in finished.items():
        counter.add_metric([label], records)
    counter.samples = labels.fold(counter.samples)
    yield counter
    # A table without records, known only from a statement, has no label.
    known = {table for table, _ in look.finished}
    yield from _of_table_states([table for table in look.status.tables if table.table in known], labels)
    yield _single("binlane_tables_blocked", look.blocked)
    yield _single("binlane_tables_halted", look.halted)
    yield _single("binlane_tables_target_down", look.blocked - look.halted)
    yield _single("binlane_blocked_records", look.blocked_records)


def _of_table_states(tables: Sequence[TableStatus], labels: TableLabels) -> Iterator[Metric]:
    states = family("binlane_table_state")
    found: dict[tuple[str, str], int] = {}
    late: dict[str, float] = {}
    for table in tables:
        label = labels.label(table.table)
        found[table.state, label] = found.get((table.state, label), 0) + 1
        late[label] = max(late.get(label, 0.0), table.delay_seconds or 0.0)
    for state in dict.fromkeys(state for state, _ in found):
        own = [
            Sample(states.name, {"table": label, "state": state}, count)
            for (each, label), count in found.items()
            if each == state
        ]
        states.samples += labels.fold(own)
    yield states
    delay = family("binlane_table_delay_seconds")
    delay.samples = labels.fold(
        [Sample(delay.name, {"table": label}, seconds) for label, seconds in late.items()], max
    )
    yield delay


def _of_lanes(lanes: Sequence[LaneStatus]) -> Iterator[Metric]:
    records = family("binlane_lane_queued_records")
    size = family("binlane_lane_queued_bytes")
    running = family("binlane_lane_running_seconds")
    busy = family("binlane_lane_busy_seconds_total")
    offers = family("binlane_lane_offers_total")
    batches = family("binlane_lane_batches_total")
    fill = family("binlane_lane_fill_ratio")
    for lane in lanes:
        label = [str(lane.lane)]
        records.add_metric(label, lane.queued_records)
        size.add_metric(label, lane.queued_bytes)
        running.add_metric(label, lane.running_seconds or 0.0)
        busy.add_metric(label, lane.busy_seconds)
        for result, count in lane.offers.items():
            offers.add_metric([*label, result], count)
        for result, count in lane.batches.items():
            batches.add_metric([*label, result], count)
        fill.add_metric([*label, "records"], lane.records_fill)
        fill.add_metric([*label, "bytes"], lane.bytes_fill)
    yield from (records, size, running, busy, offers, batches, fill)


def _of_bounds(status: WorkerStatus) -> Iterator[Metric]:
    records, size = status.lane_max_records, status.max_bytes
    if not records or not size:
        return
    yield _single("binlane_lane_max_records", records)
    yield _single("binlane_lanes_max_bytes", size)
    fullest = max((lane.queued_records for lane in status.lanes), default=0) / records
    held = sum(lane.queued_bytes for lane in status.lanes) / size
    yield _single("binlane_lanes_fill_ratio", max(fullest, held))


def _oldest(partition: PartitionStatus) -> float | None:
    return 0.0 if partition.delay_seconds is None and not partition.unfinished else partition.delay_seconds


_OF_PARTITION: Mapping[str, Callable[[PartitionStatus], float | None]] = {
    "binlane_partition_paused": lambda each: each.paused,
    "binlane_standstill_seconds": lambda each: each.standstill_seconds,
    "binlane_partition_error_seconds": lambda each: 0.0 if each.error is None else each.error.seconds,
    "binlane_first_commit_missing_seconds": lambda each: each.first_commit_seconds,
    "binlane_ahead_records": lambda each: each.ahead,
    "binlane_max_ahead_reached": lambda each: each.paused_by == "max_ahead",
    "binlane_head_stuck_seconds": lambda each: 0.0 if each.stuck is None else each.stuck.seconds,
    "binlane_position": lambda each: each.position,
    "binlane_committed": lambda each: each.committed,
    "binlane_unfinished_records": lambda each: each.unfinished,
    "binlane_unread_records": lambda each: each.unread,
    "binlane_lag_records": lambda each: each.lag,
    "binlane_delay_seconds": _oldest,
    "binlane_last_source_timestamp_seconds": lambda each: (
        None if each.source_time_ms is None else each.source_time_ms / 1000
    ),
}


def _of_partitions(partitions: Sequence[PartitionStatus], *, held_up: bool) -> Iterator[Metric]:
    blocked = family("binlane_partition_blocked")
    for each in partitions:
        is_blocked = held_up or each.paused_by not in (None, "lanes")
        blocked.add_metric([each.topic, str(each.partition)], is_blocked)
    yield blocked
    for name, value_of in _OF_PARTITION.items():
        gauge = family(name)
        for each in partitions:
            value = value_of(each)
            if value is not None:
                gauge.add_metric([each.topic, str(each.partition)], value)
        yield gauge


def _single(name: str, value: float) -> Metric:
    gauge = family(name)
    gauge.add_metric([], value)
    return gauge
