"""What is told of a Kafka that is away, and what is not."""

from __future__ import annotations

import logging
import time

import pytest
from confluent_kafka import KafkaError, Producer

from handlers.kafka.librdkafka import client_logger
from worker.local.broker_settings import free_port


def test_attempts_to_connect_are_no_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    errors: list[KafkaError] = []
    client = Producer(
        {"bootstrap.servers": f"127.0.0.1:{free_port()}", "error_cb": errors.append}, logger=client_logger()
    )
    with caplog.at_level(logging.DEBUG, logger="librdkafka"):
        deadline = time.monotonic() + 60
        while len(errors) < 2 and time.monotonic() < deadline:
            client.poll(0.1)
    assert errors, "the client has tried to connect"
    assert [record.getMessage() for record in caplog.records] == []


def test_other_lines_of_the_client_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    # As the client calls it: confluent_kafka.c, log_cb.
    client_logger().log(logging.WARNING, "%s [%s] %s", "CONFWARN", "rdkafka#producer-1", "an odd property")
    assert [record.getMessage() for record in caplog.records] == [
        "CONFWARN [rdkafka#producer-1] an odd property"
    ]
