"""A partition that is not read for no reason is told after a minute, begun anew, and then fails /healthz.

On librdkafka and its mock broker; only the minutes are not real.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from structlog.testing import capture_logs

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.fetching.standstill import Standstill
from worker.formats.registry import get
from worker.local.broker import Broker
from worker.local.broker_settings import free_port
from worker.partitions.stage import Failure
from worker.running.components import Components
from worker.running.worker import Worker
from worker.units.assigned_partition import Assignment

PATIENCE = 90
"""Seconds: a minute, and what passes before the partition is looked at at all."""


def tell_error(
    watch: Standstill, assignment: Assignment, error: KafkaError, offset: int | None = None
) -> None:
    watch.failed(Failure(error, assignment.partition.topic, assignment, offset))


class Watched:
    """The partitions 0 and 1 of a topic, as a fetcher has them, read by hand."""

    def __init__(
        self, servers: str, topic: str, folder: Path, properties: dict[str, object] | None = None
    ) -> None:
        self.clock = Clock()
        self.topic = topic
        settings = configuration(
            kafka={
                "bootstrap_servers": servers,
                "group_id": "watched",
                "topics": [topic],
                "properties": {"fetch.wait.max.ms": 20, "log_level": 2, **(properties or {})},
            },
            checkpoint={"directory": str(folder)},
        )
        self.components = Components(settings, clock=self.clock, fail=pytest.fail, stop=threading.Event())
        self.consumer = self.components.consumer
        self.watch = self.components.standstill
        self.hindered = False
        self.watch.is_hindered = lambda: self.hindered
        start = Start(0, (), "kafka", "")
        self.assignments = [
            Assignment(TopicPartition(topic, number), 1, start, get("canal")) for number in range(2)
        ]
        self.components.assignments.add(self.assignments)
        self.consumer.incremental_assign(self.places(offset=0))
        self.logged: list[Any] = []
        self.held = 0.0
        """So long of each second the lanes are full."""

    def places(self, offset: int = OFFSET_INVALID) -> list[confluent_kafka.TopicPartition]:
        return [confluent_kafka.TopicPartition(*each.partition, offset) for each in self.assignments]

    def read(self, seconds: float = 0.05) -> None:
        """What has come, as the fetcher notes it."""
        for message in self.consumer.consume(500, seconds):
            number, offset, error = message.partition(), message.offset(), message.error()
            if number is None or offset is None:  # of the broker as a whole
                continue
            assignment = self.assignments[number]
            if error is None:
                assignment.tracker.reach(offset + 1)
                assignment.consumed += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                assignment.tracker.reach(offset)
                self.watch.ended(assignment, offset)
            else:
                tell_error(self.watch, assignment, error, offset)

    def read_all(self, records: int) -> None:
        end = time.monotonic() + 10
        while any(each.tracker.next_offset != records for each in self.assignments):
            assert time.monotonic() < end
            self.read()

    def read_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + 20
        while not done():
            assert time.monotonic() < end
            self.read()
            self.wait(1)

    def wait(self, seconds: int, meanwhile: Callable[[], object] = lambda: None) -> list[str]:
        """So many seconds pass; returns what was logged in them."""
        with capture_logs() as logged:
            for _ in range(seconds):
                self.hindered = True
                self.watch.between_polls(self.clock.now)
                self.hindered = False
                self.clock.now += self.held
                self.watch.between_polls(self.clock.now)
                self.clock.now += 1 - self.held
                meanwhile()
                self.watch.between_polls(self.clock.now)
        self.logged = logged
        return [line["event"] for line in logged if line["log_level"] != "debug"]

    def seconds(self) -> list[float]:
        return [self.watch.seconds(each) for each in self.assignments]


NO_LEADER = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)

Send = Callable[[int], None]

_numbers = itertools.count(1)


@pytest.fixture
def topic() -> str:
    return f"standstill-{next(_numbers)}"


@pytest.fixture
def send(mock_servers: str, topic: str) -> Send:
    """One record to this partition of the test's topic."""
    producer = Producer({"bootstrap.servers": mock_servers})

    def to(partition: int) -> None:
        producer.produce(topic, b"x", partition=partition)
        assert producer.flush(10) == 0

    return to


@pytest.fixture
def watched(mock_servers: str, send: Send, tmp_path: Path, topic: str) -> Iterator[Watched]:
    send(0)
    send(1)
    made = Watched(mock_servers, topic, tmp_path)
    made.read_all(1)
    yield made
    made.consumer.close()


def forget_one(watched: Watched) -> None:
    """The defect: librdkafka holds partition 1 paused, and nobody knows."""
    watched.consumer.pause(watched.places()[1:])


def test_a_partition_that_is_forgotten_while_others_are_busy_is_told_and_begun_anew(
    watched: Watched, send: Send
) -> None:
    forget_one(watched)
    send(1)

    def busy() -> None:
        watched.assignments[0].consumed += 1

    events = watched.wait(PATIENCE, busy)
    assert events.count("standstill") == 1
    told = next(line for line in watched.logged if line["event"] == "standstill")
    assert (told["partition"], told["position"], told["end"]) == (str(watched.assignments[1].partition), 1, 2)
    first, second = watched.seconds()
    assert first == 0
    assert second >= 60
    assert watched.watch.reason is None, "it may help"

    watched.read_all(1)
    end = time.monotonic() + 10
    while watched.assignments[1].tracker.next_offset != 2 and time.monotonic() < end:
        watched.read()
    assert watched.assignments[1].tracker.next_offset == 2
    assert watched.wait(1) == ["standstill_over"]
    assert watched.seconds() == [0, 0]


def test_a_partition_that_is_forgotten_behind_a_backlog_is_told_once_the_lanes_had_room_for_so_long(
    watched: Watched, send: Send
) -> None:
    forget_one(watched)
    send(1)

    def busy() -> None:
        watched.assignments[0].consumed += 1

    watched.held = 0.75
    assert watched.wait(3 * PATIENCE, busy) == []
    assert watched.wait(PATIENCE, busy) == ["standstill"]
    first, second = watched.seconds()
    assert first == 0
    assert second >= 60


def test_where_that_does_not_help_the_worker_is_not_healthy_until_something_comes(
    watched: Watched, send: Send
) -> None:
    forget_one(watched)
    send(1)
    watched.wait(PATIENCE)
    forget_one(watched)
    watched.wait(60)
    assert watched.watch.reason is not None
    assert f"{watched.assignments[1].partition} has not been read for" in watched.watch.reason
    assert str(watched.assignments[0].partition) not in watched.watch.reason

    watched.consumer.resume(watched.places())
    watched.assignments[1].tracker.reach(2)
    watched.wait(1)
    assert watched.watch.reason is None


def test_a_partition_that_never_brought_anything_is_told_as_well(
    watched: Watched, mock_servers: str, tmp_path: Path
) -> None:
    fresh = Watched(mock_servers, watched.topic, tmp_path)
    fresh.consumer.pause(fresh.places())
    assert fresh.wait(PATIENCE).count("standstill") == 2
    fresh.consumer.close()


def test_a_partition_that_is_read_to_its_end_stands_still_for_a_reason(watched: Watched) -> None:
    assert watched.wait(3 * PATIENCE) == []
    assert watched.seconds() == [0, 0]


@pytest.mark.parametrize("reason", ["the lanes are full", "it is ahead of others", "Kafka told why"])
def test_a_partition_that_is_not_read_for_a_reason_is_no_standstill(
    watched: Watched, send: Send, reason: str
) -> None:
    forget_one(watched)
    send(1)

    def hinder() -> None:
        if reason == "the lanes are full":
            watched.held = 1
        elif reason == "it is ahead of others":
            watched.components.pauses.single("ddl_topics", [watched.assignments[1]])
        else:
            tell_error(watched.watch, watched.assignments[1], NO_LEADER)

    assert "standstill" not in watched.wait(3 * PATIENCE, hinder)
    assert watched.seconds() == [0, 0]


def test_an_error_explains_for_a_while_only_that_nothing_comes(watched: Watched, send: Send) -> None:
    forget_one(watched)
    send(1)
    watched.wait(1)
    tell_error(watched.watch, watched.assignments[1], NO_LEADER)
    assert watched.wait(PATIENCE) == []
    assert watched.wait(PATIENCE) == ["standstill"]


def test_an_error_that_lasts_is_known_though_it_explains_that_nothing_comes(
    watched: Watched, send: Send
) -> None:
    forget_one(watched)
    send(1)
    watched.wait(PATIENCE, lambda: tell_error(watched.watch, watched.assignments[1], NO_LEADER))
    told = watched.watch.error(watched.assignments[1])
    assert told is not None
    assert (told.code, told.unreadable) == ("LEADER_NOT_AVAILABLE", False)
    assert told.seconds >= 60
    assert watched.watch.error(watched.assignments[0]) is None
    watched.assignments[1].tracker.reach(2)
    watched.wait(1)
    assert watched.watch.error(watched.assignments[1]) is None, "it has brought something"


def test_an_error_that_does_not_mend_by_itself_excuses_no_standstill_and_fails_no_worker(
    watched: Watched, send: Send
) -> None:
    forget_one(watched)
    send(1)
    bad = KafkaError(KafkaError._BAD_COMPRESSION)
    refuse = lambda: tell_error(watched.watch, watched.assignments[1], bad, 1)  # noqa: E731
    assert watched.wait(2 * PATIENCE, refuse) == ["standstill"]
    assert watched.seconds()[1] >= 60
    assert watched.watch.reason is None, "a restart of the worker helps nobody"
    told = watched.watch.error(watched.assignments[1])
    assert told is not None
    assert (told.code, told.offset, told.unreadable) == ("_BAD_COMPRESSION", 1, True)
    assert told.seconds >= 60


def test_what_follows_from_a_damaged_batch_does_not_hide_it(watched: Watched) -> None:
    one = watched.assignments[1]
    tell_error(watched.watch, one, KafkaError(KafkaError._BAD_MSG), 1)
    tell_error(watched.watch, one, KafkaError(KafkaError._NOT_IMPLEMENTED), 5279155862013018150)
    reached = {"next_offset": 5279155862013018151, "rxmsgs": 1}
    for next_offset in (1, 5279155862013018151):
        reached["next_offset"] = next_offset
        watched.watch.statistics(json.dumps({"topics": {watched.topic: {"partitions": {"1": reached}}}}))
        watched.wait(1)
    told = watched.watch.error(one)
    assert told is not None
    assert (told.code, told.offset) == ("_BAD_MSG", 1)


def test_what_may_not_be_read_stands_still_for_a_reason_until_the_right_is_given_back(
    tmp_path: Path,
) -> None:
    """Kafka tells it once, and nothing new comes when it is over."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with Broker(overrides=rules) as broker:
        topic, admin = (
            broker.create_topic("t", 2),
            AdminClient({"bootstrap.servers": broker.bootstrap_servers}),
        )
        watched = Watched(broker.bootstrap_servers, topic, tmp_path)
        one, where = watched.assignments[1], (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        watched.read_all(0)
        # It may describe the topic: else the consumer sometimes tells of a partition that it does not know.
        rights = [(AclOperation.READ, AclPermissionType.DENY)]
        rights += [(each, AclPermissionType.ALLOW) for each in (AclOperation.DESCRIBE, AclOperation.WRITE)]
        made = admin.create_acls([AclBinding(*where, "User:ANONYMOUS", "*", *each) for each in rights])
        for one_made in made.values():
            one_made.result(10)
        watched.read_until(lambda: watched.watch.error(one) is not None)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce(topic, b"x", partition=1)
        assert producer.flush(10) == 0
        assert watched.wait(3 * PATIENCE) == []
        told = watched.watch.error(one)
        assert told is not None
        assert (told.code, told.unreadable) == ("TOPIC_AUTHORIZATION_FAILED", False)
        every = (AclOperation.ANY, AclPermissionType.ANY)
        for gone in admin.delete_acls([AclBindingFilter(*where, None, None, *every)]).values():
            gone.result(10)
        other = watched.assignments[0]
        watched.read_until(lambda: watched.watch.error(other) is None)
        watched.consumer.close()


class LeaderAway:
    """The consumer, when the leader of partition 99 is away: a question that is about it, too, times out."""

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def offsets_for_times(self, places: list[confluent_kafka.TopicPartition], timeout: float) -> Any:
        if any(place.partition == 99 for place in places):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self._consumer.offsets_for_times(places, timeout=timeout)


def test_a_partition_that_kafka_does_not_answer_for_hides_no_other(watched: Watched, send: Send) -> None:
    gone = Assignment(TopicPartition(watched.topic, 99), 1, Start(0, (), "kafka", ""), get("canal"))
    watched.components.assignments.add([gone])
    watched.watch.consumer = LeaderAway(watched.consumer)  # type: ignore[assignment]
    forget_one(watched)
    send(1)
    assert watched.wait(PATIENCE) == ["standstill"]
    first, second = watched.seconds()
    assert (first, watched.watch.seconds(gone)) == (0, 0)
    assert second >= 60
    told = watched.watch.error(gone)
    assert told is not None
    assert (told.code, told.unreadable) == ("_TIMED_OUT", False)
    assert told.seconds >= 60, "an error of its own, which it is not read for"


def test_an_end_of_a_log_that_was_cut_off_since_hides_nothing_and_is_no_place_to_go_on_at(
    mock_servers: str, send: Send, tmp_path: Path, topic: str
) -> None:
    for _ in range(3):
        send(0)
        send(1)
    watched = Watched(mock_servers, topic, tmp_path)
    watched.read_all(3)
    one = watched.assignments[1]
    watched.watch.ended(one, 5)  # of what is no more
    watched.wait(1)
    one.restart_at(1)
    watched.components.refetching.restart(one, 1)
    forget_one(watched)
    assert watched.wait(PATIENCE) == ["standstill"], "it stands at 1 of 3"
    assert (watched.logged[0]["position"], watched.logged[0]["end"]) == (1, 3)
    watched.consumer.close()


def test_time_counts_only_while_the_process_runs(watched: Watched, send: Send) -> None:
    forget_one(watched)
    send(1)
    watched.wait(30)
    watched.clock.now += 3600  # frozen, or the machine slept
    assert watched.wait(10) == []


def test_no_partition_stands_still_while_kafka_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.fetching.standstill._ANSWER_SECONDS", 0.05)
    away = Watched(f"127.0.0.1:{free_port()}", "t", tmp_path)
    assert away.wait(PATIENCE) == []
    assert away.seconds() == [0, 0]
    away.consumer.close()


def test_what_an_open_transaction_keeps_back_is_no_standstill(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(2):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(topic, b"x", partition=partition)
        producer.flush(10)
        if number == 0:
            producer.commit_transaction(30)
    watched = Watched(broker.bootstrap_servers, topic, tmp_path)
    watched.read_all(2)  # a record and the end of its transaction; behind them the open one
    assert watched.wait(2 * PATIENCE) == []
    producer.commit_transaction(30)
    assert watched.wait(PATIENCE).count("standstill") == 2, "nobody reads them"
    watched.consumer.close()


def test_a_long_way_through_aborted_transactions_is_progress(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(2)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": topic,
            "batch.num.messages": 1,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(400):
        producer.produce(topic, b"x" * 1000, partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(30)
    one_batch = {"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 1100, "message.max.bytes": 1000}
    properties = {**one_batch, "statistics.interval.ms": 5}
    watched = Watched(broker.bootstrap_servers, topic, tmp_path, properties)
    reports: list[str] = []
    notice, watched.watch.statistics = watched.watch.statistics, reports.append  # type: ignore[method-assign]
    events: list[str] = []
    way = -1
    end = time.monotonic() + 60
    while watched.assignments[0].consumed == 0 and time.monotonic() < end:
        watched.read(0.005)
        for report in reports:  # each for itself, however late this thread came to read them
            notice(report)
            reached = json.loads(report)["topics"].get(topic, {}).get("partitions", {}).get("0", {})
            if reached.get("next_offset", -1) != way:  # slowly, but on its way
                way = reached.get("next_offset", -1)
                events += watched.wait(40)
        reports.clear()
    assert watched.assignments[0].consumed == 1
    assert watched.clock.now - Clock().now > PATIENCE, "it took long enough to be taken for a standstill"
    assert events == []
    watched.consumer.close()


def test_records_that_are_fetched_and_never_come_are_no_progress(watched: Watched, send: Send) -> None:
    forget_one(watched)
    send(1)
    fetched = itertools.count(1)

    def told() -> None:
        reached = next(fetched)
        partition = {"next_offset": reached, "rxmsgs": reached}
        watched.watch.statistics(json.dumps({"topics": {watched.topic: {"partitions": {"1": partition}}}}))

    assert watched.wait(PATIENCE, told) == ["standstill"]


def test_a_worker_with_such_a_partition_is_not_healthy(mock_servers: str, tmp_path: Path) -> None:
    worker = Worker(
        configuration(
            kafka={"bootstrap_servers": mock_servers, "group_id": "sick", "topics": ["t"]},
            checkpoint={"directory": str(tmp_path)},
        )
    )
    worker._start_threads()
    try:
        assert worker.health() is None
        worker.components.standstill.between_polls = lambda now: None  # type: ignore[method-assign]
        worker.components.standstill.reason = "t[1] has not been read for 95 s"
        assert worker.health() == "t[1] has not been read for 95 s"
    finally:
        worker.stop()
        assert worker._drain() == 0
