"""Which errors of Kafka's client count as faults, and for how long."""

from __future__ import annotations

from building import configuration
from confluent_kafka import KafkaError

from worker.kafka.errors import GroupStrategies, KafkaErrors


def test_errors_of_topics_that_are_read_are_no_faults() -> None:
    now = 100.0
    counted: list[str] = []
    errors = KafkaErrors(lambda: now, counted.append, GroupStrategies(configuration()))
    errors.report(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "clinic.patientz")
    errors.report(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "clinic.patientz")
    now = 130.0
    (fault,) = errors.faults({"clinic.visits"})
    assert (fault.topic, fault.code, fault.seconds) == ("clinic.patientz", "UNKNOWN_TOPIC_OR_PART", 30.0)
    assert errors.trouble(set()) == f"clinic.patientz: {fault.error}"
    assert errors.faults({"clinic.patientz"}) == []
    assert counted == ["UNKNOWN_TOPIC_OR_PART"] * 2, "what is not logged again is counted"
