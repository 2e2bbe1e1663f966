"""The eager protocol takes whole assignments: others are read on when one of them begins anew."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import cast

import confluent_kafka
import pytest
from building import configuration
from confluent_kafka import OFFSET_BEGINNING
from members import RECORDS

from offsets.restore import Start
from offsets.types import TopicPartition
from worker.formats.interface import Record
from worker.formats.registry import get
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

PARTITIONS = 2


@pytest.fixture
def components(mock_servers: str, tmp_path: Path) -> Components:
    settings = configuration(
        kafka={
            "bootstrap_servers": mock_servers,
            "group_id": "eager",
            "topics": ["t"],
            "properties": {"partition.assignment.strategy": "range"},
        },
        checkpoint={"directory": str(tmp_path)},
    )
    return Components(settings, clock=time.monotonic, fail=pytest.fail, stop=threading.Event())


def read(components: Components, expected: dict[int, int]) -> dict[int, int]:
    """{partition: how many records came}: until it is as expected, or for 10 s."""
    found: Counter[int] = Counter()
    end = time.monotonic() + 10
    while found != expected and time.monotonic() < end:
        for message in components.consumer.consume(500, 0.05):
            if message.error() is None:
                assignment = components.assignments.of(message)
                assert assignment is not None
                assignment.came([cast(Record, message)])
                found[assignment.partition.partition] += 1
    return dict(found)


def test_those_that_begin_anew_together_all_do(components: Components) -> None:
    every = [
        Assignment(TopicPartition("t", number), 1, Start(0, (), "kafka", ""), get("canal"))
        for number in range(PARTITIONS)
    ]
    components.assignments.add(every)
    components.consumer.assign([confluent_kafka.TopicPartition(*each.partition, 0) for each in every])
    whole = dict.fromkeys(range(PARTITIONS), RECORDS)
    assert read(components, whole) == whole
    for _ in range(10):  # librdkafka tells the former position about every other time
        for each in every:
            components.refetching.restart(each, OFFSET_BEGINNING)
        assert read(components, whole) == whole
    components.consumer.close()


def test_those_that_were_read_since_go_on_behind_that(components: Components) -> None:
    first, second = (
        Assignment(TopicPartition("t", number), 1, Start(0, (), "kafka", ""), get("canal"))
        for number in range(2)
    )
    components.assignments.add([first, second])
    components.consumer.assign(
        [confluent_kafka.TopicPartition(*each.partition, 0) for each in (first, second)]
    )
    assert read(components, {0: RECORDS, 1: RECORDS}) == {0: RECORDS, 1: RECORDS}
    components.refetching.restart(first, RECORDS - 5)
    assert read(components, {0: 5}) == {0: 5}
    components.refetching.restart(second, RECORDS - 3)
    assert read(components, {1: 3}) == {1: 3}
    components.consumer.close()
