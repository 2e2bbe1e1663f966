"""Parked records that came one by one: few chunks in memory, each record finished once and in its order."""

from __future__ import annotations

import pytest
from building import Clock, assignment, chunk, delivery, record, unit
from lane_building import Source, closed, lanes_of, offsets, taken
from parking_building import parking_of
from row_building import row_unit, rows

from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.parking_files import ParkingLot
from worker.units.piece_order import PieceOrder
from worker.units.sharding import spread
from worker.units.unit import Unit, UnitState


class Stage:
    """A halted table, whose records are parked as soon as they are queued."""

    def __init__(self, lot: ParkingLot, source: Source | None = None) -> None:
        self.lanes: Lanes = lanes_of(Clock(), 1, max_records=9)
        self.table: Unit = unit("bad", batch={"max_records": 7})
        self.source = source or Source(self.lanes)
        self.source.lanes = self.lanes
        self.parking = parking_of(lot, self.lanes, self.table)
        self.now = 0.0
        assert self.source.offer((self.table, 1))
        self.lanes.halt(0, taken(self.lanes, 0), "it cannot be")

    def come(self, count: int) -> None:
        for _ in range(count):
            assert self.source.offer((self.table, 1))
            self.park()

    def park(self) -> None:
        self.now += 1.0
        self.parking.between_polls(self.now)

    def handled(self) -> list[int]:
        """The offsets of all its records, as they come again."""
        self.lanes.give_tables([(self.table, self.table.table)])
        seen: list[int] = []
        while self.table.state is not UnitState.IDLE:
            work = taken(self.lanes, 0)
            work.load()
            seen += offsets(work)
            assert work.finish_records(work.records) == work.records
            self.lanes.finish(0, work)
        assert (self.lanes.lanes[0].records, self.lanes.lanes[0].bytes, self.table.parked) == (0, 0, 0)
        return seen


def test_they_become_few_chunks_and_are_finished_in_their_order(lot: ParkingLot) -> None:
    stage = Stage(lot)
    stage.come(2_500)
    assert len(stage.table.chunks) < 10
    assert lot.memory < 100_000
    tracker = stage.source.assignment.tracker
    assert tracker.unfinished == 2_501
    assert stage.handled() == list(range(2_501))
    assert tracker.unfinished == 0
    lot.tidy()
    assert (lot.bytes, lot.memory) == (0, 0)


def test_those_of_two_partitions_stay_apart(lot: ParkingLot) -> None:
    stage = Stage(lot)
    one, two = stage.source, Source(stage.lanes, assignment(1))
    for _ in range(20):
        stage.source = two
        stage.come(1)
        stage.source = one
        stage.come(2)
    stage.lanes.withdraw([stage.table], closed(two.assignment), 0.0)
    assert stage.handled() == list(range(41))
    assert (one.assignment.tracker.unfinished, two.assignment.tracker.unfinished) == (0, 20)


@pytest.mark.parametrize("earlier", [1, 20])
def test_those_from_before_a_restart_of_their_partition_finish_nothing_of_it(
    lot: ParkingLot, earlier: int
) -> None:
    stage = Stage(lot)
    stage.come(earlier)
    stage.source.assignment.restart_at(0)
    stage.source.next = 0
    stage.come(20)
    tracker = stage.source.assignment.tracker
    stage.lanes.give_tables([(stage.table, stage.table.table)])
    done = 0
    while done < earlier + 1:
        work = taken(stage.lanes, 0)
        work.load()
        first = stage.lanes.shorten(0, work, min(work.records, earlier + 1 - done))
        done += first.finish_records(first.records)
        stage.lanes.finish(0, first)
    assert tracker.unfinished == 20


def test_pieces_of_split_records_stay_apart(lot: ParkingLot) -> None:
    stage = Stage(lot)
    place, order = stage.source.assignment, PieceOrder()
    name = (stage.table.table.database, stage.table.table.name)
    stage.come(1)
    for offset in range(2, 5):
        run = place.tracker.register([offset])
        pieces = order.runs(run, {name: [offset], ("shop", "other"): [offset]}, [offset])
        part = Chunk(place, pieces[name], [record(offset)])
        assert stage.lanes.offer(delivery((stage.table, part)))
        stage.park()
    assert stage.handled() == [0, 1, 2, 3, 4]
    assert place.tracker.unfinished == 3, "the other table has pieces of them"


def spread_one(lanes: Lanes, table: Unit, place: Assignment, offset: int) -> None:
    """A record of one row comes, and is given to the row's shard."""
    assert lanes.offer(delivery((table, chunk(place, [rows(offset, 7)]))))
    work = taken(lanes, 0)
    assert work.unit is table
    assert work.decode(lambda _record, _fault: False) is None
    lanes.spread(0, work, spread(work))


def test_those_of_a_row_become_few_chunks_too(lot: ParkingLot) -> None:
    lanes, table, place = lanes_of(Clock(), 1), row_unit(), assignment()
    parking = parking_of(lot, lanes, table)
    spread_one(lanes, table, place, 0)
    work = taken(lanes, 0)
    shard = work.unit
    lanes.room.max_records = 9
    lanes.halt(0, work, "it cannot be")
    for offset in range(1, 101):
        spread_one(lanes, table, place, offset)
        parking.between_polls(float(offset))
    assert (len(shard.chunks), shard.records, shard.parked) == (1, 100, 100)
    lanes.give_tables([(table, table.table)])
    seen: list[int] = []
    while shard.state is not UnitState.IDLE:
        work = taken(lanes, 0)
        work.load()
        if work.changes is None:
            assert work.decode(lambda _record, _fault: False) is None
        assert [change.offset for change in work.changes or ()] == offsets(work)
        seen += offsets(work)
        assert work.finish_records(work.records) == work.records
        lanes.finish(0, work)
    assert seen == list(range(101))
    assert (place.tracker.unfinished, lanes.room.spread, table.at_rest) == (0, 0, True)
