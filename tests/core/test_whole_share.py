"""Where topics are merged a worker that has some of their partitions reads none, and says so."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from building import Clock, configuration
from confluent_kafka import Producer
from structlog.testing import capture_logs

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.registry import get
from worker.partitions.membership import SharedTopics, WholeShare
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

_numbers = itertools.count(1)


class Member:
    """A member of a group whose two topics have four partitions each, as librdkafka's mock makes them."""

    def __init__(self, servers: str, folder: Path, *, with_ddl: bool = True) -> None:
        ddl, rows = self.topics = [f"{kind}-{next(_numbers)}" for kind in ("ddl", "rows")]
        self.servers = servers
        for topic in self.topics if with_ddl else [rows]:
            self.make(topic)
        settings = configuration(
            kafka={"bootstrap_servers": servers, "group_id": "g", "topics": [rows], "ddl_topics": [ddl]},
            format="debezium",
            checkpoint={"directory": str(folder)},
        )
        self.components = Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event())
        share = self.components.share
        assert share is not None
        self.share: WholeShare = share

    def make(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, b"x", partition=0)
        assert producer.flush(10) == 0

    def every(self) -> list[TopicPartition]:
        return sorted(TopicPartition(topic, number) for topic in self.topics for number in range(4))

    def has(self, partitions: Iterable[TopicPartition]) -> None:
        assignments = self.components.assignments
        assignments.remove(self.every())
        start = Start(0, (), "kafka", "")
        assignments.add(Assignment(each, 1, start, get("debezium")) for each in partitions)
        self.share.assigned([])


@pytest.fixture
def member(mock_servers: str, tmp_path: Path) -> Member:
    return Member(mock_servers, tmp_path)


def test_with_all_partitions_or_none_there_is_nothing_to_say(member: Member) -> None:
    with capture_logs() as logged:
        assert member.share.may_read(0)
        member.has(member.every())
        assert member.share.may_read(1)
    assert member.share.reason is None
    assert not logged


def test_one_that_never_had_them_all_ends_after_a_minute_and_says_why(member: Member) -> None:
    member.has(member.every()[4:])
    with capture_logs() as logged:
        assert not member.share.may_read(100)
        assert not member.share.may_read(150)
    assert [line["event"] for line in logged] == ["topics_shared"]
    found = logged[0]["found"]
    assert "one worker must have all 8 partitions" in found
    assert "has 4 of them" in found
    assert f"{member.topics[0]}[0]" in found
    with pytest.raises(SharedTopics, match="run one worker in the group"):
        member.share.may_read(165)


def test_of_two_that_never_had_them_all_one_ends_first(member: Member) -> None:
    member.has(member.every()[:4])
    assert not member.share.may_read(100)
    assert not member.share.may_read(165), "the other one, without the first partition, has ended by now"
    member.has(member.every())
    assert member.share.may_read(166)


def test_one_that_had_them_all_waits_until_it_has_them_again(member: Member) -> None:
    member.has(member.every())
    assert member.share.may_read(100)
    member.has(member.every()[4:])
    assert not member.share.may_read(101)
    assert not member.share.may_read(1000)
    member.has(member.every())
    with capture_logs() as logged:
        assert member.share.may_read(1001)
    assert [line["event"] for line in logged] == ["has_all_partitions"]


def test_nothing_is_read_while_a_topic_with_ddl_is_missing_and_it_goes_on_once_it_is_there(
    mock_servers: str, tmp_path: Path
) -> None:
    member = Member(mock_servers, tmp_path, with_ddl=False)
    ddl, rows = member.topics
    member.has(each for each in member.every() if each.topic == rows)
    with capture_logs() as logged:
        assert not member.share.may_read(100)
        assert not member.share.may_read(500), "nobody else has what is missing, so it need not end"
    assert [line["event"] for line in logged] == ["ddl_topics_missing"]
    assert member.share.reason is not None
    assert f"kafka.ddl_topics names {ddl}, but this topic does not exist" in member.share.reason
    member.make(ddl)
    with capture_logs():
        assert not member.share.may_read(600), "its partitions have not come yet"
        member.has(member.every())
        assert member.share.may_read(601)
