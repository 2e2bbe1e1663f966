"""What DDL topics told before is read to its end, whatever becomes of their offsets meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from integration.faulty_disk import damage
from servers.schema_registry import schema_registry
from structlog.testing import capture_logs

from worker.configuration import Configuration
from worker.configuration.formats import formats_of
from worker.configuration.kafka_properties import consumer_settings
from worker.fetching import ddl_history
from worker.fetching.ddl_history import DDLHistory
from worker.formats.registry import FormatChoice
from worker.local.broker import Broker
from worker.running.worker import Worker

RECORD = b'{"source":{},"ddl":"x","databaseName":"s"}'


class Disturbed(DDLHistory):
    """Something happens each time, between the look at the offsets and the fetch; `pauses`: and no record is
    ever fetched."""

    happens: Callable[[], object] = staticmethod(lambda: None)
    pauses = False

    def _look(self, consumer: Consumer, alive: Callable[[], None]) -> Any:
        found = super()._look(consumer, alive)
        self.happens()
        return found

    def _begin(self, consumer: Consumer, *rest: Any) -> None:
        super()._begin(consumer, *rest)
        if self.pauses:
            consumer.pause([TopicPartition(*place) for place in self._unread])


def settings(broker: Broker, ddl: str, **sections: Any) -> Configuration:
    kafka = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": ddl,
        "topics": [f"{ddl}.rows"],
        "ddl_topics": [ddl],
    }
    tables = [{"match": "*", "handlers": [{"type": "log"}]}]
    return Configuration.model_validate({"kafka": kafka, "format": "debezium", "tables": tables, **sections})


@pytest.fixture
def history(broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Disturbed:
    """Of a topic that holds ten records."""
    monkeypatch.setattr(ddl_history, "_LOOK_SECONDS", 0.5)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(10):
        producer.produce(topic, RECORD, partition=0)
    assert producer.flush(10) == 0
    configuration = settings(broker, topic)
    formats = FormatChoice(configuration.format)
    return Disturbed(
        consumer_settings(configuration.kafka),
        lambda name: name == topic,
        formats.of,
        stopping=threading.Event(),
    )


def test_records_that_retention_deletes_meanwhile_keep_no_worker_from_its_start(
    broker: Broker, topic: str, history: Disturbed
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def retention() -> None:
        for done in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
            done.result(10)

    history.happens = retention
    assert history.read(lambda: None) == 5
    assert history.waits is history.reason is None


def test_a_topic_that_is_deleted_meanwhile_keeps_no_worker_from_its_start(
    broker: Broker, topic: str, history: Disturbed
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def deleted() -> None:
        history.happens = lambda: None
        for done in admin.delete_topics([topic]).values():
            done.result(10)

    history.happens = deleted
    history.read(lambda: None)
    assert history.waits is None


def test_definitions_that_do_not_come_are_told_and_fail_the_probes(
    broker: Broker, topic: str, history: Disturbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ddl_history, "_SAY_SECONDS", 1.0)
    history.pauses = True
    worker = Worker(settings(broker, topic, http=None, checkpoint={"directory": str(tmp_path)}))
    worker.components.history = history
    worker._state = "running"
    answers = []

    def alive() -> None:
        if history.reason is not None:
            answers.append((worker.health(), worker.ready()))
            history.stopping.set()

    with capture_logs() as logs:
        history.read(alive)
    reason, ready = answers[0]
    assert reason is not None
    assert ready is not None
    assert f"from {topic}[0]" in reason
    assert f"kafka.ddl_topics) of {topic}[0]" in ready
    assert [each["partitions"] for each in logs if each["event"] == "ddl_history_standstill"] == [
        f"{topic}[0]"
    ]


def send(broker: Broker, topic: str, *batches: tuple[int, bytes]) -> None:
    """Each a batch of so many records with this statement."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 500})
    for count, statement in batches:
        for _ in range(count):
            producer.produce(topic, RECORD.replace(b"x", statement), partition=0)
        assert producer.flush(10) == 0


def test_a_batch_that_cannot_be_read_is_left_out_of_the_definitions(
    broker: Broker, topic: str, history: Disturbed
) -> None:
    send(broker, topic, (10, b"gone"), (5, b"x"), (1, b"last"))
    damage(broker, topic, b"gone")
    damage(broker, topic, b"last")
    latest = time.monotonic() + 20

    def alive() -> None:
        if time.monotonic() > latest:
            history.stopping.set()

    with capture_logs() as logs:
        assert history.read(alive) == 15
    told = [(each["first"], each["end"]) for each in logs if each["event"] == "ddl_batch_passed_over"]
    assert told == [(10, 20), (25, 26)]
    assert history.waits is history.reason is None


def test_definitions_whose_schema_cannot_be_had_yet_are_waited_for(broker: Broker, topic: str) -> None:
    with schema_registry() as registry:
        fields = [{"name": "ddl", "type": "string"}]
        number = registry.register({"type": "record", "name": "Change", "fields": fields})
        registry.status = 503
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, b"\0" + number.to_bytes(4, "big") + b"\2x", partition=0)
        assert producer.flush(10) == 0
        configuration = settings(broker, topic, schema_registry={"url": registry.url})
        formats = formats_of(configuration, patience=None)
        consumer = consumer_settings(configuration.kafka)
        history = DDLHistory(consumer, lambda name: name == topic, formats.of, stopping=threading.Event())
        beats, told = 0, set()

        def alive() -> None:
            nonlocal beats
            beats += 1
            if history.waits is not None and "schema registry" in history.waits:
                told.add(history.waits)
                registry.status = 200

        assert history.read(alive) == 1
        assert told == {f"waiting for the schema registry, because of a record of {topic} (kafka.ddl_topics)"}
        assert beats > 2
