"""`checkpoint.force` and `initial: latest` on a group of librdkafka's mock broker."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import Producer
from structlog.testing import capture_logs

from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, TopicPartition
from worker.running.components import Components


def member(
    servers: str,
    folder: Path,
    topics: Sequence[str] = ("t", "late"),
    ddl: Sequence[str] = (),
    **checkpoint: Any,
) -> Components:
    settings = configuration(
        kafka={
            "bootstrap_servers": servers,
            "group_id": topics[0],
            "topics": list(topics),
            "ddl_topics": list(ddl),
            "properties": {"log_level": 2, "partition.assignment.strategy": "cooperative-sticky"},
        },
        format="debezium",
        checkpoint={"directory": str(folder), **(checkpoint or {"force": True})},
    )
    components = Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event())
    components.kafka.attach(components.consumer)
    try:
        components.rebalancer.starts.begin(components.consumer)
    except CheckpointError:
        components.consumer.close()
        raise
    return components


def fill(servers: str, *topics: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for topic in topics:
        producer.produce(topic, b"x", partition=partition)
    assert producer.flush(10) == 0


def come_and_go(components: Components, *, commit: int | None = None, topic: str = "t") -> str:
    """The partition comes, so far is committed, and it leaves; returns where it began and by whose word."""
    place = confluent_kafka.TopicPartition(topic, 0)
    with capture_logs() as logged:
        components.rebalancer.on_assign(components.consumer, [place])
    if commit is not None:
        offsets = [confluent_kafka.TopicPartition(topic, 0, commit)]
        components.consumer.commit(offsets=offsets, asynchronous=False)
    components.rebalancer.on_lost(components.consumer, [place])
    components.consumer.incremental_unassign([place])
    (told,) = (line for line in logged if line["event"] == "partition_assigned")
    return f"{told['source']} {told['start']}"


def test_a_partition_is_forced_until_the_group_has_committed_since_the_member_began(
    mock_servers: str, tmp_path: Path
) -> None:
    first = member(mock_servers, tmp_path / "first")
    second = member(mock_servers, tmp_path / "second")
    assert come_and_go(first) == "force earliest"
    assert come_and_go(second) == "force earliest", "nothing was committed"
    assert come_and_go(first, commit=5) == "force earliest"
    assert come_and_go(second, commit=9) == "kafka 5", "it came from one that had begun anew"
    assert come_and_go(first) == "kafka 9"

    again = member(mock_servers, tmp_path / "first")
    assert come_and_go(again) == "force earliest", "each start of a worker counts"
    for each in (first, second, again):
        each.consumer.close()


def test_what_comes_to_be_while_a_forced_worker_runs_begins_as_without_force(
    mock_servers: str, tmp_path: Path
) -> None:
    components = member(mock_servers, tmp_path)
    fill(mock_servers, "late")
    assert come_and_go(components, topic="late") == "initial earliest"
    assert come_and_go(components) == "force earliest"
    components.consumer.close()


def test_topics_with_ddl_are_forced_as_those_with_rows(mock_servers: str, tmp_path: Path) -> None:
    fill(mock_servers, "rows", "ddl")
    components = member(mock_servers, tmp_path, ["rows"], ["ddl"])
    assert come_and_go(components, topic="ddl") == "force earliest"
    components.consumer.close()


def test_ddl_that_was_added_after_rows_were_read_is_not_applied_behind_them(
    mock_servers: str, tmp_path: Path
) -> None:
    """A DROP TABLE of before would remove the rows that came since."""
    fill(mock_servers, "u.rows", "u", "u.transaction", "second", "second.rows")
    first = member(mock_servers, tmp_path, ["u.rows"], initial="earliest")
    assert come_and_go(first, topic="u.rows", commit=0) == "initial earliest"
    both = member(mock_servers, tmp_path, ["u.rows"], ["u", "u.transaction"], initial="earliest")
    assert come_and_go(both, topic="u") == "initial earliest", "no row was read yet"

    assert come_and_go(first, topic="u.rows", commit=1) == "kafka 0"
    for ddl in ("u", "^u"):
        with pytest.raises(CheckpointError, match=r"^u\[0\] in kafka.* is new .*--topic u --partition 0"):
            member(mock_servers, tmp_path, ["u.rows"], [ddl], initial="latest")
    others = [
        member(mock_servers, tmp_path, ["u.rows"], ["u"], initial={"u": {0: 1}}),
        member(mock_servers, tmp_path, ["u.rows"], ["u.transaction"], initial="earliest"),
        member(mock_servers, tmp_path, ["u.rows", "second.rows"], ["second"], initial="earliest"),
    ]
    assert come_and_go(others[0], topic="u", commit=1) == "initial 1", "a person has said where"
    others.append(member(mock_servers, tmp_path, ["u.rows"], ["u"], initial="earliest"))
    assert come_and_go(others[-1], topic="u") == "kafka 1"
    for each in (first, both, *others):
        each.consumer.close()


def test_each_partition_with_ddl_needs_a_start(mock_servers: str, tmp_path: Path) -> None:
    """Maxwell spreads its statements over the partitions of their topic by database."""
    fill(mock_servers, "m", "m_ddl")
    fill(mock_servers, "m_ddl", partition=1)
    first = member(mock_servers, tmp_path, ["m"], initial="earliest")
    assert come_and_go(first, topic="m", commit=1) == "initial earliest"
    assert come_and_go(first, topic="m_ddl", commit=1) == "initial earliest"
    with pytest.raises(CheckpointError, match=r"--topic m_ddl --partition 1"):
        member(mock_servers, tmp_path, ["m"], ["m_ddl"], initial="earliest")
    first.consumer.close()


def test_marks_of_transactions_are_not_the_rows_beside_ddl(mock_servers: str, tmp_path: Path) -> None:
    """A transform has renamed the topics of the rows."""
    fill(mock_servers, "routed", "r", "r.transaction")
    first = member(mock_servers, tmp_path, ["routed"], initial="earliest")
    assert come_and_go(first, topic="routed", commit=1) == "initial earliest"
    with pytest.raises(CheckpointError, match=r"--topic r --partition 0"):
        member(mock_servers, tmp_path, ["routed"], ["r", "r.transaction"], initial="earliest")
    first.consumer.close()


def test_topics_that_come_after_the_group_began_are_read_from_their_beginning(
    mock_servers: str, tmp_path: Path
) -> None:
    """`initial: latest` would leave out the first rows of a new table."""
    fill(mock_servers, "new-a")
    first = member(mock_servers, tmp_path / "first", ["^new-"], initial="latest")
    assert come_and_go(first, topic="new-a", commit=1) == "initial 1", "the group begins"
    fill(mock_servers, "new-b")
    assert come_and_go(first, topic="new-b") == "initial earliest"
    assert come_and_go(first, topic="new-a") == "kafka 1"

    again = member(mock_servers, tmp_path / "again", ["^new-"], initial="latest")
    assert come_and_go(again, topic="new-b") == "initial earliest", "it came while no worker ran"
    named = member(mock_servers, tmp_path / "named", ["^new-", "new-b"], initial="latest")
    assert come_and_go(named, topic="new-b") == "initial 1", "a person has added it"
    for each in (first, again, named):
        each.consumer.close()


def test_a_group_that_kafka_forgot_is_known_by_its_own_store(mock_servers: str, tmp_path: Path) -> None:
    """Kafka drops the positions of a group that was stopped for a week."""
    fill(mock_servers, "forgot-a", "forgot-b")
    first = member(mock_servers, tmp_path, ["^forgot-"], initial="latest")
    first.rebalancer.starts.local.save({TopicPartition("forgot-a", 0): Checkpoint(1)}, {})
    again = member(mock_servers, tmp_path, ["^forgot-"], initial="latest")
    assert come_and_go(again, topic="forgot-a") == "file 1"
    assert come_and_go(again, topic="forgot-b") == "initial earliest", "it came while no worker ran"
    with pytest.raises(CheckpointError, match=r"^forgot-b\[0\] in kafka.ddl_topics is new"):
        member(mock_servers, tmp_path, ["^forgot-"], ["forgot-b"], initial="earliest")
    for each in (first, again):
        each.consumer.close()
