"""Every metric of the worker, defined once: name, labels and help. docs/metrics.md is generated from it."""

from __future__ import annotations

from typing import Literal, NamedTuple

_HELP = {
    "binlane_records_consumed_total{topic,partition}": "Records fetched from Kafka.",
    "binlane_records_finished_total{table}": "Records that all handlers of their table have finished with.",
    "binlane_records_skipped_total{reason}": "Records that count as finished although no handler applied "
    "them; the reason says why.",
    "binlane_handler_seconds{handler}": "How long one call of a handler with one batch took.",
    "binlane_handler_failures_total{handler}": "Calls of a handler that raised.",
    "binlane_handler_passed_over_total{handler}": "Changes that a handler passed over, because its target's "
    "marks say that they were applied before.",
    "binlane_retries_total{table}": "Batches given to their handlers again after a failure.",
    "binlane_dead_letters_total{table}": "Records written to the dead-letter topic.",
    "binlane_unblocked_records_total{action}": "Records that were set aside because a person ordered it: "
    "`skip` or `dead_letter`.",
    "binlane_tables_blocked": "Tables that stand still because a batch failed for good, or while their "
    "target is down.",
    "binlane_tables_halted": "Those of them of which a change failed for good: they need a person.",
    "binlane_tables_target_down": "Those of them that wait for a target, or for the dead-letter topic: they "
    "go on by themselves.",
    "binlane_blocked_records": "Fetched records that wait, however many workers there are: of tables that "
    "stand still, or of which a batch has been failing for `stuck_after`, and those that wait for room in "
    "lanes full of them.",
    "binlane_table_state{table,state}": "1 for the state that the table is in: idle, queued, running, "
    "retrying or blocked.",
    "binlane_table_delay_seconds{table}": "Now minus the source time of the table's oldest unfinished "
    "change; 0 when none is unfinished.",
    "binlane_target_up{handler}": "0 while the handler's target is down and its tables wait, else 1; "
    "`__dead_letter__` is the dead-letter topic, `__schema_registry__` the schema registry.",
    "binlane_lane_queued_records{lane}": "Records queued or running in the lane.",
    "binlane_lane_queued_bytes{lane}": "Bytes queued or running in the lane.",
    "binlane_lane_running_seconds{lane}": "How long the lane's present batch has been with its handlers; 0 "
    "when none is.",
    "binlane_lane_busy_seconds_total{lane}": "Time the lane's processor spent on batches.",
    "binlane_lane_offers_total{lane,result}": "Deliveries with records of the lane, taken whole (`queued`) "
    "or not at all (`refused`: no room in one of their lanes; they are offered again).",
    "binlane_lane_batches_total{lane,result}": "Batches that the lane's processor took, by how they ended: "
    "`finished`, `given_back` (to be tried again), `halted`, or `spread` over shards.",
    "binlane_lane_fill_ratio{lane,of}": "How full the lane is: its `records` of `lanes.max_records`, its "
    "`bytes` of `lanes.max_bytes`, which all lanes share.",
    "binlane_lane_max_records": "How many records a lane may hold (`lanes.max_records`).",
    "binlane_lanes_max_bytes": "How many bytes all lanes may hold together (`lanes.max_bytes`).",
    "binlane_lanes_fill_ratio": "How full they are, 0 to 1: the fullest lane's records, or all bytes, "
    "whichever is more.",
    "binlane_backpressure_seconds_total": "Time in which partitions were paused because the lanes were full.",
    "binlane_partition_paused{topic,partition}": "1 while the partition is paused, else 0.",
    "binlane_partition_blocked{topic,partition}": "1 while the partition is not read on and one more worker "
    "would not change it: tables that stand still (see `binlane_blocked_records`) leave no room in the "
    "lanes, or it is paused for something else than full lanes; else 0.",
    "binlane_standstill_seconds{topic,partition}": "How long the partition has not been read although Kafka "
    "has more, the lanes have room and nothing is paused; 0 as long as all is well.",
    "binlane_partition_error_seconds{topic,partition}": "How long Kafka has told an error of the partition "
    "in place of its records; 0 while it tells none.",
    "binlane_first_commit_missing_seconds{topic,partition}": "How long nothing of the partition has been "
    "handled because Kafka has not taken the commit of where it begins; 0 once it has.",
    "binlane_head_stuck_seconds{topic,partition}": "How long the partition's first unfinished record has "
    "been the first, once that is `stuck_after`; 0 until then.",
    "binlane_ahead_records{topic,partition}": "Records that were fetched with the first unfinished one and "
    "since; `max_ahead` bounds them.",
    "binlane_max_ahead_reached{topic,partition}": "1 while the partition is paused because so many were, "
    "else 0.",
    "binlane_position{topic,partition}": "The next offset to be fetched.",
    "binlane_committed{topic,partition}": "The committed offset: the next one to be read after a restart.",
    "binlane_unfinished_records{topic,partition}": "Fetched records that are not finished.",
    "binlane_unread_records{topic,partition}": "Records between the next offset to be fetched and the "
    "partition's end.",
    "binlane_lag_records{topic,partition}": "Records between the committed offset and the partition's end.",
    "binlane_delay_seconds{topic,partition}": "Now minus the source time of the oldest unfinished change; 0 "
    "when none is unfinished.",
    "binlane_last_source_timestamp_seconds{topic,partition}": "When the newest change that was fetched "
    "happened in its source, in seconds since 1970.",
    "binlane_kafka_up": "1 while a broker can be reached, else 0; told every 10 seconds "
    "(`statistics.interval.ms`).",
    "binlane_kafka_errors_total{code}": "Errors that Kafka's client told, repeated ones included; `code` is "
    "librdkafka's name for it.",
    "binlane_poll_idle_seconds": "Seconds since the last poll that brought a record, or the end of a "
    "partition.",
    "binlane_membership_unconfirmed_seconds": "For how long batches have waited because the group's "
    "coordinator takes no commit of this worker; 0 when none has to.",
    "binlane_commits_total{store,result}": "Commits to a checkpoint store; result is success or failure.",
    "binlane_last_commit_timestamp_seconds{store}": "When the store last took a commit, in seconds since "
    "1970; without work there is none.",
    "binlane_rebalances_total{kind}": "Rebalances seen; kind is assign, revoke or lost.",
    "binlane_reloads_total{result}": "Changed configuration files; result is success (taken over) or "
    "refused.",
    "binlane_last_reload_successful": "0 while the configuration file is one that was refused, else 1.",
    "binlane_schemas_rebuilt_total": "Schemas of the registry that were made ready again: those that records "
    "need take more than `schema_registry.max_memory`.",
    "binlane_spark_waiting_rows{table}": "Received rows that are durable and in the table's view, but not in "
    "the Spark table yet.",
    "binlane_spark_waiting_seconds{table}": "How long the oldest of them has waited; 0 when none does.",
    "binlane_spark_merge_seconds": "How long it took to bring what waited into one Spark table.",
    "binlane_spark_merges_total{result}": "Times that what waited was brought into a Spark table; result is "
    "success or failure.",
    "binlane_spark_up{handler}": "1 while the handler's Spark answers, else 0: also while it starts.",
    "binlane_log_events_total{level}": "Events of the worker's own log, from `logging.level` on: also those "
    "whose lines were left out.",
    "binlane_log_lines_left_out_total{event}": "Lines that the log was spared, because the same event came "
    "too often within a minute.",
    "binlane_spans_exported_total": "Spans that the collector of `tracing` has taken.",
    "binlane_spans_dropped_total{reason}": "Spans that no collector gets: `export_failed`, or `queue_full` "
    "before; `too_many` counts records whose traces were not gone on with.",
    "binlane_info{version}": "Always 1; the version is in the label.",
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


def markdown_table() -> str:
    """Format the table of docs/metrics.md."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for entry in DEFINITIONS:
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        rows.append(f"| `{entry.name}` | {entry.kind} | {labels} | {entry.help} |")
    return "\n".join(rows) + "\n"
