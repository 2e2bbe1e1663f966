"""Standing tables fill the lanes: nobody else waits for them, however full the disk is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from building import Clock, assignment, unit
from lane_building import Source, lanes_of, taken

from worker.fetching.parking import Parking
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignments
from worker.units.parking_files import ParkingLot
from worker.units.unit import UnitState

MOST = 20_000


@pytest.fixture
def lot(tmp_path: Path) -> Iterator[ParkingLot]:
    lot = ParkingLot(tmp_path)
    yield lot
    lot.close()


class NoConsumer:
    def pause(self, places: object) -> None:
        pass

    resume = pause


def test_a_table_whose_retry_runs_for_long_is_parked_for_who_waits(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 2, max_records=100)
    bad, good, source = unit("bad", batch={"max_records": 5}), unit("good"), Source(lanes)
    pauses = Pauses(NoConsumer(), Assignments())  # type: ignore[arg-type]  # the part that is used
    parking = Parking(lot, lanes, lambda: (bad, good), pauses, most=1 << 30)
    for _ in range(9):
        assert source.offer((bad, 10))
    lanes.give_back(0, taken(lanes, 0), delay=0.0, error="it failed")
    assert taken(lanes, 0).unit is bad
    parking.between_polls(0.0)
    assert source.offer((good, 60))


def test_partitions_of_others_are_read_when_the_disk_is_full(lot: ParkingLot) -> None:
    lanes, assignments = lanes_of(Clock(), 1, max_records=1_000), Assignments()
    one, two = Source(lanes, assignment(0)), Source(lanes, assignment(1))
    assignments.add([one.assignment, two.assignment])
    bad, good = [unit(f"bad{number}") for number in range(20)], unit("good")
    pauses = Pauses(NoConsumer(), assignments)  # type: ignore[arg-type]  # the part that is used
    parking = Parking(lot, lanes, lambda: (*bad, good), pauses, most=MOST)
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
    """Records that come one by one take more memory than their files take of the disk."""
    lanes, assignments = lanes_of(Clock(), 1, max_records=10, max_bytes=100_000), Assignments()
    source, bad = Source(lanes), unit("bad")
    assignments.add([source.assignment])
    pauses = Pauses(NoConsumer(), assignments)  # type: ignore[arg-type]  # the part that is used
    parking = Parking(lot, lanes, lambda: (bad,), pauses, most=1 << 30)
    assert source.offer((bad, 1))
    lanes.halt(0, taken(lanes, 0), "it failed")
    now = 0.0
    while pauses.why(source.assignment) is None and bad.parked < 200:
        assert source.offer((bad, 1))
        parking.between_polls(now := now + 10.0)
    assert 90 < bad.parked < 110
    lanes.give_tables([(bad, unit("bad").table)])
    lanes.finish(0, taken(lanes, 0))
    while bad.state is not UnitState.IDLE:
        lanes.finish(0, taken(lanes, 0))
    parking.between_polls(now + 10.0)
    assert (lot.memory, pauses.why(source.assignment)) == (0, None)


def test_a_batch_of_parked_records_is_no_larger_than_a_lane(lot: ParkingLot) -> None:
    lanes = lanes_of(Clock(), 1, max_records=5)
    bad, source = unit("bad", batch={"max_records": 1_000}), Source(lanes)
    pauses = Pauses(NoConsumer(), Assignments())  # type: ignore[arg-type]  # the part that is used
    parking = Parking(lot, lanes, lambda: (bad,), pauses, most=1 << 30)
    assert source.offer((bad, 1))
    lanes.halt(0, taken(lanes, 0), "it failed")
    for number in range(5):
        assert source.offer((bad, 4))
        parking.between_polls(float(number))
    lanes.give_tables([(bad, bad.table)])
    lanes.finish(0, taken(lanes, 0))
    assert taken(lanes, 0).records == lanes.lanes[0].records == 5
