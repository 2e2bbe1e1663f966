"""The broker is away, the topic is missing, the offsets are gone, the records are no records."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from integration.checkers import NothingLost, NothingTwice, TableOrder
from integration.conftest import MakeStage
from integration.process import WorkerProcess, eventually
from integration.stage import Stage

from worker.local.broker import Broker
from worker.local.broker_settings import free_port


def loud_lines(worker: WorkerProcess, *words: str) -> list[str]:
    """Warnings and errors of the log that hold all these words."""
    lines = [
        str(line) for line in worker.log_lines() if line.get("level") in ("warning", "error", "critical")
    ]
    return [line for line in lines if all(word in line for word in words)]


def test_a_worker_waits_for_a_broker_that_is_not_there_yet(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    stage = Stage(broker.bootstrap_servers, "cdc.late", 1, tmp_path / "late")
    worker = stage.worker().start(ready=False)
    try:
        # librdkafka tells the same error of a broker once in a while, and waits longer with each try.
        eventually(
            lambda: len(loud_lines(worker, broker.bootstrap_servers)) >= 2,
            within=90,
            what="a line for each try",
        )
        assert not worker.ready()
        assert worker.healthy()
        assert worker.status()["state"] == "starting"
        assert "Traceback" not in worker.log_text()

        broker.start()
        broker.create_topic("cdc.late")
        source = stage.source()
        source.insert("t0", records=10)
        source.flush()
        worker.wait_ready(within=60)
        stage.wait_rows(10)
        stage.wait_committed_to_the_end()
        assert worker.sigterm() == 0
        stage.check(NothingLost(source.rows), NothingTwice())
    finally:
        stage.close()
        broker.close()


def test_a_drain_without_a_broker_ends_in_time(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker")
    stage = Stage(broker.bootstrap_servers, "cdc.never", 1, tmp_path / "never")
    worker = stage.worker(shutdown_timeout="3s").start(ready=False)
    try:
        eventually(lambda: worker.url)
        assert worker.sigterm(within=10) == 0
    finally:
        stage.close()


def test_a_broker_that_restarts_costs_nothing(tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker:
        broker.create_topic("cdc.shop")
        stage = Stage(broker.bootstrap_servers, "cdc.shop", 1, tmp_path / "stage")
        try:
            source = stage.source()
            source.insert("t0", records=50)
            source.flush()
            often = {"statistics.interval.ms": 200}
            worker = stage.worker(handlers=[stage.recording(row_sleep=0.02)], properties=often).start()
            stage.wait_rows(10)
            eventually(lambda: worker.metric("binlane_kafka_up") == 1)
            broker.stop()
            eventually(lambda: loud_lines(worker), what="the outage shows in the log")
            eventually(lambda: worker.metric("binlane_kafka_up") == 0)
            assert worker.healthy()
            broker.start()
            eventually(lambda: worker.metric("binlane_kafka_up") == 1)
            source.insert("t0", records=50)
            source.flush()
            stage.wait_rows(100)
            stage.wait_committed_to_the_end()
            assert worker.sigterm() == 0
            stage.check(NothingLost(source.rows), TableOrder())
        finally:
            stage.close()


def test_a_missing_topic_is_said_and_read_when_it_comes(make_stage: MakeStage, broker: Broker) -> None:
    stage = make_stage(create=False)
    worker = stage.worker().start(ready=False)
    eventually(lambda: loud_lines(worker, stage.topic), what="the missing topic is named")
    assert worker.healthy()

    broker.create_topic(stage.topic)
    source = stage.source()
    source.insert("t0", records=5)
    source.flush()
    stage.wait_rows(5)
    stage.wait_committed_to_the_end()


def test_offsets_that_have_expired_are_told_with_what_is_done(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=10)
    source.flush()
    worker = stage.worker().start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    source.insert("t0", records=20)
    source.flush()
    admin = AdminClient({"bootstrap.servers": stage.bootstrap_servers})
    for done in admin.delete_records([TopicPartition(stage.topic, 0, 20)]).values():
        done.result(10)

    worker.start()
    stage.wait_committed_to_the_end()
    assert stage.run.seqs()["shop.t0"] == [*range(10), *range(20, 30)]
    told = loud_lines(worker, stage.topic, "10", "20")
    assert told, "what was wanted (offset 10), and where it goes on (20)"


def test_an_undecodable_record_stops_the_worker_and_names_its_place(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=3)
    source.send(b"no JSON at all")
    source.flush()
    worker = stage.worker(on_undecodable="halt").start(ready=False)

    assert worker.wait() == 1
    assert loud_lines(worker, f"undecodable record at {stage.topic}[0] offset 3")
    assert "Traceback" not in worker.log_text()
    assert stage.committed() == {0: 3}
    assert stage.run.seqs() == {"shop.t0": [0, 1, 2]}


def test_what_waits_before_an_undecodable_record_is_finished_before_the_worker_stops(stage: Stage) -> None:
    source = stage.source()
    for table in ("t0", "t1", "t2"):
        source.insert(table, records=20)
    source.send(b"no JSON at all")
    source.insert("t0", records=5)
    source.flush()
    worker = stage.worker(
        on_undecodable="halt",
        lanes={"count": 2, "max_records": 15},
        batch={"max_records": 10, "max_wait": "1m"},
        handlers=[stage.recording(row_sleep=0.01)],
    ).start(ready=False)

    assert worker.wait() == 1
    assert stage.run.seqs() == {f"shop.t{n}": list(range(20)) for n in range(3)}
    assert stage.committed() == {0: 60}


def test_an_undecodable_record_is_counted_when_it_is_to_be_skipped(stage: Stage) -> None:
    source = stage.source()
    source.insert("t0", records=3)
    for value in (
        b"no JSON at all",
        b"{}",
        b'{"database": "shop", "table": "t0", "data": 5, "type": "INSERT"}',
    ):
        source.send(value)
    source.insert("t0", records=3)
    source.flush()
    worker = stage.worker(on_undecodable="skip").start()

    stage.wait_committed_to_the_end()
    assert worker.metric("binlane_records_skipped_total", reason="undecodable") == 3
    assert len(loud_lines(worker, stage.topic)) >= 1
    assert worker.sigterm() == 0
    stage.check(NothingLost(source.rows), TableOrder(), NothingTwice())


@pytest.mark.soak
def test_wrong_credentials_are_said(tmp_path: Path) -> None:
    ports: set[int] = set()
    while len(ports) < 3:  # each call chooses at random, so two may choose the same one
        ports.add(free_port())
    port, controller, sasl = ports
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CLIENTS://127.0.0.1:{sasl}"
    overrides = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": f'{login} required user_shop="right";',
    }
    with Broker(tmp_path / "broker", port, overrides) as broker:
        stage = Stage(broker.bootstrap_servers, broker.create_topic("cdc.shop"), 1, tmp_path / "stage")
        try:
            login_as = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "shop",
            }
            worker = stage.worker(properties={**login_as, "sasl.password": "not-the-password"})
            worker.config["kafka"]["bootstrap_servers"] = f"127.0.0.1:{sasl}"
            worker.start(ready=False)
            eventually(lambda: loud_lines(worker, "uthentication failed"), what="the cause is named")
            assert not worker.ready()
            assert worker.healthy()
            assert "not-the-password" not in worker.log_text()
            worker.kill9()

            worker.config["kafka"]["properties"]["sasl.password"] = "right"
            source = stage.source()
            source.insert("t0", records=5)
            source.flush()
            worker.start()
            stage.wait_rows(5)
            assert worker.sigterm() == 0
        finally:
            stage.close()
