"""A reload takes a table's rule away: its handlers stay open until the last of its records is through."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from building import Clock, assignment, chunk, configuration, delivery, record
from lane_building import taken

from worker.configuration import Configuration, LanesRule
from worker.fetching.backpressure import Backlog
from worker.lanes.lanes import Lanes
from worker.lanes.schedule import Schedule
from worker.running.handler_set import HandlerSet
from worker.units.table_book import TableBook
from worker.units.unit import Unit


class Site:
    """One lane for one record, and the tables shop.a and shop.b, of which a reload leaves shop.a."""

    def __init__(self) -> None:
        rules = configuration({"match": "shop.a"}, {"match": "shop.b"}, lanes={"count": 1})
        self.handlers = HandlerSet(rules)
        self.handlers.open()
        self.book = TableBook(rules, self.handlers.of)
        self.lanes = Lanes(LanesRule(count=1, max_records=1, max_bytes=10**9, work_stealing=True), Clock())
        self.backlog = Backlog(self.lanes, 1, 10**9)
        self.assignment = assignment()

    def unit(self, name: str) -> Unit:
        found = self.book.meet("shop", name)
        assert found is not None
        return found

    def came(self, unit: Unit, offset: int) -> None:
        self.backlog.add(delivery((unit, chunk(self.assignment, [record(offset, unit.table.name)]))))

    def leave_b(self) -> None:
        now: Configuration = configuration({"match": "shop.a"}, lanes={"count": 1})
        self.handlers.adopt(self.handlers.plan(now))
        self.lanes.give_tables(self.book.adopt(now))

    def busy(self) -> list[Unit]:
        return self.book.busy(self.backlog.parts, self.lanes.at_rest)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_table_is_busy_as_long_as_records_of_it_wait_for_room(site: Site) -> None:
    a, b = site.unit("a"), site.unit("b")
    site.came(a, 0)
    site.came(b, 1)
    site.leave_b()
    assert site.busy() == [a, b]
    site.lanes.finish(0, taken(site.lanes, 0))
    assert site.backlog.offer()
    assert site.busy() == [a, b]
    site.lanes.finish(0, taken(site.lanes, 0))
    assert site.busy() == [a]


def test_a_table_is_busy_between_two_of_its_batches(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks while a processor changes it is answered behind that."""
    b = site.unit("b")
    site.lanes = Lanes(LanesRule(count=1, max_records=10, max_bytes=10**9, work_stealing=True), Clock())
    site.backlog = Backlog(site.lanes, 10, 10**9)
    site.came(b, 0)
    running = taken(site.lanes, 0)
    site.came(b, 1)
    site.leave_b()
    found: list[list[Unit]] = []
    asking = threading.Thread(target=lambda: found.append(site.busy()))
    arrange: Callable[[Schedule, Unit], int] = Schedule.arrange

    def asked_meanwhile(schedule: Schedule, unit: Unit) -> int:
        chunks, unit.chunks = unit.chunks, type(unit.chunks)()  # as where a batch is put back
        asking.start()
        asking.join(0.1)
        unit.chunks = chunks
        return arrange(schedule, unit)

    monkeypatch.setattr(Schedule, "arrange", asked_meanwhile)
    site.lanes.finish(0, running)
    asking.join()
    assert found == [[b]]
