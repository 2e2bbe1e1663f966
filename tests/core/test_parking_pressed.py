"""Standing tables fill the lanes: nobody else waits for them, however full the disk is."""

from __future__ import annotations

import itertools

import pytest
from building import Clock, assignment, chunk, ddl, delivery, unit
from lane_building import Source, lanes_of, taken
from parking_building import Flags, parking_of
from row_building import row_unit, rows

from worker.lanes.snapshot import snapshot
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignments
from worker.units.chunk import Barrier, BarrierChunk
from worker.units.parking_files import ParkingLot
from worker.units.sharding import spread
from worker.units.unit import Unit, UnitState
from worker.units.work import Work

MOST = 20_000


def test_a_table_whose_retry_runs_for_long_is_parked_for_who_waits(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 2, max_records=100)
    bad, good, source = unit("bad", batch={"max_records": 5}), unit("good"), Source(lanes)
    parking = parking_of(lot, lanes, bad, good)
    for _ in range(9):
        assert source.offer((bad, 10))
    lanes.give_back(0, taken(lanes, 0), delay=0.0, error="it failed")
    assert taken(lanes, 0).unit is bad
    parking.between_polls(0.0)
    assert source.offer((good, 60))


@pytest.mark.parametrize("behind", [False, True])
def test_nobody_waits_for_a_table_that_continues_with_its_parked_records(
    lot: ParkingLot, behind: bool
) -> None:
    """New records that come `behind` these would fill the lane: its own, or a table's that waits for it."""
    lanes = lanes_of(Clock(), 2, max_records=100)
    bad, other, good = unit("bad", batch={"max_records": 10}), unit("other"), unit("good", lane=1)
    parking = parking_of(lot, lanes, bad, other, good)
    now, source = 0.0, Source(lanes)
    assert source.offer((bad, 10))
    lanes.halt(0, taken(lanes, 0), "it failed")
    for _ in range(20):
        assert source.offer((bad, 50))
        parking.between_polls(now := now + 1.0)
    lanes.give_tables([(bad, bad.table)])
    statement = chunk(source.assignment, [ddl(source.next)], alone=True)
    source.next += 1
    statement.barrier = Barrier(bad, (other,))
    assert lanes.offer(delivery((bad, statement), (other, BarrierChunk(statement, statement.barrier))))
    fills = other if behind else bad
    for _ in range(20):
        work = taken(lanes, 0)
        if not source.offer((fills, 50)):
            parking.between_polls(now := now + 0.01)
            assert source.offer((fills, 50)), "the records of other tables wait for these"
        assert source.offer((good, 1))
        lanes.finish(1, taken(lanes, 1))
        lanes.finish(0, work)
    assert snapshot(lanes.seen, [bad, other, good], 3).standing.parked == bad.parked + other.parked > 500


def test_partitions_of_others_are_read_when_the_disk_is_full(lot: ParkingLot) -> None:
    lanes, assignments = lanes_of(Clock(), 1, max_records=1_000), Assignments()
    one, two = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    assignments.add([one.assignment, two.assignment])
    bad, good = [unit(f"bad{number}") for number in range(20)], unit("good")
    pauses = Pauses(Flags(), assignments)  # type: ignore[arg-type]  # the part that is used
    parking = parking_of(lot, lanes, *bad, good, most=MOST, pauses=pauses)
    for table in bad:
        assert one.offer((table, 1))
        lanes.halt(0, taken(lanes, 0), "it failed")
    now = 0.0
    while pauses.why(one.assignment) is None:
        while one.offer(*((table, 10) for table in bad)):
            pass
        lanes.forget_refused()
        now += 1.0
        parking.between_polls(now)
    assert lot.bytes >= MOST
    for _ in range(5):
        if not two.offer((good, 900)):
            parking.between_polls(now := now + 0.01)
            assert two.offer((good, 900))
        lanes.finish(0, taken(lanes, 0))
        parking.between_polls(now := now + 1.0)
        assert pauses.why(one.assignment) == "parked", "it has parked records, though nothing more to park"
        assert pauses.why(two.assignment) is None


def test_what_memory_keeps_of_parked_records_is_bounded_too(lot: ParkingLot) -> None:
    """Of records that come one by one: their offsets and lengths, and a chunk for every thousand."""
    lanes, assignments = lanes_of(Clock(), 1, max_records=10, max_bytes=100_000), Assignments()
    source, bad = Source(lanes), unit("bad")
    assignments.add([source.assignment])
    pauses = Pauses(Flags(), assignments)  # type: ignore[arg-type]  # the part that is used
    parking = parking_of(lot, lanes, bad, pauses=pauses)
    assert source.offer((bad, 1))
    lanes.halt(0, taken(lanes, 0), "it failed")
    now = 0.0
    while pauses.why(source.assignment) is None and bad.parked < 5_000:
        assert source.offer((bad, 1))
        parking.between_polls(now := now + 10.0)
    assert 3_200 < bad.parked < 3_600
    assert len(bad.chunks) < 10
    lanes.give_tables([(bad, unit("bad").table)])
    lanes.finish(0, taken(lanes, 0))
    while bad.state is not UnitState.IDLE:
        lanes.finish(0, taken(lanes, 0))
    parking.between_polls(now + 10.0)
    assert (lot.memory, pauses.why(source.assignment)) == (0, None)


def test_a_batch_of_parked_records_is_no_larger_than_a_lane(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 1, max_records=5)
    bad, source = unit("bad", batch={"max_records": 1_000}), Source(lanes)
    parking = parking_of(lot, lanes, bad)
    assert source.offer((bad, 1))
    lanes.halt(0, taken(lanes, 0), "it failed")
    for number in range(5):
        assert source.offer((bad, 4))
        parking.between_polls(float(number))
    lanes.give_tables([(bad, bad.table)])
    lanes.finish(0, taken(lanes, 0))
    assert taken(lanes, 0).records == lanes.lanes[0].records == 5


def test_rows_of_parked_records_fill_no_more_than_a_lane(lot: ParkingLot) -> None:
    lanes, source, clock = lanes_of(Clock(), 2, max_records=5), assignment(), 0.0
    bad = row_unit("bad")
    parking = parking_of(lot, lanes, bad)
    for offset in range(41):
        assert lanes.offer(delivery((bad, chunk(source, [rows(offset, 7, table="bad")]))))
        if not offset:
            lanes.halt(0, taken(lanes, 0), "it failed")
        parking.between_polls(clock := clock + 1)
    lanes.give_tables([(bad, bad.table)])

    def work_on(number: int) -> None:
        """Distribute records as long as the lanes let it."""
        while lanes.schedule.ready:
            work = taken(lanes, number)
            assert work.decode(lambda _r, _f: False) is None
            if not work.spreads:
                running.append(work)
                return
            lanes.spread(number, work, spread(work))

    running: list[Work] = []
    work_on(1)
    while running:
        work_on(0)
        assert lanes.lanes[0].records <= 10
        lanes.finish(1, running.pop(0))
        work_on(1)
    assert bad.at_rest


def test_a_table_in_row_order_continues_when_rows_of_another_are_parked(lot: ParkingLot) -> None:
    lanes, source = lanes_of(Clock(), 1, max_bytes=80_000), assignment()
    waits, stands = row_unit("waits", batch={"max_records": 3}), row_unit("stands", batch={"max_records": 5})
    parking = parking_of(lot, lanes, waits, stands)
    offsets = itertools.count()

    def offer(to: Unit, *keys: int) -> None:
        made = [rows(next(offsets), key, table=to.table.name) for key in keys]
        assert lanes.offer(delivery((to, chunk(source, made))))

    def distribute() -> None:
        work = taken(lanes, 0)
        assert work.decode(lambda _record, _fault: False) is None
        lanes.spread(0, work, spread(work))

    offer(waits, *[1] * 6)
    distribute()
    lanes.halt(0, taken(lanes, 0), "its rows are bad")
    offer(stands, *[5] * 40)
    distribute()
    lanes.halt(0, taken(lanes, 0), "its rows are bad, too")
    offer(waits, 2)
    assert waits.state is UnitState.WAITING_FOR_OTHERS
    for second in range(5):
        parking.between_polls(float(second))
    assert waits.state is not UnitState.WAITING_FOR_OTHERS
