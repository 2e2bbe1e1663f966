"""Parked records of tables in row order: their rows continue as long as one of them can."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from building import Clock, assignment, chunk, delivery
from lane_building import lanes_of, taken
from parking_building import parking_of
from row_building import row_unit, rows

from worker.fetching.backpressure import Backlog
from worker.lanes.lanes import Lanes
from worker.units.parking_files import ParkingLot
from worker.units.sharding import spread
from worker.units.work import Work


class Site:
    """One table in row order, and what parks its rows."""

    def __init__(self, lot: ParkingLot, records: int, **rule: Any) -> None:
        self.lanes: Lanes = lanes_of(Clock(), 1, max_records=records)
        self.table = row_unit("t", **rule)
        self.parking = parking_of(lot, self.lanes, self.table)
        self.source = assignment()
        self._now = 0.0

    def records(self, first: int, *keys: int) -> Any:
        made = [rows(first + number, key, table="t") for number, key in enumerate(keys)]
        return delivery((self.table, chunk(self.source, made)))

    def park(self) -> None:
        self._now += 1
        self.parking.between_polls(self._now)

    def run(self, end: Callable[[int, Work], None]) -> None:
        """Park and handle until nothing more happens."""
        idle = 0
        while idle < 5:
            self.park()
            idle += 1
            while self.lanes.schedule.ready:
                idle = 0
                work = taken(self.lanes, 0)
                if work.parked:
                    work.load()
                assert work.decode(lambda _record, _fault: False) is None
                if work.spreads:
                    self.lanes.spread(0, work, spread(work))
                else:
                    end(0, work)


@pytest.fixture
def made(lot: ParkingLot) -> Callable[..., Site]:
    return partial(Site, lot)


def test_they_continue_before_new_records_that_fill_the_lane(made: Callable[..., Site]) -> None:
    site = made(4)
    lanes = site.lanes
    assert lanes.offer(site.records(0, 7))
    lanes.halt(0, taken(lanes, 0), "it failed")
    for offset in range(1, 4):
        assert lanes.offer(site.records(offset, 7))
        site.park()
    assert (site.table.parked, lanes.lanes[0].records) == (3, 0)
    assert Backlog(lanes, 4, 1 << 30).add(site.records(4, 7, 7, 7, 7))
    lanes.give_tables([(site.table, site.table.table)])
    site.run(lanes.finish)
    assert site.table.at_rest


def test_other_rows_continue_while_one_that_is_retried_fills_the_lane(made: Callable[..., Site]) -> None:
    site = made(5, batch={"max_records": 5})
    lanes = site.lanes
    assert lanes.offer(site.records(0, *[7] * 5))
    lanes.give_back(0, taken(lanes, 0), delay=1e6, error="paused")
    site.table.blocked = True
    another = delivery((site.table, chunk(assignment(), [rows(0, 0, table="t")])))
    assert not lanes.offer(another)
    site.park()
    lanes.forget_refused()
    for offset in range(5, 20):
        assert lanes.offer(site.records(offset, offset))
        site.park()
    lanes.unblock()

    def end(number: int, work: Work) -> None:
        if work.chunks[0].messages[0].offset() < 5:
            lanes.give_back(number, work, delay=1e6, error="it fails each time")
        else:
            lanes.finish(number, work)

    site.run(end)
    assert site.table.records == 0


def test_other_rows_continue_behind_a_halted_one_while_the_files_are_full(made: Callable[..., Site]) -> None:
    site = made(10)
    lanes = site.lanes
    for offset in range(60):
        assert lanes.offer(site.records(offset, 7 if offset % 3 == 0 else offset))
        if not offset:
            lanes.halt(0, taken(lanes, 0), "it failed")
        site.park()
    site.parking.most = 1
    lanes.give_tables([(site.table, site.table.table)])

    def end(number: int, work: Work) -> None:
        if work.chunks[0].messages[0].offset() % 3 == 0:
            lanes.halt(number, work, "it fails each time")
        else:
            lanes.finish(number, work)

    site.run(end)
    assert site.table.records == 0, "all are distributed"


def test_a_ready_row_frees_room_in_the_lane_of_its_table(made: Callable[..., Site]) -> None:
    """Its shard may queue in another lane."""
    lanes, source = lanes_of(Clock(), 3, max_records=4), assignment()
    table = row_unit("t")
    assert lanes.offer(delivery((table, chunk(source, [rows(n, 1, table="t") for n in range(4)]))))
    work = taken(lanes, 0)
    assert work.decode(lambda _record, _fault: False) is None
    lanes.spread(0, work, spread(work))
    assert table.shards is not None
    [shard] = table.shards.units.values()
    assert shard.lane != table.account.lane
    assert not lanes.offer(delivery((table, chunk(source, [rows(9, 1, table="t")]))))
    assert lanes.schedule._frees_room()
