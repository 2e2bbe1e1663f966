"""How the `kafka:` section becomes librdkafka's properties."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

from handlers.kafka.librdkafka import SettingsError
from worker.configuration.kafka_properties import (
    admin_settings,
    check_settings,
    consumer_settings,
    producer_settings,
    settings_faults,
)
from worker.configuration.sections import KafkaRule


def Kafka(properties: Mapping[str, Any] | None = None, **others: Any) -> KafkaRule:  # noqa: N802 (a section)
    section = {"bootstrap_servers": "localhost:9092", "group_id": "shop", "topics": ["cdc.shop"], **others}
    return KafkaRule.model_construct(properties=dict(properties or {}), **section)


def with_properties(**properties: Any) -> KafkaRule:
    return Kafka({name.replace("__", "."): value for name, value in properties.items()})


def test_offsets_are_never_committed_or_reset_by_the_client_itself() -> None:
    settings = consumer_settings(with_properties())
    assert settings["enable.auto.commit"] == "false"
    assert settings["enable.auto.offset.store"] == "false"
    assert settings["auto.offset.reset"] == "error"
    assert settings["enable.partition.eof"] == "true"
    assert (settings["bootstrap.servers"], settings["group.id"]) == ("localhost:9092", "shop")


def test_topics_under_a_pattern_are_looked_for_every_half_minute_unless_the_user_says_otherwise() -> None:
    name = "topic.metadata.refresh.interval.ms"
    assert name not in consumer_settings(with_properties())
    patterns = ["cdc.shop", "^crm"]
    assert consumer_settings(Kafka(topics=patterns))[name] == "30000"
    assert consumer_settings(Kafka({name: 5000}, topics=patterns))[name] == "5000"
    check_settings(Kafka(topics=patterns))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("enable.auto.commit", "checkpoint.interval"),
        ("auto.commit.enable", "checkpoint.interval"),
        ("enable.auto.offset.store", "finished"),
        ("auto.offset.reset", "checkpoint.initial"),
        ("enable.partition.eof", "end"),
        ("group.id", "kafka.group_id"),
        ("bootstrap.servers", "kafka.bootstrap_servers"),
        ("metadata.broker.list", "kafka.bootstrap_servers"),
    ],
)
def test_a_property_that_binlane_owns_is_refused_with_what_to_set_instead(name: str, instead: str) -> None:
    with pytest.raises(SettingsError, match=instead) as caught:
        consumer_settings(Kafka({name: "x"}))
    assert caught.value.key == f"kafka.properties.{name}"


def test_the_users_properties_come_before_the_defaults() -> None:
    own = {
        "fetch.queue.backoff.ms": 50,
        "isolation.level": "read_uncommitted",
        "queued.max.messages.kbytes": 1024,
        "client.id": "me",
        "partition.assignment.strategy": "range",
    }
    settings = consumer_settings(Kafka(own))
    assert {name: settings[name] for name in own} == {name: str(value) for name, value in own.items()}


def test_booleans_are_written_as_librdkafka_reads_them() -> None:
    assert consumer_settings(with_properties(check__crcs=True))["check.crcs"] == "true"


def test_cooperative_sticky_is_the_default() -> None:
    assert consumer_settings(with_properties())["partition.assignment.strategy"] == "cooperative-sticky"


def test_partitions_whose_topics_are_merged_leave_together() -> None:
    """A TRUNCATE that leaves alone would be done behind the queued rows that follow it."""
    merged = Kafka(ddl_topics=["cdc.ddl"])
    assert consumer_settings(merged)["partition.assignment.strategy"] == "roundrobin"


def test_the_new_protocol_leaves_the_assignment_to_the_broker() -> None:
    section = with_properties(group__protocol="consumer")
    assert "partition.assignment.strategy" not in consumer_settings(section)
    check_settings(section)


@pytest.mark.parametrize("given", ["CONSUMER", "Classic"])
def test_the_protocol_is_the_same_in_any_case(given: str) -> None:
    """librdkafka ignores the case; the worker compares with small letters."""
    section = with_properties(group__protocol=given)
    check_settings(section)
    settings = consumer_settings(section)
    assert settings["group.protocol"] == given.lower()
    assert ("partition.assignment.strategy" in settings) is (given == "Classic")


@pytest.mark.parametrize(
    "name", ["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"]
)
def test_what_only_the_classic_protocol_knows_is_refused_with_the_new_one(name: str) -> None:
    with pytest.raises(SettingsError, match=r"group\.protocol=consumer") as caught:
        consumer_settings(Kafka({"group.protocol": "consumer", name: "1"}))
    assert caught.value.key.endswith(name)


@pytest.mark.parametrize(
    ("properties", "key", "problem"),
    [
        ({"sesion.timeout.ms": 1}, "kafka.properties.sesion.timeout.ms", "did you mean session.timeout.ms"),
        ({"session.timeout.ms": -5}, "kafka.properties.session.timeout.ms", r"allowed range 1\.\.3600000"),
        ({"isolation.level": "x"}, "kafka.properties.isolation.level", "Invalid value for"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"},
            "kafka.properties.ssl.ca.location",
            "failed",
        ),
        (
            {"max.poll.interval.ms": 1000, "session.timeout.ms": 5000},
            "kafka.properties.max.poll.interval.ms",
            "must be >=",
        ),
        ({"sasl.mechanism": "XYZ", "security.protocol": "sasl_ssl"}, "kafka.properties", "SASL mechanism"),
        ({"ssl.ca.location": None}, "kafka.properties.ssl.ca.location", "NoneType"),
        ({"ssl.ca.location": ["a"]}, "kafka.properties.ssl.ca.location", "list"),
        ({"stats_cb": "x"}, "kafka.properties.stats_cb", "Python object"),
    ],
)
def test_what_librdkafka_refuses_is_told_with_its_key(
    properties: dict[str, Any], key: str, problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem) as caught:
        check_settings(Kafka(properties))
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("session.timeout.ms", "30s"),
        ("queued.max.messages.kbytes", "64MiB"),
        ("fetch.message.max.bytes", "1 MiB"),
        ("linger.ms", "0.5s"),
    ],
)
def test_a_number_with_a_unit_is_refused_for_librdkafka_would_drop_the_unit(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match="a number without a unit") as caught:
        check_settings(Kafka({name: value}))
    assert caught.value.key == f"kafka.properties.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("client.id", "9lives"), ("sasl.password", "1s"), ("session.timeout.ms", "0x1770"), ("linger.ms", 0.5)],
)
def test_texts_that_begin_with_a_digit_and_numbers_of_any_form_are_taken(name: str, value: Any) -> None:
    check_settings(Kafka({name: value}))


@pytest.mark.parametrize(
    ("properties", "faulty"),
    [
        ({"ssl.truststore.location": "a", "sasl.jaas.config": "b"}, None),
        (
            {"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt", "ssl.truststore.location": "a"},
            "ssl.truststore.location",
        ),
        ({"client.id": "a", "linger.ms": "x"}, "linger.ms"),
        ({"client.id": "a", "ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location"),
    ],
)
def test_a_fault_is_of_a_property_that_was_set(properties: dict[str, Any], faulty: str | None) -> None:
    found = [fault.key.removeprefix("kafka.properties.") for fault in settings_faults(Kafka(properties))]
    assert found == (list(properties) if faulty is None else [faulty])


def test_what_follows_from_a_fault_is_not_told() -> None:
    (fault,) = settings_faults(Kafka({"sasl.mechanisn": "PLAIN", "security.protocol": "sasl_plaintext"}))
    assert fault.key == "kafka.properties.sasl.mechanisn"


def test_a_refused_value_is_not_repeated() -> None:
    with pytest.raises(SettingsError) as caught:
        check_settings(Kafka({"isolation.level": "my-password"}))
    assert "my-password" not in str(caught.value)


def test_good_settings_are_accepted_without_a_broker() -> None:
    check_settings(with_properties(client__rack="a", socket__keepalive__enable=True))


def test_an_admin_client_is_given_security_but_nothing_of_consumers() -> None:
    settings = admin_settings(
        with_properties(security__protocol="ssl", session__timeout__ms=6000, group__instance__id="a")
    )
    assert settings == {
        "bootstrap.servers": "localhost:9092",
        "client.id": "binlane",
        "security.protocol": "ssl",
    }


def test_a_producer_has_the_security_properties_and_none_that_only_consumers_know() -> None:
    section = with_properties(
        security__protocol="sasl_ssl",
        sasl__mechanism="PLAIN",
        sasl__username="shop",
        sasl__password="hunter2",
        group__instance__id="worker-0",
        fetch__min__bytes=10,
        linger__ms=20,
    )
    settings = producer_settings(section)
    assert settings["sasl.password"] == "hunter2"
    assert settings["linger.ms"] == "20", "the user's own come before the defaults"
    assert settings.keys().isdisjoint(
        {"group.id", "group.instance.id", "fetch.min.bytes", "isolation.level", "enable.auto.commit"}
    )
    warnings: list[str] = []
    logger = logging.Logger("producer")
    logger.addHandler(Listening(warnings))
    producer = Producer(settings, logger=logger)
    producer.poll(0.2)
    assert [line for line in warnings if "CONFWARN" in line] == []


def test_a_producer_never_repeats_or_reorders_whatever_is_set() -> None:
    settings = producer_settings(with_properties(enable__idempotence=False))
    assert (settings["enable.idempotence"], settings["acks"]) == ("true", "all")


class Listening(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())
