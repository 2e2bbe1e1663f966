"""The local broker: real, quick to take up and put down, and never left behind."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from worker.local.broker import Broker, BrokerError

# `binlane broker` as a process, without the rest of the command line.
COMMAND = "import typer; from worker.commands.local import broker; typer.run(broker)"
END_SECONDS = 10


def produce(broker: Broker, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def consume(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()


def ends(process: psutil.Process) -> bool:
    _, alive = psutil.wait_procs([process], timeout=END_SECONDS)
    return not alive or process.status() == psutil.STATUS_ZOMBIE


def java_below(parent: int) -> psutil.Process:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for process in psutil.Process(parent).children(recursive=True):
            with contextlib.suppress(psutil.ZombieProcess, psutil.NoSuchProcess):  # it has just ended
                if process.name() == "java" and "kafka.Kafka" in process.cmdline():
                    return process
        time.sleep(0.05)
    raise AssertionError("no Java process was started")


def has_ended(process: psutil.Process) -> bool:
    """Whoever inherits an ended process may not have looked at it yet."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    return True


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `binlane broker`; what a failed test leaves running is ended."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def address_said_by(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Kafka is ready at 127.0.0.1:"), process.communicate()
    return line.split()[4]


def test_a_record_that_was_produced_is_consumed(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"one", b"two")

    assert consume(broker, topic, 2) == [b"one", b"two"]


def test_every_topic_made_is_a_new_one_with_the_partitions_and_settings_asked_for(
    broker: Broker, make_topic: Callable[..., str]
) -> None:
    first, second = make_topic(partitions=3), make_topic(cleanup_policy="compact")

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "looker"})
    topics = consumer.list_topics(timeout=10).topics
    consumer.close()
    assert first != second
    assert len(topics[first].partitions) == 3
    assert len(topics[second].partitions) == 1


def test_a_topic_with_an_impossible_setting_is_refused_by_name(broker: Broker) -> None:
    with pytest.raises(BrokerError, match=r"'odd' cannot be created.*cleanup\.policy"):
        broker.create_topic("odd", cleanup_policy="sometimes")


def test_a_topic_nobody_made_does_not_come_into_being(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 1500})
    errors = []
    producer.produce("never-made", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)

    assert errors[0] is not None
    assert "never-made" not in producer.list_topics(timeout=10).topics


def test_the_new_consumer_protocol_is_there(broker: Broker, topic: str) -> None:
    produce(broker, topic, b"one")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        (message,) = consumer.consume(1, 60)
        assert message.value() == b"one"
    finally:
        consumer.close()


@pytest.mark.soak
def test_a_given_folder_keeps_address_and_records_over_a_stop_and_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "folder, with a comma"
    with Broker(folder) as node:
        address = node.bootstrap_servers
        node.create_topic("kept")
        produce(node, "kept", b"before the stop")
        node.restart()
        produce(node, "kept", b"before the kill")
        node.kill()
        assert not node.running
        node.start()
        assert node.bootstrap_servers == address
        assert consume(node, "kept", 2) == [b"before the stop", b"before the kill"]
        java = psutil.Process(node.pid)

    assert ends(java)
    assert (folder / "data" / "meta.properties").exists()


def test_a_broker_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    # The formatting does not mind this listener, the start does.
    node = Broker(tmp_path, overrides={"advertised.listeners": "PLAINTEXT://0.0.0.0:1"})

    before = psutil.Process().children(recursive=True)

    with pytest.raises(BrokerError, match=r"advertised\.listeners cannot use the nonroutable"):
        node.start()

    assert not node.running
    assert psutil.Process().children(recursive=True) == before


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"^port {port} of 127\.0\.0\.1 is in use"):
            Broker(tmp_path / "folder", port).start()

    assert not (tmp_path / "folder").exists()


def test_java_ends_when_its_parent_is_killed(command: Callable[..., subprocess.Popen[str]]) -> None:
    parent = command()
    address_said_by(parent)
    java = java_below(parent.pid)
    folder = Path(java.cwd())
    guard = java.parent()
    assert guard is not None

    parent.kill()

    assert ends(java)
    assert ends(guard)
    assert not folder.exists(), "its temporary folder is left behind"


def test_java_ends_when_its_parent_is_killed_while_it_starts(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    parent = command()
    java = java_below(parent.pid)

    parent.kill()

    assert ends(java)


@pytest.mark.soak  # it waits for what its sibling shows in a moment
def test_java_ends_when_its_guard_is_killed(command: Callable[..., subprocess.Popen[str]]) -> None:
    parent = command()
    address_said_by(parent)
    java = java_below(parent.pid)
    guard = java.parent()
    assert guard is not None

    guard.kill()

    assert ends(java)
    _, errors = parent.communicate(timeout=END_SECONDS)
    assert parent.returncode == 1
    assert "Kafka stopped unexpectedly" in errors


def test_sigterm_stops_the_command_cleanly(
    tmp_path: Path, command: Callable[..., subprocess.Popen[str]]
) -> None:
    process = command("--directory", str(tmp_path))
    host, port = address_said_by(process).split(":")
    socket.create_connection((host, int(port)), timeout=5).close()
    java = java_below(process.pid)

    process.terminate()

    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert output.endswith("Kafka has stopped.\n")
    assert has_ended(java)


def test_ctrl_c_while_kafka_starts_stops_the_command_cleanly(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    process = command()
    java = java_below(process.pid)

    process.send_signal(signal.SIGINT)

    output, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert output == "Kafka has stopped.\n"
    assert has_ended(java)


def test_the_command_listens_at_the_port_it_was_given_and_refuses_one_in_use(
    broker: Broker, command: Callable[..., subprocess.Popen[str]]
) -> None:
    process = command("--port", str(broker.port))

    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert errors.startswith(f"binlane broker: port {broker.port} of 127.0.0.1 is in use")
    assert "Traceback" not in errors
