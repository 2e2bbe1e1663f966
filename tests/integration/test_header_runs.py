"""Records with a header whose name is not UTF-8. C, Go and Rust can send it. Python cannot read it."""

from __future__ import annotations

import ctypes
from contextlib import closing
from pathlib import Path
from typing import cast

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition
from integration.conftest import MakeStage
from integration.letters import letters, with_dead_letters
from integration.process import eventually
from integration.source import canal_insert
from integration.stage import Stage
from integration.test_paused_tables import ask, handled

from worker.formats.interface import UNREADABLE, Record, any_headers
from worker.local.broker import Broker


def send(stage: Stage, value: bytes) -> None:
    """By librdkafka itself: the Python client takes no such name."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    kafka = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    pointer, size = ctypes.c_void_p, ctypes.c_size_t
    for function in (kafka.rd_kafka_conf_new, kafka.rd_kafka_new, kafka.rd_kafka_headers_new):
        function.restype = pointer
    settings = pointer(kafka.rd_kafka_conf_new())
    servers = stage.bootstrap_servers.encode()
    kafka.rd_kafka_conf_set(settings, b"bootstrap.servers", servers, None, size(0))
    producer = pointer(kafka.rd_kafka_new(0, settings, None, size(0)))
    headers = pointer(kafka.rd_kafka_headers_new(size(1)))
    one = ctypes.c_ssize_t(1)
    kafka.rd_kafka_header_add(headers, b"\xe9", one, b"v", one)
    topic, end = ctypes.c_char_p(stage.topic.encode()), ctypes.c_int(0)
    parts = (1, topic, 3, end, 4, ctypes.c_char_p(value), size(len(value)), 7, 2, 10, headers, end)
    assert kafka.rd_kafka_producev(producer, *parts) == 0
    assert kafka.rd_kafka_flush(producer, 10_000) == 0
    kafka.rd_kafka_destroy(producer)


def test_one_of_a_table_that_stands_still_is_parked_and_then_handled(make_stage: MakeStage) -> None:
    stage = make_stage()
    source = stage.source()
    worker = stage.worker(
        tables=[{"match": "*", "handlers": [stage.recording()]}], lanes={"count": 2, "max_records": 50}
    ).start()
    assert ask(worker, "pause", "--table", "shop.t0").returncode == 0
    source.insert("t0", records=1)
    source.flush()
    eventually(lambda: worker.table("shop.t0").get("state") == "paused", what="it stands still")
    source.insert("t0", records=199)  # more than may stay in memory
    source.flush()
    send(stage, canal_insert("t0", [200]))
    source.insert("t1", records=100)
    source.flush()
    eventually(lambda: handled(stage, "shop.t1") == 100, what="the other table continues")
    eventually(lambda: worker.metric("binlane_parked_records") > 190, what="its records are parked")
    assert ask(worker, "resume", "--table", "shop.t0").returncode == 0
    eventually(lambda: handled(stage, "shop.t0") == 201, what="it continues")
    assert worker.sigterm() == 0


def test_one_is_noticed_after_many_that_can_be_read(make_stage: MakeStage) -> None:
    """CPython does not check specialized calls for exceptions that an extension leaves."""
    stage = make_stage()
    source = stage.source()
    source.insert("t0", records=2_000)
    source.flush()
    send(stage, canal_insert("t0", [2_000]))
    settings = {"bootstrap.servers": stage.bootstrap_servers, "group.id": "headers"}
    found: list[object] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(stage.topic, 0, 0)])
        while len(found) < 2_001:
            found += [any_headers(cast(Record, message)) for message in consumer.consume(500, 1.0)]
    assert found == [None] * 2_000 + [UNREADABLE]


def test_one_becomes_a_dead_letter_that_says_so(make_stage: MakeStage, broker: Broker) -> None:
    stage = make_stage()
    broker.create_topic(f"{stage.topic}.dead")
    failing = {"handlers": [stage.recording(fail={"shop.t0": [0]})], "retry": {"max_attempts": 1}}
    tables = [{"match": "*", **failing, "on_failure": "dead_letter"}]
    worker = stage.worker(tables=tables, dead_letter=with_dead_letters(stage)).start()
    send(stage, canal_insert("t0", [0]))
    stage.wait_committed_to_the_end()
    [letter] = letters(stage)
    assert (letter.headers() or [])[0] == ("binlane.headers", b"could not be read")
    assert len(worker.logged("headers_unreadable")) == 1
    assert worker.sigterm() == 0
