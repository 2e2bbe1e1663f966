"""A commit of several topics, of which a real Kafka refuses one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from offsets.restore import Start
from offsets.stores.file import FileStore
from offsets.stores.polled import PolledKafkaStore
from offsets.types import TopicPartition
from worker.formats.registry import get
from worker.local.broker import Broker
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.units.assigned_partition import Assignment, Assignments


@pytest.mark.parametrize("in_rebalance", [True, False])
def test_a_refused_topic_keeps_no_other_from_beginning(
    broker: Broker, tmp_path: Path, in_rebalance: bool
) -> None:
    """librdkafka reports the one topic's error for all of them."""
    topics = [broker.create_topic(f"refused-{in_rebalance}-{number}") for number in range(5)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics([topics[1]])[topics[1]].result(30)
    store, assignments = PolledKafkaStore(10.0), Assignments()
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topics[0], "log_level": 2}
    consumer = Consumer({**settings, "on_commit": store.answered})
    store.attach(consumer)
    start = Start(0, (), "initial", "a test")
    assignments.add(Assignment(TopicPartition(each, 0), 1, start, get("canal")) for each in topics)
    committer = Committer(
        assignments,
        FileStore(tmp_path, topics[0]),
        store,
        interval=1e6,
        metrics=Metrics(),
        clock=time.monotonic,
        fail=pytest.fail,
    )
    if in_rebalance:
        assert not committer.commit()
    else:
        committer.start()
        committer.wake()
        end = time.monotonic() + 30
        while sum(each.may_begin for each in assignments.current()) < 4 and time.monotonic() < end:
            store.serve()
            consumer.poll(0.01)
        store.interrupt()
        committer.stop()
        committer.join(10)
    begun = {each.partition.topic: each.may_begin for each in assignments.current()}
    assert begun == {each: each != topics[1] for each in topics}
    assert topics[1] in (committer.status().last_error or "")
    assert topics[0] not in (committer.status().last_error or "")
    consumer.close()
