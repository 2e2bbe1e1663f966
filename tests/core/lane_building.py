"""Lanes for tests, and a source that queues records as they are fetched."""

from __future__ import annotations

from typing import Any

from building import Clock, assignment, chunk, ddl, delivery, record

from worker.configuration import LanesRule
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment
from worker.units.delivery import Delivery
from worker.units.unit import Unit
from worker.units.work import Work

__all__ = ["BIG", "Source", "closed", "has_room", "lanes_of", "offsets", "taken"]

BIG = 10**9


def lanes_of(clock: Clock, count: int = 2, **bounds: Any) -> Lanes:
    rules = {"max_records": BIG, "max_bytes": BIG, "work_stealing": True} | bounds
    return Lanes(LanesRule(count=count, **rules), clock)


class Source:
    """One partition whose records are queued as they are fetched."""

    def __init__(self, lanes: Lanes, of: Assignment | None = None) -> None:
        self.lanes = lanes
        self.assignment = of or assignment()
        self.next = 0

    def offer(self, *parts: tuple[Unit, int], value: bytes | None = b"x" * 100) -> bool:
        """So many records for each of these units, as one poll."""
        made = []
        for to, count in parts:
            records = [record(self.next + n, value=value) for n in range(count)]
            self.next += count
            made.append((to, chunk(self.assignment, records)))
        return self.lanes.offer(delivery(*made))

    def offer_ddl(self, to: Unit) -> bool:
        statement = chunk(self.assignment, [ddl(self.next)], alone=True)
        self.next += 1
        return self.lanes.offer(delivery((to, statement)))


def taken(lanes: Lanes, lane: int) -> Work:
    work = lanes.take(lane)
    assert work is not None
    return work


def offsets(work: Work) -> list[int]:
    return [message.offset() for _, message in work.messages()]


def closed(*assignments: Assignment) -> set[Assignment]:
    for each in assignments:
        each.closed = True
    return set(assignments)


def has_room(lanes: Lanes, what: Delivery, *, max_records: int, max_bytes: int) -> bool:
    """Whether the lanes must take it: empty they take anything, else what stays within their bounds."""
    held = [lane.records for lane in lanes.lanes]
    size = sum(lane.bytes for lane in lanes.lanes)
    return all(
        not held[number] or held[number] + records <= max_records for number, records in what.records.items()
    ) and (not size or size + what.bytes <= max_bytes)
