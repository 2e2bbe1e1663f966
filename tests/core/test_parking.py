"""Records of tables that stand still: in files instead of memory, and in their order again."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from building import Clock, assignment, chunk, configuration, record, unit
from confluent_kafka import Message
from lane_building import Source, lanes_of, offsets, taken
from parking_building import Flags, parking_of
from structlog.testing import capture_logs

from handlers import Change
from offsets.types import TopicPartition
from worker.lanes.lanes import Lanes
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignments
from worker.units.parked import ParkedChanges, ParkedRecords
from worker.units.parking_files import ParkingLot
from worker.units.unit import UnitState
from worker.units.work import Work

PLACE = TopicPartition("cdc", 3)


def fields(each: Message) -> tuple[object, ...]:
    return (
        *(each.topic(), each.partition(), each.offset(), each.key(), each.value()),
        *(each.headers(), each.timestamp(), len(each)),
    )


def test_what_is_parked_is_read_back_as_it_was(lot: ParkingLot) -> None:
    made = [
        Message(
            topic="cdc",
            partition=3,
            offset=10 * number,
            key=None if number % 3 else bytes(number),
            value=None if number % 5 == 4 else os.urandom(number * 7),
            headers=None if number % 2 else [("a", b"\0\xff"), ("a", None), ("é", b"")],
            timestamp=(number % 3, number * 1_000) if number % 3 else (0, 0),
        )
        for number in range(200)
    ]
    parked = ParkedRecords.write(lot, "t", PLACE, made)  # type: ignore[arg-type]
    assert [fields(each) for each in parked] == [fields(each) for each in made]  # type: ignore[arg-type]
    chance = random.Random(7)
    for _ in range(200):
        first, end = sorted(chance.sample(range(201), 2))
        part, wanted = parked[first:end], made[first:end]
        assert [fields(each) for each in part] == [fields(each) for each in wanted]  # type: ignore[arg-type]
        middle = (end - first) // 2
        again = part[middle:][: middle or 1]
        whole = wanted[middle:][: middle or 1]
        assert [fields(each) for each in again] == [fields(each) for each in whole]  # type: ignore[arg-type]
        assert list(part.offsets) == [each.offset() for each in wanted]
        assert list(part.lengths) == [len(each) for each in wanted]
        assert fields(part[middle]) == fields(wanted[middle])  # type: ignore[arg-type]
    assert len(parked[5:5]) == 0
    assert list(parked[5:5]) == []


def test_changes_are_read_back_as_they_were(lot: ParkingLot) -> None:
    types = {"id": "int"}
    made = [
        Change(
            op="update",
            before={"id": number, "b": b"\0"},
            after={
                "id": number,
                "d": Decimal("1.10"),
                "at": datetime(2026, 1, 1, tzinfo=UTC),
                "f": float("inf"),
            },
            key_columns=("id",),
            sql=None,
            source_time_ms=5,
            topic="cdc",
            partition=3,
            offset=number,
            index=1,
            transaction="x",
            lacks=frozenset({"n"}),
            types=types,
        )
        for number in range(20)
    ]
    parked = ParkedChanges.write(lot, "t", made)
    assert list(parked) == made
    assert list(parked[3:9][1:4]) == made[4:7]
    assert parked[-1] == made[-1]
    assert all(each.types is made[0].types for each in parked), "what changes share is shared again"


def test_records_without_changes_are_followed_by_others(lot: ParkingLot) -> None:
    none = ParkedChanges.write(lot, "t", [])
    work = Work.of(unit(), [chunk(assignment(), [record(0)])])
    assert work.decode(lambda _record, _fault: False) is None
    assert work.changes
    some = ParkedChanges.write(lot, "t", work.changes)
    assert not none.span.precedes(some.span)
    assert list(none) == []


def test_files_are_deleted_when_nobody_needs_them(lot: ParkingLot, tmp_path: Path) -> None:
    first = ParkedRecords.write(lot, "t", PLACE, [record(0, value=b"x" * (33 << 20))])
    second = ParkedRecords.write(lot, "t", PLACE, [record(1), record(2)])
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    assert lot.bytes == sum(each.stat().st_size for each in tmp_path.iterdir())
    part = second[1:]
    del first, second
    lot.tidy()
    assert len(list(tmp_path.iterdir())) == 2, "one, and the lock"
    assert [each.offset() for each in part] == [2]
    del part
    lot.tidy()
    assert ([each.name for each in tmp_path.iterdir()], lot.bytes) == (["parked-1.lock"], 0)


def test_a_start_deletes_what_a_killed_worker_left_and_nothing_of_one_that_runs(tmp_path: Path) -> None:
    runs = ParkingLot(tmp_path)
    kept = ParkedRecords.write(runs, "t", PLACE, [record(0)])
    for name in ("parked-7.lock", "parked-7.1", "parked-7.2"):
        (tmp_path / name).write_bytes(b"x")
    ParkingLot(tmp_path).clear()
    assert {each.name for each in tmp_path.iterdir()} == {"parked-1.lock", "parked-1.1"}
    assert [each.offset() for each in kept] == [0]
    runs.close()
    assert list(tmp_path.iterdir()) == []


def held(lanes: Lanes) -> list[tuple[int, int]]:
    return [(lane.records, lane.bytes) for lane in lanes.lanes]


def test_standing_tables_keep_a_share_in_memory_and_nothing_while_another_waits_for_room(
    lot: ParkingLot,
) -> None:
    lanes = lanes_of(Clock(), 1, max_records=100)
    bad, good, source = unit("bad", batch={"max_records": 5}), unit("good"), Source(lanes)
    parking = parking_of(lot, lanes, bad, good)
    for _ in range(9):
        assert source.offer((bad, 10))
    parking.between_polls(0.0)
    assert lanes.lanes[0].records == 90, "it does not stand still"
    work = taken(lanes, 0)
    lanes.give_back(0, work, delay=10.0, error="it failed")
    parking.between_polls(1.0)
    assert (lanes.lanes[0].records, bad.parked, bad.records) == (5 + 5, 80, 85)
    assert source.offer((good, 60))
    assert not source.offer((good, 35))
    parking.between_polls(2.0)
    assert (lanes.lanes[0].records, bad.parked) == (60, 85)
    assert source.offer((good, 35))
    lanes.finish(0, taken(lanes, 0))
    assert lanes.seen.running() == []


def test_parked_batches_follow_in_their_order_and_count_again(lot: ParkingLot) -> None:
    clock = Clock()
    lanes = lanes_of(clock, 1, max_records=20)
    bad, source = unit("bad", batch={"max_records": 7}), Source(lanes)
    parking = parking_of(lot, lanes, bad)
    seen: list[int] = []
    source.offer((bad, 10))
    lanes.halt(0, taken(lanes, 0), "it cannot be")
    for number in range(10):
        assert source.offer((bad, 10)), "there is room"
        parking.between_polls(float(number))
    lanes.give_tables([(bad, unit("bad", batch={"max_records": 7}).table)])
    while bad.state is not UnitState.IDLE:
        work = taken(lanes, 0)
        if work.parked:
            work.load()
        assert lanes.lanes[0].records >= work.records
        seen += offsets(work)
        assert [message.value() for _, message in work.messages()] == [b"x" * 100] * work.records
        work.finish_records(work.records)
        lanes.finish(0, work)
    assert seen == list(range(110))
    assert held(lanes) == [(0, 0)]
    assert source.assignment.tracker.unfinished == 0
    del work
    lot.tidy()
    assert lot.bytes == 0


def test_what_is_parked_is_written_once(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 1, max_records=20)
    bad, source = unit("bad"), Source(lanes)
    parking = parking_of(lot, lanes, bad)
    source.offer((bad, 10))
    lanes.halt(0, taken(lanes, 0), "it cannot be")
    source.offer((bad, 10))
    parking.between_polls(0.0)
    size = lot.bytes
    for second in range(1, 5):
        parking.between_polls(float(second))
    assert lot.bytes == size > 0
    assert held(lanes) == [(0, 0)]


def test_batches_of_halted_tables_leave_the_lane(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 1, max_records=20)
    tables, source = [unit(f"t{number}") for number in range(10)], Source(lanes)
    parking = parking_of(lot, lanes, *tables)
    for second, table in enumerate(tables):
        assert source.offer((table, 10))
        lanes.halt(0, taken(lanes, 0), "it cannot be")
        parking.between_polls(float(second))
        assert lanes.lanes[0].records <= 2
    lanes.give_tables([(each, unit(each.table.name).table) for each in tables])
    for table in tables:
        work = taken(lanes, 0)
        work.load()
        assert (work.unit, work.records) == (table, 10)
        assert len({message.value() for _, message in work.messages()}) == 1
        lanes.finish(0, work)
    assert held(lanes) == [(0, 0)]


@pytest.mark.parametrize("why", ["the bound", "the disk"])
def test_a_full_disk_pauses_the_partitions_of_standing_tables_alone(
    lot: ParkingLot, tmp_path: Path, why: str
) -> None:
    lanes = lanes_of(Clock(), 2, max_records=100)
    flags, assignments = Flags(), Assignments()
    one, two = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    assignments.add([one.assignment, two.assignment])
    bad, good = unit("bad", lane=0), unit("good", lane=1)
    pauses = Pauses(flags, assignments)  # type: ignore[arg-type]  # the part that is used
    most = 2_000 if why == "the bound" else 1 << 30
    parking = parking_of(lot, lanes, bad, good, most=most, pauses=pauses)
    one.offer((bad, 50))
    two.offer((good, 20))
    works = [taken(lanes, 0), taken(lanes, 1)]
    lanes.halt(0, works[0], "it cannot be")
    if why == "the disk":
        lot.folder.rmdir()
        lot.folder.write_text("no folder")
    with capture_logs() as logs:
        for second in range(3):
            one.offer((bad, 20))
            parking.between_polls(float(second))
    events = [line["event"] for line in logs]
    assert events.count("parking_full" if why == "the bound" else "parking_failed") == 1
    assert flags.paused == {0}
    assert pauses.why(one.assignment) == "parked"
    assert pauses.why(two.assignment) is None
    if why == "the disk":
        lot.folder.unlink()
        lot.folder.mkdir()
        parking.between_polls(20.0)
    else:
        parking.adopt(configuration(lanes={"parked": "1MiB"}))
        parking.between_polls(20.0)
    assert flags.paused == set()
    assert bad.parked > 0
