"""Records of a topic made anew since they were fetched: nobody can fetch them again, so nobody drops them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import confluent_kafka
import pytest
from building import TOPIC, Clock, assignment, chunk, configuration, delivery, record, unit
from lane_building import Source, lanes_of, taken
from structlog.testing import capture_logs

from handlers import Handler
from offsets.types import Checkpoint
from worker.formats.debezium.format import Debezium
from worker.formats.interface import Record
from worker.partitions.rebalance import FormerRecords
from worker.running.components import Components
from worker.running.worker import Worker
from worker.units.assigned_partition import Assignment

RECORDS = 3


class Gated(Handler):
    """Counts records; its first batch waits until the gate is opened."""

    gate = threading.Event()
    handled = 0

    def handle(self, batch: Any) -> None:
        assert Gated.gate.wait(20)
        Gated.handled += batch.records


@pytest.fixture(autouse=True)
def gate() -> threading.Event:
    Gated.gate, Gated.handled = threading.Event(), 0
    return Gated.gate


class Unknown(Debezium):
    """No schema is known."""

    def ready(self, records: Sequence[Record]) -> int:
        return 0


def settings(servers: str, folder: Path) -> Any:
    return configuration(
        {"handlers": [{"type": f"{__name__}:Gated"}], "batch": {"max_records": 1}},
        kafka={
            "bootstrap_servers": servers,
            "group_id": "former",
            "topics": [TOPIC],
            "properties": {"log_level": 2},
        },
        checkpoint={"directory": str(folder)},
        revoke_timeout="5s",
    )


def made_anew(components: Components) -> tuple[Assignment, Assignment]:
    """A partition with queued records of before its topic was made anew, and the one since."""
    former = assignment()
    former.topic_id = "one"
    components.assignments.add([former])
    unit = components.book.meet("shop", "orders")
    assert unit is not None
    assert components.lanes.offer(delivery((unit, chunk(former, [record(n) for n in range(RECORDS)]))))
    return former, components.new_assignments.succeed(former, "two")


def lost(logged: Any) -> list[int]:
    return [line["records_lost"] for line in logged if line["event"] == "former_records_lost"]


def after_a_moment(do: Callable[[], object]) -> None:
    threading.Timer(0.1, do).start()


def test_records_of_a_former_topic_are_handled_before_their_partition_leaves(
    mock_servers: str, tmp_path: Path, gate: threading.Event
) -> None:
    components = Components(
        settings(mock_servers, tmp_path), clock=time.monotonic, fail=pytest.fail, stop=threading.Event()
    )
    components.handlers.open()
    components.lanes.trust(math.inf)  # as after a commit
    former, new = made_anew(components)
    for processor in components.processors:
        processor.start()
    after_a_moment(gate.set)
    with capture_logs() as logged:
        components.rebalancer.on_revoke(components.consumer, [confluent_kafka.TopicPartition(*new.partition)])
    assert Gated.handled == RECORDS
    assert (former.tracker.unfinished, lost(logged), components.former.lost) == (0, [], 0)
    components.lanes.stop()
    components.consumer.close()


def test_a_topic_made_anew_has_a_position_before_its_first_record(mock_servers: str, tmp_path: Path) -> None:
    """Batches of former records, which fill the lanes, wait for an accepted commit of any position."""
    components = Components(
        settings(mock_servers, tmp_path), clock=Clock(), fail=pytest.fail, stop=threading.Event()
    )
    _, new = made_anew(components)
    assert new.tracker.checkpoint() == Checkpoint(0)
    components.consumer.close()


def test_records_of_a_former_topic_that_are_not_handled_are_told_as_lost(
    mock_servers: str, tmp_path: Path
) -> None:
    clock = Clock()
    components = Components(
        settings(mock_servers, tmp_path), clock=clock, fail=pytest.fail, stop=threading.Event()
    )
    _, new = made_anew(components)

    def wait() -> None:
        clock.now += 1

    components.former._offer = wait
    with capture_logs() as logged:
        components.rebalancer.on_revoke(components.consumer, [confluent_kafka.TopicPartition(*new.partition)])
    assert lost(logged) == [RECORDS]
    _, new = made_anew(components)
    with capture_logs() as logged:
        components.rebalancer.on_lost(components.consumer, [confluent_kafka.TopicPartition(*new.partition)])
    assert lost(logged) == [RECORDS]
    assert components.former.lost == 2 * RECORDS
    components.consumer.close()


def test_records_of_a_former_topic_that_cannot_be_handled_are_told_as_lost_at_once(
    mock_servers: str, tmp_path: Path
) -> None:
    components = Components(
        settings(mock_servers, tmp_path), clock=Clock(), fail=pytest.fail, stop=threading.Event()
    )
    former = assignment()
    former.in_kafka = Checkpoint(0)
    former.format = cast(Any, Unknown())
    components.assignments.add([former])
    components.gate.add(former, [record(n) for n in range(4)])
    with capture_logs() as logged:
        components.receiver.flush(former, again=False)
    assert (lost(logged), components.former.lost) == ([4], 4)
    components.consumer.close()


@pytest.mark.parametrize("seconds", [60.0, 0.3])
def test_a_stop_handles_records_of_a_former_topic_first_or_is_no_clean_one(
    mock_servers: str, tmp_path: Path, gate: threading.Event, seconds: float
) -> None:
    worker = Worker(settings(mock_servers, tmp_path))
    worker.components.handlers.open()
    worker.components.lanes.trust(math.inf)
    made_anew(worker.components)
    for processor in worker.components.processors:
        processor.start()
    if seconds > 1:
        after_a_moment(gate.set)
    with capture_logs() as logged:
        finished, halted = worker._draining.finish(seconds)
    gate.set()
    if seconds > 1:
        assert (finished, halted, Gated.handled, lost(logged)) == (True, [], RECORDS, [])
        worker.components.former.lost = 1  # when a partition left
        assert not worker._draining.finish(seconds)[0]
    else:
        assert (finished, lost(logged)) == (False, [RECORDS])
    worker.components.consumer.close()


@pytest.mark.parametrize("how", ["halted", "paused"])
def test_records_of_a_former_topic_in_tables_that_stand_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    clock, table, new = Clock(), unit(), assignment()
    lanes = lanes_of(clock)
    source = Source(lanes)
    new.before = source.assignment
    assert source.offer((table, 3))
    work = taken(lanes, 0)
    if how == "halted":
        lanes.halt(0, work, "no")
    else:
        table.blocked = table.paused = True
        lanes.give_back(0, work, delay=5.0, error="paused by ann")
    monkeypatch.setattr(time, "sleep", lambda _: setattr(clock, "now", clock.now + 1))
    begin = clock.now
    FormerRecords(lanes, lambda: None, clock).work_off([new], 10.0)
    assert clock.now == begin
