"""What a worker did not read, or read and gave to no handler, and how the first line tells of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from test_troubles import calm

from worker.observing.overview.of_rules import PassingOver
from worker.observing.overview.troubles import headline, troubles
from worker.observing.status import (
    KafkaFault,
    KafkaStatus,
    PartitionError,
    PassedOver,
    TargetStatus,
    UnmatchedTable,
    WorkerStatus,
)

MISTYPED = KafkaFault(
    topic="clinic.patientz",
    code="UNKNOWN_TOPIC_OR_PART",
    error="Subscribed topic not available: clinic.patientz: Broker: Unknown topic or partition",
    seconds=120.0,
)


def told_by(status: WorkerStatus) -> tuple[str, str]:
    return headline(status, troubles(status))


def with_faults(*faults: KafkaFault, **others: Any) -> WorkerStatus:
    kafka = KafkaStatus(up=others.pop("up", True), faults=list(faults))
    return msgspec.structs.replace(calm(), kafka=kafka, **others)


def passing(*, tables: bool = True, **fields: Any) -> WorkerStatus:
    """Of a worker that passed records over; `tables`: and others not."""
    status = msgspec.structs.replace(calm(), passed_over=PassedOver(**fields))
    return status if tables else msgspec.structs.replace(status, tables=[])


def test_a_topic_that_does_not_exist_is_named_before_that_the_worker_starts() -> None:
    status = with_faults(MISTYPED, state="starting", partitions=[], config="clinic.yaml")
    level, line = told_by(status)
    assert level == "bad"
    assert line.startswith(
        "Topic clinic.patientz does not exist (and 1 other problem). Correct its name in kafka"
    )
    first = troubles(status)[0]
    assert first.error == MISTYPED.error
    assert first.commands == ["binlane check clinic.yaml --connect"]


def test_beside_topics_that_are_read_it_is_told_when_kafka_said_that_there_is_none() -> None:
    level, line = told_by(with_faults(MISTYPED))
    assert level == "warn"
    assert line.startswith("Topic clinic.patientz does not exist, as Kafka reported 2 min ago. ")


def test_a_topic_that_may_not_be_read_is_told_with_the_right_that_is_missing() -> None:
    fault = msgspec.structs.replace(MISTYPED, code="TOPIC_AUTHORIZATION_FAILED", error="not authorized")
    line = told_by(with_faults(fault, partitions=[]))[1]
    assert line.startswith("The worker may not read topic clinic.patientz. Give the user the ACL Read")


def test_other_errors_of_a_topic_are_told_while_nothing_is_read_and_no_longer() -> None:
    fault = msgspec.structs.replace(MISTYPED, code="LEADER_NOT_AVAILABLE", error="no leader")
    assert told_by(with_faults(fault))[0] == "good"
    assert told_by(with_faults(fault, partitions=[]))[1].startswith("Topic clinic.patientz is not read. ")


def test_that_no_broker_can_be_reached_has_the_clients_error() -> None:
    fault = KafkaFault(topic=None, code="_AUTHENTICATION", error="invalid credentials", seconds=1.0)
    (trouble,) = troubles(with_faults(fault, up=False))
    assert (trouble.what, trouble.error) == ("No Kafka broker can be reached", "invalid credentials")
    assert troubles(with_faults(fault)) == []


def with_error(**fields: Any) -> WorkerStatus:
    """The second partition is not read."""
    found: dict[str, Any] = {"code": "_BAD_COMPRESSION", "error": "message at 4711", "seconds": 75.0}
    error = PartitionError(**found | fields)
    partitions = list(calm().partitions)
    partitions[1] = msgspec.structs.replace(partitions[1], error=error, standstill_seconds=62.0)
    kafka = KafkaStatus(up=True)
    return msgspec.structs.replace(calm(), partitions=partitions, kafka=kafka)


def test_a_batch_that_cannot_be_read_is_told_with_the_command_that_passes_over_it() -> None:
    (trouble,) = troubles(with_error(offset=4711, unreadable=True), "shop.yaml")
    place = calm().partitions[1]
    assert trouble.level == "bad"
    assert trouble.what == (
        f"{place.topic}[{place.partition}] has not been read for 75 s: its batch at offset 4711 cannot be "
        "read (_BAD_COMPRESSION)"
    )
    assert "receive.message.max.bytes" in trouble.do
    assert trouble.commands == [
        f"binlane unblock shop.yaml --topic {place.topic} --partition {place.partition} --offset 4711 --skip"
    ]


def test_an_error_of_a_partition_is_told_when_it_has_lasted_a_minute() -> None:
    (trouble,) = troubles(with_error(code="LEADER_NOT_AVAILABLE", error="no leader"))
    assert (trouble.level, trouble.error) == ("bad", "no leader")
    assert trouble.what.endswith("has not been read for 75 s: LEADER_NOT_AVAILABLE")
    assert troubles(with_error(seconds=59.0)) == []


def test_a_group_that_refuses_the_worker_is_told() -> None:
    fault = KafkaFault(
        topic=None,
        code="INCONSISTENT_GROUP_PROTOCOL",
        error="the group uses range: app at 10.0.0.3",
        seconds=1,
    )
    level, line = told_by(with_faults(fault, partitions=[]))
    assert level == "bad"
    assert line.startswith("The group refuses this worker: INCONSISTENT_GROUP_PROTOCOL. Give all ")
    assert told_by(with_faults(fault))[0] == "good", "it has partitions"


def test_a_worker_without_partitions_says_what_that_may_mean() -> None:
    level, line = told_by(msgspec.structs.replace(calm(), partitions=[]))
    assert level == "good"
    assert "This worker has no partition: others of the group have them" in line


def test_records_of_which_no_rule_matches_any_are_a_trouble_with_the_rule_that_was_meant() -> None:
    tables = [UnmatchedTable(table="clinic.patients", nearest="clinic.patient")]
    status = passing(tables=False, unmatched_records=12_000, unmatched_tables=tables)
    level, line = told_by(status)
    assert level == "bad"
    assert line.startswith(
        "No match under tables fits any of the 12,000 records received since the start or the last reload: "
        "clinic.patients (clinic.patients looks like match: clinic.patient). Correct match"
    )


def test_where_no_rule_looks_like_the_tables_it_is_a_warning() -> None:
    tables = [UnmatchedTable(table="shop.a", nearest=None)]
    assert told_by(passing(tables=False, unmatched_records=1, unmatched_tables=tables))[0] == "warn"


def test_a_worker_that_leaves_tables_out_is_well_and_says_how_much_it_leaves_out() -> None:
    tables = [UnmatchedTable(table=f"shop.t{number}", nearest=None) for number in range(3)]
    level, line = told_by(passing(unmatched_records=12_000, unmatched_tables=tables))
    assert level == "good"
    assert line == (
        "All well: 8 tables, 3 partitions, nothing waits. No match fits 12,000 records of 3 tables, "
        "skipped since the start or the last reload"
    )


def test_a_rule_that_matches_a_table_is_not_said_to_mean_another() -> None:
    tables = [UnmatchedTable(table="shop_00.order", nearest="shop_00.orders")]
    assert "looks like" not in told_by(passing(unmatched_records=1, unmatched_tables=tables))[1]
    tables = [UnmatchedTable(table="shop_00.refund", nearest="shop_00.refunds")]
    line = told_by(passing(unmatched_records=1, unmatched_tables=tables))[1]
    assert line.endswith(" (shop_00.refund looks like match: shop_00.refunds)")


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"undecodable_letters": 1}, "1 record became a dead letter"),
        ({"undecodable_skipped": 4}, "4 records were skipped"),
        (
            {"undecodable_letters": 2, "undecodable_skipped": 1},
            "2 records became dead letters and 1 record was skipped",
        ),
    ],
)
def test_undecodable_records_are_in_the_first_line(fields: dict[str, int], told: str) -> None:
    level, line = told_by(passing(**fields))
    assert (level, line.rsplit(". ", 1)[1]) == ("good", f"Undecodable since the start: {told}")


def test_nothing_but_undecodable_records_is_a_trouble() -> None:
    letters = calm().tables[0]
    status = passing(tables=False, undecodable_letters=9, undecodable_error="not a JSON record")
    status = msgspec.structs.replace(
        status, tables=[msgspec.structs.replace(letters, table="__undecodable__")], config="my shop.yaml"
    )
    (trouble,) = troubles(status)
    assert (trouble.level, trouble.error) == ("bad", "not a JSON record")
    assert trouble.what.endswith("were undecodable: 9 records became dead letters")
    assert trouble.commands == ["binlane dead-letters list 'my shop.yaml'"]


def test_a_dead_letter_topic_that_does_not_exist_is_to_be_made() -> None:
    error = "the dead-letter topic clinic.dead cannot be written: Broker: Unknown topic or partition"
    down = TargetStatus(
        handler="__dead_letter__", up=False, error=error, down_seconds=13.0, missing_topic="clinic.dead"
    )
    status = msgspec.structs.replace(calm(), targets=[down], config="clinic.yaml")
    (trouble,) = troubles(status)
    assert (trouble.what, trouble.error) == ("The dead-letter topic clinic.dead does not exist", error)
    assert trouble.do.startswith("Create it, ")
    assert trouble.commands == [
        "binlane check clinic.yaml --connect",
        "kafka-topics.sh --bootstrap-server BROKER:9092 --create --topic clinic.dead --partitions 1",
    ]


class Log:
    """What is told of a worker that passes records over."""

    def __init__(self) -> None:
        self.unmatched = 0
        self.passing = PassingOver(lambda: self.unmatched, lambda text: text.replace("hunter2", "***"))

    def __call__(self, event: str, **fields: Any) -> PassedOver:
        self.passing.note("info", {"event": event, **fields})
        return self.passing.now()


def test_tables_with_a_rule_near_them_come_first_and_secrets_are_not_told() -> None:
    log = Log()
    log("table_unmatched", table="shop.hunter2")
    found = log("table_unmatched", table="shop.order", nearest="shop.orders")
    assert found.unmatched_tables == [
        UnmatchedTable(table="shop.order", nearest="shop.orders"),
        UnmatchedTable(table="shop.***", nearest=None),
    ]
    assert not found.more_tables
    assert log("more_tables_unmatched").more_tables


def test_a_hundred_tables_are_kept() -> None:
    log = Log()
    for number in range(150):
        found = log("table_unmatched", table=f"shop.t{number}")
    assert len(found.unmatched_tables) == 100


def test_only_undecodable_records_are_counted_as_such() -> None:
    log = Log()
    log("dead_letter", handler="mirror", error="rejected")
    log("change_skipped", handler="mirror", error="rejected")
    found = log("record_skipped", error="not a JSON record", ordered_by="ann@host")
    assert found == PassedOver()
    log("dead_letter", handler=None, error="not a JSON record")
    found = log("record_skipped", error="password hunter2 is not a JSON record")
    assert (found.undecodable_letters, found.undecodable_skipped) == (1, 1)
    assert found.undecodable_error == "password *** is not a JSON record"


def test_other_rules_begin_with_nothing_passed_over() -> None:
    log = Log()
    log.unmatched = 7
    log("record_skipped", error="not a JSON record")
    assert log("table_unmatched", table="shop.order").unmatched_records == 7
    found = log("reloaded", changed=["tables[0].match"])
    assert (found.unmatched_records, found.unmatched_tables, found.undecodable_skipped) == (0, [], 1)
    log.unmatched = 9
    assert log.passing.now().unmatched_records == 2
