"""A person's order about one record, given to the batch that is blocked at it."""

from __future__ import annotations

from worker.attempts.set_aside import SetAside
from worker.lanes.lanes import Lanes
from worker.units.unit import Unit, UnitState
from worker.units.work import Work


def set_aside(lanes: Lanes, unit: Unit, work: Work, number: int, order: SetAside) -> bool:
    """Give the order about the batch's record to `unit`, the table or shard that keeps the batch, and retry
    it at once. Returns False, and does nothing, if the unit is not blocked at that record."""
    with lanes.lock:
        schedule = lanes.schedule
        if schedule.kept.get(unit) is not work or not blocked_at(unit, work, number):
            return False
        work.orders = {**work.orders, number: order}  # an earlier order about another record stays
        for run in work.runs:
            run.circuit.hurry()
        if unit.state in (UnitState.HALTED, UnitState.BACKOFF):
            unit.mended()
            schedule.let_run((unit,))
            schedule.wake()
        return True


def blocked_at(unit: Unit, work: Work, number: int) -> bool:
    """Whether this kept batch failed or waits for its target, and a handler must handle that record."""
    waits = unit.state is UnitState.HALTED or unit.error is not None
    return waits and number in work.stands_at()
