"""Every metric of the worker, defined once: name, labels and help. docs/metrics.md is generated from it.

Also the Prometheus client's meters behind them, and the limit on values of the label `table`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import prometheus_client
from prometheus_client import Counter, Gauge
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.samples import Sample

_HELP = {
    "binlane_records_consumed_total{topic,partition}": "Records fetched from Kafka.",
    "binlane_records_finished_total{table}": "Records that all handlers of their table have finished.",
    "binlane_records_skipped_total{reason}": "Records that count as finished although no handler applied "
    "them; `reason` says why.",
    "binlane_handler_seconds{handler}": "Duration of one handler call with one batch.",
    "binlane_handler_failures_total{handler}": "Handler calls that raised an error.",
    "binlane_handler_passed_over_total{handler}": "Changes that a handler skipped, because its target's "
    "marks say that they were applied before.",
    "binlane_retries_total{table}": "Batches that were passed to their handlers again after a failure.",
    "binlane_dead_letters_total{table}": "Records written to the dead-letter topic.",
    "binlane_expectations_failed_total{table,rule}": "Records with a row that does not meet this rule of "
    "`expect`.",
    "binlane_transactions_cut_total{table}": "Batches that begin within a source transaction, although the "
    "table has `batch.transactions: whole`.",
    "binlane_unblocked_records_total{action}": "Records that were set aside by request: `skip` or "
    "`dead_letter`.",
    "binlane_tables_blocked": "Tables that stand still. Their batch failed and is retried, a change failed "
    "permanently, their target is down, or they are paused. Or they wait for such a table.",
    "binlane_tables_halted": "Tables with a change that failed permanently. They need a person.",
    "binlane_tables_target_down": "Tables that wait for a target or for the dead-letter topic. They "
    "continue by themselves.",
    "binlane_table_paused_seconds{pattern,handler,by}": "How long the tables of this pattern have "
    "been paused (`binlane pause`); `handler` is empty if all their handlers are.",
    "binlane_blocked_records": "Fetched records that more workers cannot help. They belong to tables that "
    "stand still, or they wait for room in lanes full of these.",
    "binlane_parked_records": "Records of tables that stand still, in files instead of in memory.",
    "binlane_parked_bytes": "Size of these files. `lanes.parked` limits it.",
    "binlane_parked_seconds": "How long the oldest parked record has been queued; 0 without one.",
    "binlane_parked_full{topic,partition}": "1 while the partition is paused because parked records take "
    "`lanes.parked` or cannot be written, else 0.",
    "binlane_table_state{table,state}": "1 for the table's state: idle, queued, running, retrying, "
    "paused or blocked.",
    "binlane_table_delay_seconds{table}": "Now minus the source time of the table's oldest unfinished "
    "change; 0 if all are finished.",
    "binlane_target_up{handler}": "0 while the handler's target is down and its tables wait, else 1. "
    "`__dead_letter__` is the dead-letter topic, `__schema_registry__` the schema registry.",
    "binlane_limit_waiting{handler}": "Tables (or shards) that wait because of the handler's `limit`.",
    "binlane_limit_wait_seconds_total{handler}": "Duration of these waits, counted when they end.",
    "binlane_lane_queued_records{lane}": "Records that are queued or running in the lane.",
    "binlane_lane_queued_bytes{lane}": "Bytes that are queued or running in the lane.",
    "binlane_lane_running_seconds{lane}": "How long the lane's current batch has been with its handlers; 0 "
    "if no batch is.",
    "binlane_lane_busy_seconds_total{lane}": "Time that the lane's processor spent on batches.",
    "binlane_lane_offers_total{lane,result}": "Deliveries with records for the lane: accepted as a whole "
    "(`queued`) or not at all (`refused`). A delivery is refused if one of its lanes has no room, and is "
    "offered again.",
    "binlane_lane_batches_total{lane,result}": "Batches that the lane's processor took, by result: "
    "`finished`, `given_back` (to be retried), `halted`, or `spread` over shards.",
    "binlane_lane_processes_ended_total": "Child processes of `lanes.processes` that have ended by "
    "themselves. Another one takes their place.",
    "binlane_lanes_fill_ratio": "How full the lanes are, 0 to 1: the records of the fullest lane or the "
    "bytes of all lanes, whichever is more.",
    "binlane_backpressure_seconds_total": "Time in which partitions were paused because the lanes were full.",
    "binlane_partition_paused{topic,partition}": "1 while the partition is paused, else 0.",
    "binlane_partition_blocked{topic,partition}": "1 while the partition is not read and one more worker "
    "would not help, else 0. Either blocked tables (see `binlane_blocked_records`) fill the lanes, or it is "
    "paused for another reason than full lanes.",
    "binlane_standstill_seconds{topic,partition}": "How long the partition has not been read although Kafka "
    "has more records, the lanes have room and nothing is paused; else 0.",
    "binlane_partition_error_seconds{topic,partition}": "How long Kafka has returned an error instead of the "
    "partition's records; 0 without an error.",
    "binlane_first_commit_missing_seconds{topic,partition}": "How long the partition's records have waited "
    "because Kafka has not accepted the first commit, of the start offset; 0 after it has.",
    "binlane_head_stuck_seconds{topic,partition}": "How long the partition's first unfinished record has "
    "been the first; 0 until this reaches `stuck_after`, and while its table is paused.",
    "binlane_head_paused_seconds{topic,partition}": "The same if its table is paused, else 0. "
    "It begins at `stuck_after`, or after 5 minutes if that is longer.",
    "binlane_ahead_records{topic,partition}": "Records that were fetched with or after the first unfinished "
    "record. `max_ahead` limits them.",
    "binlane_max_ahead_reached{topic,partition}": "1 while the partition is paused because of `max_ahead`, "
    "else 0.",
    "binlane_position{topic,partition}": "The next offset to fetch.",
    "binlane_committed{topic,partition}": "The committed offset: the next offset to read after a restart.",
    "binlane_unfinished_records{topic,partition}": "Fetched records that are not finished.",
    "binlane_unread_records{topic,partition}": "Records between the next offset to fetch and the partition's "
    "end.",
    "binlane_lag_records{topic,partition}": "Records between the committed offset and the partition's end.",
    "binlane_delay_seconds{topic,partition}": "Now minus the source time of the oldest unfinished change; 0 "
    "if all are finished.",
    "binlane_last_source_timestamp_seconds{topic,partition}": "Source time of the newest fetched change, in "
    "seconds since 1970.",
    "binlane_kafka_up": "1 while a broker can be reached, else 0. Updated every 10 seconds "
    "(`statistics.interval.ms`).",
    "binlane_kafka_errors_total{code}": "Errors that the Kafka client reported, including repeated ones; "
    "`code` is librdkafka's name.",
    "binlane_membership_unconfirmed_seconds": "How long batches have waited because the group's coordinator "
    "accepts no commit from this worker; 0 if no batch waits for this.",
    "binlane_commits_total{store,result}": "Commits to a checkpoint store; `result` is success or failure.",
    "binlane_last_commit_timestamp_seconds{store}": "Time of the store's last successful commit, in seconds "
    "since 1970. Without work, there are no commits.",
    "binlane_rebalances_total{kind}": "Rebalances; `kind` is assign, revoke or lost.",
    "binlane_reloads_total{result}": "Changed configuration files; `result` is success (applied) or refused.",
    "binlane_last_reload_successful": "0 if the current configuration file was refused, else 1.",
    "binlane_schemas_rebuilt_total": "Schemas of the registry that were parsed again, because the needed "
    "schemas exceed `schema_registry.max_memory`.",
    "binlane_spark_waiting_rows{table}": "Received rows that are durable and in the table's view, but not "
    "yet in the Spark table.",
    "binlane_spark_waiting_seconds{table}": "How long the oldest of these rows has waited; 0 if no row "
    "waits.",
    "binlane_spark_merge_seconds": "Duration of one merge into one Spark table.",
    "binlane_spark_merges_total{result}": "Merges into Spark tables; `result` is success or failure.",
    "binlane_spark_up{handler}": "1 while the handler's Spark answers, else 0, also while it starts.",
    "binlane_log_events_total{level}": "Events of the worker's log at `logging.level` or above, including "
    "events whose lines were left out.",
    "binlane_log_lines_left_out_total{event}": "Log lines left out because the same event occurred too often "
    "within a minute.",
    "binlane_spans_exported_total": "Spans that the collector of `tracing` has accepted.",
    "binlane_spans_dropped_total{reason}": "Spans that reach no collector: `export_failed`, or `queue_full` "
    "before. `too_many` counts records whose traces were not continued.",
    "binlane_drain_seconds": "Estimated duration of a drain that begins now: until the longest running batch "
    "ends, by the table's earlier batches.",
    "binlane_drain_repeated_records{topic,partition}": "Finished records for which the last commit has no "
    "room. A worker that starts without this one's checkpoint folder repeats them.",
    "binlane_info{version,group}": "Always 1. The labels contain the version and `kafka.group_id`.",
}
"""`name{labels}` -> help, in the order of the documentation."""

_HISTOGRAMS = frozenset(("binlane_handler_seconds", "binlane_spark_merge_seconds"))
_BY_HANDLERS = frozenset(
    (
        "binlane_handler_passed_over_total",
        "binlane_spark_waiting_rows",
        "binlane_spark_waiting_seconds",
        "binlane_spark_merge_seconds",
        "binlane_spark_merges_total",
        "binlane_spark_up",
    )
)


class MetricDefinition(NamedTuple):
    name: str
    """The name in Prometheus: a counter ends with `_total`."""
    labels: tuple[str, ...]
    help: str

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram", "info"]:
        if self.name in _HISTOGRAMS:
            return "histogram"
        if self.name.endswith("_total"):
            return "counter"
        return "info" if self.name.endswith("_info") else "gauge"

    @property
    def by(self) -> Literal["worker", "handler"]:
        """Who reports it. A handler's metric appears with its first value."""
        return "handler" if self.name in _BY_HANDLERS else "worker"

    @property
    def family(self) -> str:
        """The name from which the client library builds the sample names."""
        return self.name.removesuffix("_total").removesuffix("_info")


def _defined(key: str, text: str) -> MetricDefinition:
    name, _, labels = key.removesuffix("}").partition("{")
    return MetricDefinition(name, tuple(labels.split(",")) if labels else (), text)


DEFINITIONS = tuple(_defined(key, text) for key, text in _HELP.items())
_BY_NAME = {entry.name: entry for entry in DEFINITIONS}


def definition(name: str) -> MetricDefinition:
    """Return the definition of a metric by its full name. Raises KeyError if it is not defined."""
    return _BY_NAME[name]


BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Inclusive upper bounds of a histogram's buckets, in seconds. One more bucket counts longer calls."""

Meter = Counter | Gauge | prometheus_client.Histogram
MAX_TABLE_LABELS = 1_000
OTHER_TABLES = "__other__"
Combine = Callable[[Iterable[float]], float]


def meter(name: str) -> Meter:
    """Create a meter that counts or measures events as they happen. It belongs to no registry."""
    entry = definition(name)
    if entry.kind == "histogram":
        return prometheus_client.Histogram(
            entry.family, entry.help, entry.labels, registry=None, buckets=BOUNDS
        )
    return (Counter if entry.kind == "counter" else Gauge)(
        entry.family, entry.help, entry.labels, registry=None
    )


def family(name: str, *values: tuple[Sequence[str], float | None]) -> CounterMetricFamily | GaugeMetricFamily:
    """Create a family for values that are kept elsewhere, for one scrape. `values`: each with its labels.
    Unknown values (None) have no sample, because 0 would be wrong."""
    entry = definition(name)
    kind = CounterMetricFamily if entry.kind == "counter" else GaugeMetricFamily
    made = kind(entry.family, entry.help, labels=entry.labels)
    for labels, value in values:
        if value is not None:
            made.add_metric([*labels], value)
    return made


class TableLabels:
    """Limits the values of the label `table` across all metrics that have it.

    The first `limit` tables have their own values. If there are more, the last of these joins the rest, so
    that `__other__` counts towards the limit too."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: set[str] = set()
        self._last = ""
        self._over = False
        self._lock = threading.Lock()  # guards all fields above; membership may be read without it

    def families(self, meters: Iterable[Meter]) -> Iterator[Metric]:
        """Yield the meters' families, folded, without the library's `_created` series, which nobody needs."""
        for each in meters:
            for found in each.collect():
                found.samples = [one for one in found.samples if not one.name.endswith("_created")]
                if isinstance(each, Counter) and all(one.labels.keys() == {"table"} for one in found.samples):
                    found.samples = self.fold(found.samples)
                yield found

    def label(self, table: str) -> str:
        if table in self._names:
            return table
        with self._lock:
            if table not in self._names:
                if len(self._names) >= self._limit:
                    self._over = True
                    return OTHER_TABLES
                self._names.add(table)
                self._last = table
        return table

    def fold(self, samples: Sequence[Sample], combine: Combine = sum) -> list[Sample]:
        """Combine the samples of all tables without their own value into one."""
        with self._lock:
            rest = {OTHER_TABLES, self._last} if self._over else {OTHER_TABLES}
        kept = [sample for sample in samples if sample.labels["table"] not in rest]
        folded = [sample for sample in samples if sample.labels["table"] in rest]
        if folded:
            value = combine(sample.value for sample in folded)
            kept.append(Sample(folded[0].name, {**folded[0].labels, "table": OTHER_TABLES}, value))
        return kept
