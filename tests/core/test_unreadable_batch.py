"""An order to pass over a batch that cannot be read passes over nothing that could be read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from building import configuration
from confluent_kafka import Consumer, KafkaError, Message
from mock_brokers import mock_brokers
from structlog.testing import capture_logs
from test_receiving_held import Reading

from handlers.kafka.librdkafka import close_in_time
from offsets.restore import Start
from offsets.types import Checkpoint, TopicPartition
from worker.kafka.unreadable_batch import EndUnknown, LastingError, end_of_batch
from worker.observing.unblock_messages import UnblockAnswer, UnblockRequest
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

BAD, END = 10, 12
"""Where the batch begins and ends."""


def record(offset: int) -> Message:
    return Message(topic="rows", partition=0, offset=offset, value=str(offset).encode(), timestamp=(1, 1))


class Site:
    """A worker's fetcher with the partition of a topic of rows and that of its DDL, both from offset 0."""

    def __init__(self, folder: Path) -> None:
        settings = configuration(
            kafka={
                "bootstrap_servers": "127.0.0.1:1",
                "group_id": "held",
                "topics": ["rows"],
                "ddl_topics": ["ddl"],
                "properties": {"log_level": 0},
            },
            format="debezium",
            checkpoint={"directory": str(folder)},
        )
        self.parts = Components(settings, clock=lambda: 1.0, fail=pytest.fail, stop=threading.Event())
        self.format = Reading()
        self.format.unknown = 0
        start = Start(0, (), "initial", "for the test")
        self.rows, ddl = (
            Assignment(TopicPartition(topic, 0), 1, start, cast(Any, self.format))
            for topic in ("rows", "ddl")
        )
        for each in (self.rows, ddl):
            each.in_kafka = Checkpoint(0)
        self.parts.assignments.add([self.rows, ddl])
        cast(Any, self.parts.order).assigned([self.rows, ddl])
        self.fails(BAD)

    def fails(self, offset: int, topic: str = "rows") -> None:
        error = KafkaError(KafkaError._BAD_MSG)
        self.receive(Message(topic=topic, partition=0, offset=offset, error=error, timestamp=(1, 1)))

    def receive(self, *messages: Message) -> None:
        self.parts.receiver.receive(list(messages))

    def order(self) -> UnblockAnswer:
        asked = UnblockRequest(table="", topic="rows", partition=0, offset=BAD, action="skip", by="ann")
        answers: list[UnblockAnswer] = []
        asking = threading.Thread(target=lambda: answers.append(self.parts.unreadable(asked, "here")))
        asking.start()
        while asking.is_alive():
            self.parts.requests.between_polls(0.0)
            asking.join(0.01)
        return answers[0]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("worker.running.unreadable.end_of_batch", lambda *_: END)
    site = Site(tmp_path)
    monkeypatch.setattr(site.parts.committer, "commit", lambda: True)
    cast(Any, site.parts.unreadable).commit = lambda: True
    yield site
    site.parts.consumer.close()


def refused(site: Site) -> None:
    answer = site.order()
    assert answer.result == "refused"
    assert "rows[0] still has records from before that batch" in answer.message
    assert site.rows.tracker.next_offset == 0, "they would count as finished"


def test_it_is_refused_while_records_before_the_batch_wait_for_a_schema(site: Site) -> None:
    site.format.unknown = 100
    site.receive(*map(record, range(BAD)))
    site.fails(BAD)
    refused(site)


def test_it_is_refused_while_records_before_the_batch_wait_for_another_topic(site: Site) -> None:
    site.receive(*map(record, range(BAD)))
    site.fails(BAD)
    refused(site)


def test_it_is_refused_while_a_poll_of_the_partition_is_not_routed(site: Site) -> None:
    site.parts.backpressure.polls.waiting.append([record(0)])
    refused(site)


@pytest.mark.parametrize("full", [False, True])
def test_it_is_obeyed_if_nothing_of_the_partition_is_held(site: Site, full: bool) -> None:
    if full:
        site.parts.pauses.pause()
    assert site.order().result == "set_aside"
    assert site.rows.tracker.next_offset == END
    assert site.rows.asked == END


def test_the_end_is_looked_for_from_where_the_partition_is_read_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that were fetched and given up for a fetch from the same offset are held by no stage."""

    def read(_: object, __: object, begin: int, read_to: int | None) -> int:
        assert (begin, read_to) == (BAD, 0)
        site.rows.tracker.register([0, 1])
        return END

    monkeypatch.setattr("worker.running.unreadable.end_of_batch", read)
    answer = site.order()
    assert (answer.result, "was read further just now" in answer.message) == ("refused", True)
    assert site.rows.tracker.next_offset == 2


def test_what_was_given_up_before_the_first_position_was_known_is_not_passed_over(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    monkeypatch.setattr("worker.running.unreadable.end_of_batch", lambda *a: asked.append(a[3]) or END)
    rows = Assignment(
        site.rows.partition, 1, Start("earliest", (), "initial", "for the test"), site.rows.format
    )
    site.parts.assignments.add([rows])
    assert rows.tracker.next_offset is None
    site.fails(BAD)
    site.order()
    assert asked == [0]


def test_no_row_goes_on_without_definitions_that_cannot_be_read(site: Site) -> None:
    cast(Any, site.parts.order)._bound(0)  # more is held than may be
    site.fails(0, "ddl")
    site.receive(*map(record, range(BAD)))
    assert site.rows.tracker.next_offset == 0


def test_a_batch_that_can_be_read_again_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    place = TopicPartition("t", 0)
    with mock_brokers(20) as servers:
        settings = {
            "bootstrap.servers": servers,
            "group.id": "g",
            "auto.offset.reset": "error",
            "enable.partition.eof": "true",
            "log_level": "2",
        }
        for begin in (5, 19, 20):  # in the middle, the last one, the end
            with pytest.raises(EndUnknown, match="can be read now"):
                end_of_batch(settings, place, begin)
        monkeypatch.setattr("worker.kafka.unreadable_batch.Consumer", Failing)
        with pytest.raises(EndUnknown, match="can be read now"):
            end_of_batch(settings, place, 5)


def test_no_offset_outside_the_log_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that fetches one and is closed may hang: librdkafka issue 4514."""
    fetched: list[int] = []

    class Damaged(Consumer):
        """The batch from offset 12 to the end of the log, 20, is damaged."""

        def assign(self, partitions: list[Any]) -> None:
            fetched.append(partitions[0].offset)

        def poll(self, timeout: float = -1) -> Any:
            error = KafkaError(KafkaError._BAD_MSG if fetched[-1] >= 12 else KafkaError._PARTITION_EOF)
            return Mock(
                **{"partition.return_value": 0, "error.return_value": error, "offset.return_value": 12}
            )

    monkeypatch.setattr("worker.kafka.unreadable_batch.Consumer", Damaged)
    with mock_brokers(20) as servers:
        settings = {"bootstrap.servers": servers, "group.id": "g"}
        assert end_of_batch(settings, TopicPartition("t", 0), 12) == 20
        for begin in (20, 21):
            with pytest.raises(EndUnknown, match="no longer exists"):
                end_of_batch(settings, TopicPartition("t", 0), begin)
    assert set(fetched) <= set(range(20))


def test_a_consumer_that_does_not_close_is_left_alone() -> None:
    hangs = threading.Event()
    with capture_logs() as logged:
        close_in_time(Mock(close=hangs.wait), 0.05)
    hangs.set()
    assert [line["event"] for line in logged] == ["consumer_not_closed"]


class Failing(Consumer):
    """Its broker answers the first fetches with an error that mends by itself."""

    left = 3

    def poll(self, timeout: float = -1) -> Message | None:
        if self.left:
            self.left -= 1
            error = KafkaError(KafkaError.UNKNOWN)
            return Message(topic="t", partition=0, offset=5, error=error, timestamp=(1, 1))
        return super().poll(timeout)


@pytest.mark.parametrize(
    "name",
    ["UNKNOWN", "THROTTLING_QUOTA_EXCEEDED", "INCONSISTENT_TOPIC_ID", "NOT_LEADER_FOR_PARTITION"],
)
def test_an_error_that_mends_by_itself_is_not_of_a_batch(name: str) -> None:
    error = LastingError.after(None, KafkaError(getattr(KafkaError, name)), 7)
    assert (error.unreadable, error.explains) == (False, True)


@pytest.mark.parametrize(
    "name", ["_BAD_MSG", "_BAD_COMPRESSION", "INVALID_MSG", "UNSUPPORTED_COMPRESSION_TYPE"]
)
def test_an_error_of_what_the_log_holds_does_not_mend(name: str) -> None:
    error = LastingError.after(None, KafkaError(getattr(KafkaError, name)), 7)
    assert (error.unreadable, error.explains) == (True, False)
