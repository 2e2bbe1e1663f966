"""Other lanes, bounds and tables while batches run. Callers hold the lock of `Lanes`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from worker.lanes.lane import Lane, Room
from worker.lanes.schedule import Schedule
from worker.units.unit import Unit, UnitState

if TYPE_CHECKING:
    from worker.configuration import LanesRule
    from worker.units.table import Table


def resize(
    lanes: list[Lane],
    rule: LanesRule,
    room: Room,
    schedule: Schedule,
    *,
    home: Callable[[Unit], int],
    units: Iterable[Unit],
    lock: threading.Lock,
) -> list[int]:
    """Give the lanes this rule's count and bounds, and every table its home among them.

    Lanes beyond the count stay in the list until their last batch ends. Returns those that need a processor.
    """
    first = len(lanes)
    lanes.extend(Lane(number, lock) for number in range(first, rule.count))
    room.max_records, room.max_bytes = rule.max_records, rule.max_bytes
    schedule.rehome(rule.count, home, units, stealing=rule.work_stealing)
    schedule.look_again()
    schedule.wake()
    for lane in lanes:
        lane.condition.notify_all()
    free = [lane for lane in lanes[: rule.count] if lane.number >= first or not lane.manned]
    for lane in free:
        lane.manned = True
    return [lane.number for lane in free]


def give_tables(changed: Iterable[tuple[Unit, Table]], schedule: Schedule) -> None:
    """Let tables go on by other rules and handlers; what halted or waits to be tried again is tried now, and
    who gathers a fuller batch does so by the new rule."""
    for unit, table in changed:
        members = unit.members()
        for member in members:
            member.table = table
        again = [member for member in members if member.state in (UnitState.HALTED, UnitState.BACKOFF)]
        for member in again:
            member.mended()
        schedule.let_run(again)
    schedule.look_again()
    schedule.wake()
