"""The metrics that are read from the worker's status when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

from worker.observing.metric_definitions import definition
from worker.observing.status import LaneStatus, Look, PartitionStatus, TableStatus, WorkerStatus
from worker.observing.table_labels import TableLabels

__all__ = ["of_status"]


def of_status(look: Look, labels: TableLabels) -> Iterator[Metric]:
    """Families of what the worker shows. What is not known yet (None) has no sample: 0 would be a claim."""
    status = look.status
    yield from _of_tables(look, labels)
    yield from _of_lanes(status.lanes)
    yield from _of_bounds(status)
    yield from _of_partitions(status.partitions, held_up=look.held_up)
    up = _gauge("binlane_target_up")
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
    family = _counter("binlane_records_finished_total")
    for label, records in finished.items():
        family.add_metric([label], records)
    family.samples = labels.fold(family.samples)
    yield family
    # A table that only a statement speaks of takes no label.
    known = {table for table, _ in look.finished}
    yield from _of_table_states([table for table in look.status.tables if table.table in known], labels)
    yield _single("binlane_tables_blocked", look.blocked)
    yield _single("binlane_tables_halted", look.halted)
    yield _single("binlane_tables_target_down", look.blocked - look.halted)
    yield _single("binlane_blocked_records", look.blocked_records)


def _of_table_states(tables: Sequence[TableStatus], labels: TableLabels) -> Iterator[Metric]:
    states = _gauge("binlane_table_state")
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
    delay = _gauge("binlane_table_delay_seconds")
    delay.samples = labels.fold(
        [Sample(delay.name, {"table": label}, seconds) for label, seconds in late.items()], max
    )
    yield delay


def _of_lanes(lanes: Sequence[LaneStatus]) -> Iterator[Metric]:
    records = _gauge("binlane_lane_queued_records")
    size = _gauge("binlane_lane_queued_bytes")
    running = _gauge("binlane_lane_running_seconds")
    busy = _counter("binlane_lane_busy_seconds_total")
    offers = _counter("binlane_lane_offers_total")
    batches = _counter("binlane_lane_batches_total")
    fill = _gauge("binlane_lane_fill_ratio")
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


def _of_partitions(partitions: Sequence[PartitionStatus], *, held_up: bool) -> Iterator[Metric]:
    paused = _gauge("binlane_partition_paused")
    blocked = _gauge("binlane_partition_blocked")
    standstill = _gauge("binlane_standstill_seconds")
    error = _gauge("binlane_partition_error_seconds")
    first_commit = _gauge("binlane_first_commit_missing_seconds")
    position = _gauge("binlane_position")
    ahead = _gauge("binlane_ahead_records")
    beyond = _gauge("binlane_max_ahead_reached")
    stuck = _gauge("binlane_head_stuck_seconds")
    committed = _gauge("binlane_committed")
    unfinished = _gauge("binlane_unfinished_records")
    unread = _gauge("binlane_unread_records")
    lag = _gauge("binlane_lag_records")
    delay = _gauge("binlane_delay_seconds")
    source = _gauge("binlane_last_source_timestamp_seconds")
    for partition in partitions:
        label = [partition.topic, str(partition.partition)]
        paused.add_metric(label, partition.paused)
        blocked.add_metric(label, held_up or partition.paused_by not in (None, "lanes"))
        standstill.add_metric(label, partition.standstill_seconds)
        error.add_metric(label, 0.0 if partition.error is None else partition.error.seconds)
        first_commit.add_metric(label, partition.first_commit_seconds)
        unfinished.add_metric(label, partition.unfinished)
        ahead.add_metric(label, partition.ahead)
        beyond.add_metric(label, partition.paused_by == "max_ahead")
        stuck.add_metric(label, 0.0 if partition.stuck is None else partition.stuck.seconds)
        oldest = partition.delay_seconds
        if oldest is None and partition.unfinished == 0:
            oldest = 0.0
        happened = partition.source_time_ms
        for family, value in (
            (position, partition.position),
            (committed, partition.committed),
            (unread, partition.unread),
            (lag, partition.lag),
            (delay, oldest),
            (source, None if happened is None else happened / 1000),
        ):
            if value is not None:
                family.add_metric(label, value)
    yield from (paused, blocked, standstill, error, first_commit, ahead, beyond)
    yield from (stuck, position, committed, unfinished)
    yield from (unread, lag, delay, source)


def _single(name: str, value: float) -> Metric:
    family = _gauge(name)
    family.add_metric([], value)
    return family


def _counter(name: str) -> CounterMetricFamily:
    entry = definition(name)
    return CounterMetricFamily(entry.family, entry.help, labels=entry.labels)


def _gauge(name: str) -> GaugeMetricFamily:
    entry = definition(name)
    return GaugeMetricFamily(entry.family, entry.help, labels=entry.labels)
