"""Report what keeps the worker from reading: the table that takes all room, and what it waits for."""

from __future__ import annotations

import math

from worker.observing.overview.figures import caught_up_seconds
from worker.observing.overview.trouble import Trouble, short, since
from worker.observing.status import TableStatus, WorkerStatus
from worker.observing.visible_text import count, duration, size

_SOON_SECONDS, _NOTHING_SECONDS, _LONG_SECONDS = 5.0, 20.0, 60.0
_SHARE = 0.8
"""Full lanes are normal while a backlog is processed: records then wait for room for a moment."""
_STANDS = ("blocked", "retrying", "paused")
_QUOTED = 100
_WAITS = {
    "gathering": "gathers a fuller batch (batch.max_wait)",
    "limited": "waits because of its handler's limit",
    "waiting for others": "waits for other tables of its next statement, or for its own rows",
}
_FIX = "Fix what the error names, set the record aside, or end a pause with binlane resume."
_FASTER = "Make its handler faster, let it get larger batches, or raise lanes.max_records."


def of_reading(status: WorkerStatus) -> Trouble | None:
    """Return what keeps partitions from being read, with its cause. None: nothing, or only for a moment."""
    parked = sum(each.paused_by == "parked" for each in status.partitions)
    share = 0.0 if status.pace is None else status.pace.waiting
    waits = status.waiting_seconds >= _SOON_SECONDS or share >= _SHARE
    full = {lane.lane for lane in status.lanes if lane.waited_for}
    by_bytes = 1 < len(full) == len(status.lanes)
    tables = [table for table in status.tables if table.lane in full or not full] if waits else []
    worst = max(tables, key=lambda each: each.lane_bytes if by_bytes else each.lane_records, default=None)
    if worst is not None and worst.lane_records and (worst.state in _STANDS or not parked):
        what = "Nothing is read" if status.waiting_seconds >= _NOTHING_SECONDS else "Reading mostly waits"
        taken = f"{count(worst.lane_records)} of {count(status.lane_max_records)} records"
        if by_bytes:
            taken = f"{size(worst.lane_bytes)} of {size(status.max_bytes or 0)}"
        full_of = "the lanes are full, most of all" if by_bytes else f"lane {worst.lane} is full"
        because = f"{full_of} of {short(worst.table)} ({taken})"
    elif parked:
        what = f"{parked} of {len(status.partitions)} partitions are not read"
        standing = [table for table in status.tables if table.state in _STANDS]
        worst = max(standing, key=lambda each: each.queued_records, default=None)
        because = "parked records have no more room on disk"
        because += "" if worst is None else f": most are of {short(worst.table)}"
    else:
        return None
    stands = worst is None or worst.state in _STANDS
    # Otherwise, that is how a backlog is processed.
    never = status.waiting_seconds >= _LONG_SECONDS or caught_up_seconds(status) == math.inf
    return Trouble(
        level="bad" if stands or never else "busy",
        what=f"{what} because {because}" + (f", which {_does(worst, status)}" if worst is not None else ""),
        error=None if worst is None else worst.error,
        do=_FIX if stands else _FASTER,
        table=None if worst is None else worst.table,
        lane=None if worst is None else worst.lane,
        runbook="BinlaneParkingFull" if parked else "BinlaneAlwaysFull",
    )


def why(table: TableStatus, status: WorkerStatus) -> list[str]:
    """Say why the table is late: what it waits for, and how old its oldest change was when it was queued."""
    idle = "all its fetched changes are finished"
    found = [idle if table.state == "idle" else f"it {_does(table, status)}"]
    if table.delay_seconds is not None and table.held_seconds is not None:
        age, held = max(0.0, table.delay_seconds - table.held_seconds), duration(table.held_seconds)
        found.append(f"its oldest change was {duration(age)} old when it was fetched, {held} ago")
    unread = [each for each in status.partitions if each.unread]
    if unread:
        paused = sum(each.paused for each in unread)
        waits = f", {paused} of their {len(unread)} partitions are paused" if paused else ""
        found.append(f"{count(sum(each.unread or 0 for each in unread))} records are not fetched yet{waits}")
    return found


def _does(table: TableStatus, status: WorkerStatus) -> str:
    error = " ".join((table.error or "").split())
    if table.state == "paused":
        return f"is {error or 'paused'}"
    if table.state in _STANDS:
        blocked = "is blocked" if table.halted else "waits for its target"
        does = "is retried" if table.state == "retrying" else blocked
        began = "" if table.standing_seconds is None else f" since {since(table.standing_seconds)}"
        return f"{does}{began}, because {error if len(error) <= _QUOTED else f'{error[: _QUOTED - 1]}…'}"
    mean = ""
    if table.calls:
        handler, (_, seconds, _) = max(table.calls.items(), key=lambda each: each[1][1])
        mean = f" (its handler {handler} takes {duration(seconds)} for a batch)"
    running = next((each for each in status.lanes if each.running_table == table.table), None)
    if running is not None:
        return f"has run a batch for {duration(running.running_seconds)}{mean}"
    first = next((each for each in status.lanes if each.lane == table.lane and each.running_table), None)
    if table.waits_for not in _WAITS and first is not None:
        runs = f"lane {first.lane} has run for {duration(first.running_seconds)}"
        return f"waits behind {short(first.running_table or '')}, which {runs}{mean}"
    return f"{_WAITS.get(table.waits_for or '', 'waits for its turn')}{mean}"
