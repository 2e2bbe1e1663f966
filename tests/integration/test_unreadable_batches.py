"""A batch of Kafka's that nobody can read is told, stops only its partition, and can be passed over."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.faulty_disk import damage
from integration.letters import binlane
from integration.process import WorkerProcess, eventually
from integration.source import Source, canal_insert
from integration.stage import Stage

from offsets.types import TopicPartition
from worker.configuration import Configuration
from worker.configuration.kafka_properties import consumer_settings
from worker.kafka.unreadable_batch import EndUnknown, end_of_batch
from worker.local.broker import Broker

BOMB = 60 << 20
"""Bytes: two of them are more than a consumer unpacks by default (`receive.message.max.bytes`)."""


def partition_of(worker: WorkerProcess, number: int, topic: str | None = None) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = worker.status()["partitions"]
        own = (each for each in found if each["partition"] == number and topic in (None, each["topic"]))
        return next(own, None)

    return eventually(look, what="the partition is assigned")


def skipped(worker: WorkerProcess, topic: str, offset: int) -> str:
    """Order the worker to skip the batch once the records before it are handled. Returns what it says."""
    command = f"unblock {worker.url} --topic {topic} --partition 0 --offset {offset} --skip"

    def obeyed() -> str:
        done = binlane(worker, *shlex.split(command))
        # While the partition is fetched once more, the error is not known again yet.
        again = ("try again in ten seconds", "has no batch that cannot be read")
        assert done.returncode == 0 or any(each in done.stderr for each in again), done.stderr
        return done.stdout

    return eventually(obeyed, every=1.0, what="the records before the batch are handled")


def send_bomb(servers: str, topic: str) -> tuple[int, int]:
    """One batch of two records in partition 0 that takes some kilobytes; its first and last offset."""
    offsets: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "zstd",
            "message.max.bytes": 1_000_000_000,
            "batch.size": 4 * BOMB,
            "linger.ms": 2_000,
        }
    )
    for _ in range(2):
        value = b"a" * BOMB
        producer.produce(topic, value, partition=0, on_delivery=lambda _, sent: offsets.append(sent.offset()))
    assert producer.flush(60) == 0
    return offsets[0], offsets[-1]


def test_a_small_batch_that_unpacks_to_more_than_a_consumer_takes(make_stage: MakeStage) -> None:
    stage = make_stage(2)
    source = stage.source()
    source.insert("t0", records=3, partition=0)
    source.flush()
    bomb, last = send_bomb(stage.bootstrap_servers, stage.topic)
    assert last == bomb + 1, "they are one batch"
    source.insert("t0", records=20, partition=0)
    source.insert("t1", records=20, partition=1)
    source.flush()
    worker = stage.worker().start()

    def error() -> Any:
        return partition_of(worker, 0)["error"]

    def lasting() -> Any:  # what was read before it ends it, once
        found = error()
        return found if found and found["seconds"] >= 1 else None

    told = eventually(lasting, what="the error lasts")
    assert (told["code"], told["offset"], told["unreadable"]) == ("_BAD_COMPRESSION", bomb, True)
    assert worker.metric("binlane_partition_error_seconds", partition="0") >= 1
    assert worker.metric("binlane_partition_error_seconds", partition="1") == 0
    assert worker.metric("binlane_kafka_errors_total", code="_BAD_COMPRESSION") >= 1
    assert worker.healthy(), "a restart would not help"
    assert "receive.message.max.bytes" in worker.logged("kafka_error")[0]["hint"]
    eventually(lambda: stage.committed()[1] == 20, what="the other partition is read")

    assert worker.url is not None
    where = ("--topic", stage.topic, "--partition", "0")
    wrong = binlane(worker, "unblock", worker.url, *where, "--offset", str(bomb + 1), "--skip")
    assert (wrong.returncode, f"begins at offset {bomb}" in wrong.stderr) == (1, True)
    done = binlane(worker, "unblock", worker.url, *where, "--offset", str(bomb), "--skip")
    assert done.returncode == 0, done.stderr
    assert f"[0] offset {bomb} to {last} are skipped" in done.stdout
    eventually(lambda: error() is None, what="the error is over")
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder())


def test_a_batch_that_a_disk_damaged_reaches_no_handler(stage: Stage, broker: Broker) -> None:
    source: Source = stage.source()
    source.insert("t0", records=3)
    source.flush()
    producer = Producer({"bootstrap.servers": stage.bootstrap_servers, "linger.ms": 500})
    for seq in range(1000, 1005):
        producer.produce(stage.topic, canal_insert("gone", [seq]), partition=0)
    assert producer.flush(30) == 0
    source.insert("t0", records=20)
    source.flush()
    damage(broker, stage.topic, b"row 1003 of gone")
    settings = consumer_settings(Configuration.model_validate(stage.worker().config).kafka)
    place = TopicPartition(stage.topic, 0)
    for read_to in (0, 2):
        with pytest.raises(EndUnknown, match=f"records before that batch, from offset {read_to} on"):
            end_of_batch(settings, place, 3, read_to)
    assert end_of_batch(settings, place, 3, 3) == 8
    worker = stage.worker().start()
    eventually(lambda: partition_of(worker, 0)["error"], what="it is told")
    time.sleep(3)  # librdkafka takes the bytes behind its head for further batches
    told = partition_of(worker, 0)["error"]
    assert (told["code"], told["offset"], told["unreadable"]) == ("_BAD_MSG", 3, True)
    assert worker.url is not None
    assert len(worker.logged("offset_out_of_range")) <= 4, "it is not asked for as fast as Kafka answers"
    assert "offset 3 to 7 are skipped" in skipped(worker, stage.topic, 3)
    stage.wait_rows(source.count)
    stage.wait_committed_to_the_end()
    assert not any(row["table"] == "shop.gone" for row in stage.run.rows())
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), NothingTwice(), TableOrder())


def test_what_retention_deleted_before_a_damaged_batch_keeps_nobody_from_skipping_it(
    stage: Stage, broker: Broker
) -> None:
    producer = Producer({"bootstrap.servers": stage.bootstrap_servers, "linger.ms": 500})
    for seqs in (range(3), range(1000, 1005)):
        for seq in seqs:
            producer.produce(stage.topic, canal_insert("gone", [seq]), partition=0)
        assert producer.flush(30) == 0
    damage(broker, stage.topic, b"row 1003 of gone")
    settings = consumer_settings(Configuration.model_validate(stage.worker().config).kafka)
    place = TopicPartition(stage.topic, 0)
    with pytest.raises(EndUnknown, match="records before that batch, from offset 0 on"):
        end_of_batch(settings, place, 3, 0)
    admin = AdminClient({"bootstrap.servers": stage.bootstrap_servers})
    for done in admin.delete_records([confluent_kafka.TopicPartition(stage.topic, 0, 3)]).values():
        done.result(10)
    assert end_of_batch(settings, place, 3, 0) == 8


def test_definitions_that_a_disk_damaged_are_passed_over_at_a_start_and_then_by_order(
    make_stage: MakeStage, broker: Broker
) -> None:
    stage = make_stage()
    ddl = broker.create_topic(f"{stage.topic}.ddl")
    producer = Producer({"bootstrap.servers": stage.bootstrap_servers, "linger.ms": 500})
    place = {"ts_ms": 5, "db": "shop", "table": "t0", "file": "bin.1"}

    def send(topic: str, *records: dict[str, Any]) -> None:
        for each in records:
            producer.produce(topic, json.dumps(each).encode(), partition=0, timestamp=each["source"]["pos"])
        assert producer.flush(30) == 0

    def definition(pos: int, statement: str) -> dict[str, Any]:
        return {"source": {**place, "pos": pos}, "databaseName": "shop", "ddl": statement}

    table = "CREATE TABLE t0 (id int primary key, text varchar(20), seq int)"
    send(ddl, definition(10, table), definition(20, "gone"))
    send(ddl, definition(50, "ALTER TABLE t0 COMMENT 'damaged'"))
    rows = [
        {"op": "c", "source": {**place, "pos": pos}, "after": {"id": pos, "text": "a", "seq": pos}}
        for pos in (30, 60)
    ]
    send(stage.topic, *rows)
    damage(broker, ddl, b"COMMENT 'damaged'")
    worker = stage.worker(format="debezium")
    worker.config["kafka"]["ddl_topics"] = [ddl]
    worker.start()

    def error() -> Any:
        return partition_of(worker, 0, ddl)["error"]

    eventually(error, what="it is told")
    assert (error()["offset"], error()["unreadable"]) == (2, True)
    assert worker.logged("ddl_batch_passed_over")
    assert stage.committed()[0] <= 0, "what is in the batch may concern all rows behind the statement before"
    skipped(worker, ddl, 2)
    eventually(lambda: stage.committed() == {0: 2}, what="the rows are done")
    assert worker.sigterm() == 0
    worker.start()
    assert worker.logged("ddl_batch_passed_over"), "each start says so"
    assert worker.sigterm() == 0
