"""Batches of tables in row order, taken and spread by hand."""

from __future__ import annotations

from building import chunk, delivery
from lane_building import offsets, taken

from worker.formats.interface import Record
from worker.lanes.lanes import Lanes
from worker.units.assigned_partition import Assignment
from worker.units.sharding import spread
from worker.units.unit import Unit
from worker.units.work import Work

__all__ = ["begun", "decoded", "dispatched", "done", "handled", "keys", "never", "offered", "stepped"]


def never(_record: object, _fault: object) -> bool:
    """No record may be passed over."""
    return False


def offered(lanes: Lanes, to: Unit, *records: Record, of: Assignment, alone: bool = False) -> None:
    assert lanes.offer(delivery((to, chunk(of, list(records), alone=alone))))


def dispatched(lanes: Lanes, lane: int = 0) -> None:
    """The next batch is one to be spread; spread it."""
    work = taken(lanes, lane)
    assert work.spreads
    assert work.decode(never) is None
    lanes.spread(lane, work, spread(work))


def decoded(lanes: Lanes, lane: int = 0) -> Work:
    """The next batch, which is to be handled."""
    work = taken(lanes, lane)
    assert not work.spreads
    assert work.decode(never) is None
    return work


def begun(lanes: Lanes, lane: int = 0) -> Work:
    """The next batch to be handled; what comes before it is spread."""
    work = taken(lanes, lane)
    while work.spreads:
        assert work.decode(never) is None
        lanes.spread(lane, work, spread(work))
        work = taken(lanes, lane)
    return work


def keys(work: Work) -> list[int]:
    return [int((change.after or change.before or {})["id"]) for change in work.changes or ()]


def done(lanes: Lanes, work: Work, lane: int = 0) -> None:
    work.finish_records(work.records)
    lanes.finish(lane, work)


def handled(lanes: Lanes) -> list[list[int]]:
    """The offsets of each batch, until nothing is ready."""
    found = []
    while any(lane.ready for lane in lanes.lanes):
        if (batch := stepped(lanes)) is not None:
            found.append(batch)
    return found


def stepped(lanes: Lanes) -> list[int] | None:
    """Spread the next batch, or handle it; the offsets that were handled."""
    work = taken(lanes, 0)
    assert work.decode(never) is None
    if work.spreads:
        lanes.spread(0, work, spread(work))
        return None
    done(lanes, work)
    return offsets(work)
