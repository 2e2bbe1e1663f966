"""Kafka's ids of topics, asked of a real broker; and of one that is late, or behind."""

from __future__ import annotations

import threading
import time

from confluent_kafka.admin import AdminClient
from integration.process import eventually
from structlog.testing import capture_logs
from told_ids import Brokers

from offsets.topic_ids import TopicIds
from worker.local.broker import Broker


def test_a_topic_made_anew_has_another_id(broker: Broker, group: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    ids = TopicIds(admin)
    broker.create_topic(group)
    first = ids.now([group], 20)[group]
    assert ids.now([group], 20) == {group: first}
    assert ids.seen(group) == first, "whoever asked"
    ids.look([group], 20)
    assert eventually(lambda: ids.seen(group)) == first

    admin.delete_topics([group])[group].result(20)
    with capture_logs() as logs:
        eventually(lambda: ids.now([group], 20) == {})
    assert {(each["event"], each["topic"]) for each in logs} == {("topic_id_unknown", group)}
    ids.look([group], 20)
    time.sleep(0.2)
    assert ids.seen(group) == first, "what is gone has no other id yet"
    broker.create_topic(group)
    second = ids.now([group], 20)[group]
    assert second != first
    ids.look([group], 20)
    eventually(lambda: ids.seen(group) == second)


def test_a_broker_that_does_not_answer_is_waited_for_only_so_long() -> None:
    beats = []
    begun = time.monotonic()
    with capture_logs() as logs:
        ids = TopicIds(AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}))
        found = ids.now(["cdc.shop", "cdc.stock"], 0.7, lambda: beats.append(time.monotonic()))
    assert found == {}
    assert time.monotonic() - begun < 20
    again = time.monotonic()
    assert ids.now(["cdc.shop"], 60) == {}
    assert time.monotonic() - again < 30, "nobody waits as long again"
    assert len(beats) >= 2
    assert [each["topic"] for each in logs] == ["cdc.shop", "cdc.stock"]


def test_an_id_that_a_newer_one_has_followed_never_comes_again() -> None:
    brokers = Brokers("one")
    ids = TopicIds(brokers)
    ids.look(["t"], 1)
    assert ids.seen("t") == "one"
    ids.look(["t"], 1)  # answered, and not looked at yet
    brokers.topic_id = "two"
    assert ids.now(["t"], 1) == {"t": "two"}
    assert ids.seen("t") == "two", "what was asked before tells nothing newer"
    brokers.topic_id = "one"
    assert ids.now(["t"], 1) == {"t": "two"}, "a broker that has not heard of it yet"
    ids.look(["t"], 1)
    assert ids.seen("t") == "two"


def test_an_id_that_was_remembered_from_before_never_comes_again() -> None:
    brokers = Brokers("two")
    ids = TopicIds(brokers)
    ids.now(["t"], 1)
    ids.former("t", "one")
    brokers.topic_id = "one"
    assert ids.now(["t"], 1) == {"t": "two"}
    brokers.topic_id = "three"
    assert ids.now(["t"], 1) == {"t": "three"}


def test_brokers_that_have_answered_late_are_waited_for_again() -> None:
    brokers = Brokers(None)
    ids = TopicIds(brokers)
    assert ids.now(["t"], 0.01) == {}
    (late,) = brokers.unanswered
    brokers.answer(late, "one")
    timer = threading.Timer(0.4, lambda: brokers.answer(brokers.unanswered[-1], "one"))
    timer.start()
    assert ids.now(["t"], 10) == {"t": "one"}
    timer.join()
