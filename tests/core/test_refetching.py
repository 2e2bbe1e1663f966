"""Where a partition goes on whose offset the broker did not have, and what the others lose by it: nothing."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import confluent_kafka
import pytest
from building import Clock, configuration
from confluent_kafka import OFFSET_END, KafkaError, Producer
from members import RECORDS
from structlog.testing import capture_logs

from offsets.restore import Start, StartOffset
from offsets.types import OffsetRange, TopicPartition
from worker.formats.registry import get
from worker.kafka.errors import NOWHERE
from worker.running.components import Components
from worker.units.assigned_partition import Assignment

MakeComponents = Callable[[str], Components]


@pytest.fixture
def make_components(mock_servers: str, tmp_path: Path) -> Iterator[MakeComponents]:
    made: list[Components] = []

    def make(strategy: str = "cooperative-sticky") -> Components:
        properties = {"partition.assignment.strategy": strategy, "fetch.wait.max.ms": 20, "log_level": 2}
        settings = configuration(
            kafka={
                "bootstrap_servers": mock_servers,
                "group_id": "refetching",
                "topics": ["t"],
                "properties": properties,
            },
            checkpoint={"directory": str(tmp_path)},
        )
        made.append(Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event()))
        return made[-1]

    yield make
    for components in made:
        components.consumer.close()


def assigned(
    components: Components, *starts: StartOffset, topic: str = "t", ahead: tuple[OffsetRange, ...] = ()
) -> list[Assignment]:
    """Partitions 0, 1 ... assigned there."""
    found = [
        Assignment(TopicPartition(topic, number), 1, Start(start, ahead, "kafka", ""), get("canal"))
        for number, start in enumerate(starts)
    ]
    components.assignments.add(found)
    return found


def read(components: Components, enough: Callable[[dict[int, list[int]]], bool]) -> dict[int, list[int]]:
    """{partition: the offsets that came}: until it is enough, or for 10 s."""
    found: dict[int, list[int]] = defaultdict(list)
    end = time.monotonic() + 10
    while not enough(found) and time.monotonic() < end:
        for message in components.consumer.consume(500, 0.05):
            if message.error() is None:
                found[cast(int, message.partition())].append(cast(int, message.offset()))
    return {partition: offsets for partition, offsets in found.items() if offsets}


def out_of_range(reason: str) -> KafkaError:
    return KafkaError(KafkaError._AUTO_OFFSET_RESET, reason)


CUT = (
    "Partition log truncation detected at offset 12 (leader epoch 2): broker end offset is 7 (offset leader "
    "epoch 3). Reset to INVALID.: Local: Partition log truncation detected (broker 1)"
)


@pytest.mark.parametrize(
    ("reason", "goes_on_at", "said"),
    [
        pytest.param(CUT, 7, "truncated", id="the log was cut off and written on"),
        pytest.param("not available on the broker", 12, "exists now", id="the broker has it now"),
    ],
)
def test_an_offset_within_what_the_broker_has_has_not_expired(
    make_components: MakeComponents, reason: str, goes_on_at: int, said: str
) -> None:
    components = make_components("cooperative-sticky")
    (assignment,) = assigned(components, 0)
    components.consumer.incremental_assign([confluent_kafka.TopicPartition("t", 0, 0)])
    assignment.tracker.reach(12)
    with capture_logs() as logged:
        components.refetching.out_of_range(assignment, out_of_range(reason))
    (told,) = (line for line in logged if line["event"] == "offset_out_of_range")
    assert (told["offset"], told["goes_on_at"], told["records_lost"]) == (12, goes_on_at, None)
    assert said in told["found"]
    assert assignment.tracker.next_offset == goes_on_at, "what comes from there on is new"
    expected = list(range(goes_on_at, RECORDS))
    assert read(components, lambda found: len(found[0]) >= len(expected)) == {0: expected}


@pytest.mark.parametrize(
    ("ahead", "lost"), [((), 5), (((-4, -3), (-2, 9)), 2)], ids=["all of it", "not what was finished before"]
)
def test_what_has_expired_is_counted(
    make_components: MakeComponents, ahead: tuple[tuple[int, int], ...], lost: int
) -> None:
    components = make_components("cooperative-sticky")
    # The mock broker deletes nothing: its first offset is 0.
    (assignment,) = assigned(components, -5, ahead=tuple(OffsetRange(*each) for each in ahead))
    components.consumer.incremental_assign([confluent_kafka.TopicPartition("t", 0, 0)])
    with capture_logs() as logged:
        components.refetching.out_of_range(assignment, out_of_range("not available on the broker"))
    (told,) = (line for line in logged if line["event"] == "offset_out_of_range")
    assert (told["goes_on_at"], told["records_lost"]) == (0, lost)
    assert "expired" in told["found"]


def test_where_all_are_assigned_anew_a_partition_begun_at_its_end_goes_on_where_it_was(
    make_components: MakeComponents, mock_servers: str
) -> None:
    producer = Producer({"bootstrap.servers": mock_servers})

    def send(partition: int) -> None:
        producer.produce("growing", b"x", partition=partition)
        assert producer.flush(10) == 0

    send(0)
    send(1)
    components = make_components("range")
    first, latest = assigned(components, 0, "latest", topic="growing")
    components.consumer.assign(
        [
            confluent_kafka.TopicPartition("growing", 0, 0),
            confluent_kafka.TopicPartition("growing", 1, OFFSET_END),
        ]
    )
    assert read(components, lambda found: bool(found[0])) == {0: [0]}
    latest.tracker.reach(1)  # the fetcher was told that it is read to its end
    send(1)

    first.tracker.reach(1)
    components.refetching.out_of_range(first, out_of_range("not available on the broker"))
    assert read(components, lambda found: bool(found[1])) == {1: [1]}


def test_a_partition_whose_offsets_kafka_does_not_tell_holds_up_no_other(
    make_components: MakeComponents,
) -> None:
    components = make_components("cooperative-sticky")
    assigned(components, 0)
    gone = Assignment(TopicPartition("t", 99), 1, Start(50, (), "kafka", ""), get("canal"))
    components.assignments.add([gone])
    places = [confluent_kafka.TopicPartition("t", 0, 0), confluent_kafka.TopicPartition("t", 99, 50)]
    components.consumer.incremental_assign(places)
    in_vain = threading.Timer(5, components.rebalancer.starts.stopping.set)
    in_vain.start()
    with capture_logs() as logged:
        components.refetching.out_of_range(gone, out_of_range("not available on the broker"))
        at = components.rebalancer.starts.offset(
            components.consumer, gone.partition, Start("latest", (), "initial", "")
        )
    in_vain.cancel()
    assert at == NOWHERE
    told = [line["partition"] for line in logged if line["event"] == "offset_not_told"]
    assert told == [str(gone.partition)] * 2
    assert gone.tracker.next_offset == 50
    assert read(components, lambda found: len(found[0]) >= RECORDS) == {0: list(range(RECORDS))}


def test_a_partition_that_began_nowhere_begins_where_it_should_once_kafka_tells(
    make_components: MakeComponents,
) -> None:
    components = make_components("cooperative-sticky")
    (assignment,) = assigned(components, "latest")
    components.consumer.incremental_assign([confluent_kafka.TopicPartition("t", 0, NOWHERE)])
    end = time.monotonic() + 10
    error = None
    while error is None and time.monotonic() < end:
        message = components.consumer.poll(0.1)
        error = message.error() if message is not None else None
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    components.refetching.out_of_range(assignment, error)
    assert assignment.tracker.next_offset == RECORDS
    (at,) = components.consumer.assignment()
    assert at.offset == RECORDS
