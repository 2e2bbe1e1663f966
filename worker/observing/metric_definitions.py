"""Every metric of the worker, told once: name, kind, labels and help; docs/metrics.md is made from it."""

from __future__ import annotations

from worker.observing.kafka_metric_definitions import KAFKA_DEFINITIONS
from worker.observing.metric_kinds import PARTITION, MetricDefinition

DEFINITIONS: tuple[MetricDefinition, ...] = (
    MetricDefinition(
        "binlane_records_consumed_total",
        "counter",
        PARTITION,
        "Records fetched from Kafka.",
    ),
    MetricDefinition(
        "binlane_records_finished_total",
        "counter",
        ("table",),
        "Records that all handlers of their table have finished with.",
    ),
    MetricDefinition(
        "binlane_records_skipped_total",
        "counter",
        ("reason",),
        "Records that count as finished although no handler applied them; the reason says why.",
    ),
    MetricDefinition(
        "binlane_handler_seconds",
        "histogram",
        ("handler",),
        "How long one call of a handler with one batch took.",
    ),
    MetricDefinition(
        "binlane_handler_failures_total",
        "counter",
        ("handler",),
        "Calls of a handler that raised.",
    ),
    MetricDefinition(
        "binlane_handler_passed_over_total",
        "counter",
        ("handler",),
        "Changes that a handler passed over, because its target's marks say that they were applied before.",
        "handler",
    ),
    MetricDefinition(
        "binlane_retries_total",
        "counter",
        ("table",),
        "Batches given to their handlers again after a failure.",
    ),
    MetricDefinition(
        "binlane_dead_letters_total",
        "counter",
        ("table",),
        "Records written to the dead-letter topic.",
    ),
    MetricDefinition(
        "binlane_unblocked_records_total",
        "counter",
        ("action",),
        "Records that were set aside because a person ordered it: `skip` or `dead_letter`.",
    ),
    MetricDefinition(
        "binlane_tables_blocked",
        "gauge",
        (),
        "Tables that stand still because a batch failed for good, or while their target is down.",
    ),
    MetricDefinition(
        "binlane_tables_halted",
        "gauge",
        (),
        "Those of them of which a change failed for good: they need a person.",
    ),
    MetricDefinition(
        "binlane_tables_target_down",
        "gauge",
        (),
        "Those of them that wait for a target, or for the dead-letter topic: they go on by themselves.",
    ),
    MetricDefinition(
        "binlane_blocked_records",
        "gauge",
        (),
        "Fetched records that wait, however many workers there are: of tables that stand still, or of which "
        "a batch has been failing for `stuck_after`, and those that wait for room in lanes full of them.",
    ),
    MetricDefinition(
        "binlane_table_state",
        "gauge",
        ("table", "state"),
        "1 for the state that the table is in: idle, queued, running, retrying or blocked.",
    ),
    MetricDefinition(
        "binlane_table_delay_seconds",
        "gauge",
        ("table",),
        "Now minus the source time of the table's oldest unfinished change; 0 when none is unfinished.",
    ),
    MetricDefinition(
        "binlane_target_up",
        "gauge",
        ("handler",),
        "0 while the handler's target is down and its tables wait, else 1; `__dead_letter__` is "
        "the dead-letter topic, `__schema_registry__` the schema registry.",
    ),
    MetricDefinition(
        "binlane_lane_queued_records",
        "gauge",
        ("lane",),
        "Records queued or running in the lane.",
    ),
    MetricDefinition(
        "binlane_lane_queued_bytes",
        "gauge",
        ("lane",),
        "Bytes queued or running in the lane.",
    ),
    MetricDefinition(
        "binlane_lane_running_seconds",
        "gauge",
        ("lane",),
        "How long the lane's present batch has been with its handlers; 0 when none is.",
    ),
    MetricDefinition(
        "binlane_lane_busy_seconds_total",
        "counter",
        ("lane",),
        "Time the lane's processor spent on batches.",
    ),
    MetricDefinition(
        "binlane_lane_offers_total",
        "counter",
        ("lane", "result"),
        "Deliveries with records of the lane, taken whole (`queued`) or not at all (`refused`: no room in "
        "one of their lanes; they are offered again).",
    ),
    MetricDefinition(
        "binlane_lane_batches_total",
        "counter",
        ("lane", "result"),
        "Batches that the lane's processor took, by how they ended: `finished`, `given_back` (to be tried "
        "again), `halted`, or `spread` over shards.",
    ),
    MetricDefinition(
        "binlane_lane_fill_ratio",
        "gauge",
        ("lane", "of"),
        "How full the lane is: its `records` of `lanes.max_records`, its `bytes` of `lanes.max_bytes`, which "
        "all lanes share.",
    ),
    MetricDefinition(
        "binlane_lane_max_records",
        "gauge",
        (),
        "How many records a lane may hold (`lanes.max_records`).",
    ),
    MetricDefinition(
        "binlane_lanes_max_bytes",
        "gauge",
        (),
        "How many bytes all lanes may hold together (`lanes.max_bytes`).",
    ),
    MetricDefinition(
        "binlane_lanes_fill_ratio",
        "gauge",
        (),
        "How full they are, 0 to 1: the fullest lane's records, or all bytes, whichever is more.",
    ),
    MetricDefinition(
        "binlane_backpressure_seconds_total",
        "counter",
        (),
        "Time in which partitions were paused because the lanes were full.",
    ),
    *KAFKA_DEFINITIONS,
    MetricDefinition(
        "binlane_reloads_total",
        "counter",
        ("result",),
        "Changed configuration files; result is success (taken over) or refused.",
    ),
    MetricDefinition(
        "binlane_last_reload_successful",
        "gauge",
        (),
        "0 while the configuration file is one that was refused, else 1.",
    ),
    MetricDefinition(
        "binlane_schemas_rebuilt_total",
        "counter",
        (),
        "Schemas of the registry that were made ready again: those that records need take more than "
        "`schema_registry.max_memory`.",
    ),
    MetricDefinition(
        "binlane_spark_waiting_rows",
        "gauge",
        ("table",),
        "Received rows that are durable and in the table's view, but not in the Spark table yet.",
        "handler",
    ),
    MetricDefinition(
        "binlane_spark_waiting_seconds",
        "gauge",
        ("table",),
        "How long the oldest of them has waited; 0 when none does.",
        "handler",
    ),
    MetricDefinition(
        "binlane_spark_merge_seconds",
        "histogram",
        (),
        "How long it took to bring what waited into one Spark table.",
        "handler",
    ),
    MetricDefinition(
        "binlane_spark_merges_total",
        "counter",
        ("result",),
        "Times that what waited was brought into a Spark table; result is success or failure.",
        "handler",
    ),
    MetricDefinition(
        "binlane_spark_up",
        "gauge",
        ("handler",),
        "1 while the handler's Spark answers, else 0: also while it starts.",
        "handler",
    ),
    MetricDefinition(
        "binlane_log_events_total",
        "counter",
        ("level",),
        "Events of the worker's own log, from `logging.level` on: also those whose lines were left out.",
    ),
    MetricDefinition(
        "binlane_log_lines_left_out_total",
        "counter",
        ("event",),
        "Lines that the log was spared, because the same event came too often within a minute.",
    ),
    MetricDefinition(
        "binlane_spans_exported_total",
        "counter",
        (),
        "Spans that the collector of `tracing` has taken.",
    ),
    MetricDefinition(
        "binlane_spans_dropped_total",
        "counter",
        ("reason",),
        "Spans that no collector gets: `export_failed`, or `queue_full` before; `too_many` counts records "
        "whose traces were not gone on with.",
    ),
    MetricDefinition(
        "binlane_info",
        "info",
        ("version",),
        "Always 1; the version is in the label.",
    ),
)

_BY_NAME = {entry.name: entry for entry in DEFINITIONS}


def definition(name: str) -> MetricDefinition:
    """The definition of a metric by its full name. Raises KeyError for a metric that is not defined."""
    return _BY_NAME[name]


def markdown_table() -> str:
    """The table of docs/metrics.md."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for entry in DEFINITIONS:
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        rows.append(f"| `{entry.name}` | {entry.kind} | {labels} | {entry.help} |")
    return "\n".join(rows) + "\n"
