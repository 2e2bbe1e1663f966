"""The metrics of partitions, brokers, commits and rebalances; in the order of the documentation."""

from __future__ import annotations

from worker.observing.metric_kinds import PARTITION, MetricDefinition

KAFKA_DEFINITIONS: tuple[MetricDefinition, ...] = (
    MetricDefinition(
        "binlane_partition_paused",
        "gauge",
        PARTITION,
        "1 while the partition is paused, else 0.",
    ),
    MetricDefinition(
        "binlane_partition_blocked",
        "gauge",
        PARTITION,
        "1 while the partition is not read on and one more worker would not change it: tables that stand "
        "still (see `binlane_blocked_records`) leave no room in the lanes, or it is paused for something "
        "else than full lanes; else 0.",
    ),
    MetricDefinition(
        "binlane_standstill_seconds",
        "gauge",
        PARTITION,
        "How long the partition has not been read although Kafka has more, the lanes have room and nothing "
        "is paused; 0 as long as all is well.",
    ),
    MetricDefinition(
        "binlane_partition_error_seconds",
        "gauge",
        PARTITION,
        "How long Kafka has told an error of the partition in place of its records; 0 while it tells none.",
    ),
    MetricDefinition(
        "binlane_first_commit_missing_seconds",
        "gauge",
        PARTITION,
        "How long nothing of the partition has been handled because Kafka has not taken the commit of where "
        "it begins; 0 once it has.",
    ),
    MetricDefinition(
        "binlane_head_stuck_seconds",
        "gauge",
        PARTITION,
        "How long the partition's first unfinished record has been the first, once that is `stuck_after`; "
        "0 until then.",
    ),
    MetricDefinition(
        "binlane_ahead_records",
        "gauge",
        PARTITION,
        "Records that were fetched with the first unfinished one and since; `max_ahead` bounds them.",
    ),
    MetricDefinition(
        "binlane_max_ahead_reached",
        "gauge",
        PARTITION,
        "1 while the partition is paused because so many were, else 0.",
    ),
    MetricDefinition(
        "binlane_position",
        "gauge",
        PARTITION,
        "The next offset to be fetched.",
    ),
    MetricDefinition(
        "binlane_committed",
        "gauge",
        PARTITION,
        "The committed offset: the next one to be read after a restart.",
    ),
    MetricDefinition(
        "binlane_unfinished_records",
        "gauge",
        PARTITION,
        "Fetched records that are not finished.",
    ),
    MetricDefinition(
        "binlane_unread_records",
        "gauge",
        PARTITION,
        "Records between the next offset to be fetched and the partition's end.",
    ),
    MetricDefinition(
        "binlane_lag_records",
        "gauge",
        PARTITION,
        "Records between the committed offset and the partition's end.",
    ),
    MetricDefinition(
        "binlane_delay_seconds",
        "gauge",
        PARTITION,
        "Now minus the source time of the oldest unfinished change; 0 when none is unfinished.",
    ),
    MetricDefinition(
        "binlane_last_source_timestamp_seconds",
        "gauge",
        PARTITION,
        "When the newest change that was fetched happened in its source, in seconds since 1970.",
    ),
    MetricDefinition(
        "binlane_kafka_up",
        "gauge",
        (),
        "1 while a broker can be reached, else 0; told every 10 seconds (`statistics.interval.ms`).",
    ),
    MetricDefinition(
        "binlane_kafka_errors_total",
        "counter",
        ("code",),
        "Errors that Kafka's client told, repeated ones included; `code` is librdkafka's name for it.",
    ),
    MetricDefinition(
        "binlane_poll_idle_seconds",
        "gauge",
        (),
        "Seconds since the last poll that brought a record, or the end of a partition.",
    ),
    MetricDefinition(
        "binlane_membership_unconfirmed_seconds",
        "gauge",
        (),
        "For how long batches have waited because the group's coordinator takes no commit of this worker; "
        "0 when none has to.",
    ),
    MetricDefinition(
        "binlane_commits_total",
        "counter",
        ("store", "result"),
        "Commits to a checkpoint store; result is success or failure.",
    ),
    MetricDefinition(
        "binlane_last_commit_timestamp_seconds",
        "gauge",
        ("store",),
        "When the store last took a commit, in seconds since 1970; without work there is none.",
    ),
    MetricDefinition(
        "binlane_rebalances_total",
        "counter",
        ("kind",),
        "Rebalances seen; kind is assign, revoke or lost.",
    ),
)
