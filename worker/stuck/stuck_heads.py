"""The first unfinished record of each partition: how long it has been the first, and what blocks it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass

import msgspec

from handlers.logs import get_logger
from worker.lanes.lanes import Lanes
from worker.lanes.record_location import RecordLocation, locate, numbers
from worker.observing.status import StuckStatus
from worker.processing.slow_calls import RunningCalls
from worker.units.assigned_partition import Assignment, Assignments
from worker.units.chunk import Chunk
from worker.units.unit import Unit

log = get_logger("stuck")

_LOOK_SECONDS = 1.0
_LONGEST_SECONDS = 5.0
"""The longest time between two looks that counts, because the process may have been stopped in between."""
_LOST_SECONDS = 60.0
"""A record that is nowhere for this long is lost. It may be between two threads for a moment."""

_PAUSED_SECONDS = 300.0
"""A paused record is known after this, also with a longer `stuck_after`: alerts leave it out."""
_GROUP = "waiting for the group"
_HINTS = {
    "running": "its handler has the batch and cannot be interrupted, except by its own timeouts, a restart, "
    "or binlane unblock if it is a coroutine",
    "retrying": "fix what the error names; to set this record aside: binlane unblock",
    _GROUP: "no batch starts until the group's coordinator accepts a commit of this worker: see "
    "membership_unconfirmed and checkpoint_failed in the log",
    "halted": "fix what the error names and restart; to set this record aside: binlane unblock",
    "nowhere": "no thread has this record: restart the worker to read it again, and please report this",
}
_OTHER_HINT = "it waits for records before it: see the tables of binlane status"
_ORDER = ("halted", "retrying", "running", "paused", "waiting for others", "queued", "held back")


@dataclass(slots=True)
class _Watched:
    offset: int
    seconds: float = 0.0
    """How long it has been the first."""
    nowhere: float = 0.0
    """How long no thread has had it."""
    reported: int = 0
    """The number of reports."""
    told: StuckStatus | None = None


@dataclass(frozen=True, eq=False)
class UnfinishedRecords:
    """Where the worker's unfinished records are. Any thread.

    `units`: all tables. `held`: records that the lanes had no room for yet."""

    assignments: Assignments
    lanes: Lanes
    calls: RunningCalls
    _: KW_ONLY
    units: Callable[[], Iterable[Unit]]
    held: Callable[[], Iterable[tuple[Unit, Chunk]]]
    clock: Callable[[], float]

    def find(
        self, wanted: Mapping[Assignment, int]
    ) -> tuple[dict[Assignment, Unit], dict[Assignment, list[RecordLocation]]]:
        """Find these offsets: the tables of held ones, and the places of those in the lanes."""
        # In this order: held records move to the lanes, and none come back.
        held = {a: unit for unit, chunk in self.held() for a, _ in numbers([chunk], wanted)}
        return held, locate(self.lanes, self.units(), wanted, self.clock())


@dataclass(eq=False)
class StuckHeads:
    """Reports the first unfinished record that stays the first for `after` seconds, and again at every
    doubling. One thread looks. Any thread may use `of`, `reason` and `after`."""

    records: UnfinishedRecords
    after: float

    def __post_init__(self) -> None:
        self._watched: dict[Assignment, _Watched] = {}
        self._looked: float | None = None
        self.reason: str | None = None
        """Which records are lost within the worker, or None."""

    def of(self, assignment: Assignment) -> StuckStatus | None:
        """Return what is known of its first unfinished record, if that is stuck."""
        watched = self._watched.get(assignment)
        return None if watched is None else watched.told

    def look(self) -> None:
        """Look once a second. Call this often."""
        now = self.records.clock()
        if self._looked is not None and now < self._looked + _LOOK_SECONDS:
            return
        passed = 0.0 if self._looked is None else min(now - self._looked, _LONGEST_SECONDS)
        self._looked = now
        watched: dict[Assignment, _Watched] = {}
        for assignment in self.records.assignments.current():
            if assignment.closed:  # it is being revoked, and its unfinished records are forgotten
                continue
            head = assignment.tracker.head
            known = self._watched.get(assignment)
            if known is not None and known.offset == head:
                known.seconds += passed
                watched[assignment] = known
                continue
            if known is not None and known.reported:
                log.info(
                    "head_moved",
                    partition=str(assignment.partition),
                    offset=known.offset,
                    seconds=round(known.seconds),
                    first_unfinished=head,
                )
            if head is not None:
                watched[assignment] = _Watched(head)
        self._watched = watched
        after = min(self.after, _PAUSED_SECONDS)
        stuck = {each: known for each, known in watched.items() if known.seconds >= after}
        if stuck:
            self._report(stuck, passed)
        lost = [
            assignment.record_at(known.offset)
            for assignment, known in stuck.items()
            if known.nowhere >= _LOST_SECONDS
        ]
        self.reason = f"no thread has the unfinished records {', '.join(lost)}" if lost else None

    def _report(self, stuck: Mapping[Assignment, _Watched], passed: float) -> None:
        wanted = {assignment: known.offset for assignment, known in stuck.items()}
        held, found = self.records.find(wanted)
        for assignment, known in stuck.items():
            # Of the shards that have a part of the record, the one to look at first.
            places = found.get(assignment, ())
            place = min(places, key=lambda each: _ORDER.index(each.doing), default=None)
            told = self._told(assignment, known, place, held.get(assignment))
            if told.state == "nowhere" and assignment.tracker.head != known.offset:
                continue  # it was finished meanwhile
            if told.state != "paused" and known.seconds < self.after:
                known.told = None
                continue
            known.nowhere = known.nowhere + passed if told.state == "nowhere" else 0.0
            known.told = told
            if told.state != "paused" and known.seconds >= self.after * 2**known.reported:
                while known.seconds >= self.after * 2**known.reported:
                    known.reported += 1
                _log(assignment, told)

    def _told(
        self, assignment: Assignment, known: _Watched, place: RecordLocation | None, unit: Unit | None
    ) -> StuckStatus:
        state = "nowhere" if unit is None else "waiting for room"
        held_by = handler = handler_seconds = stack = None
        if place is not None:
            unit, state = place.unit, place.doing
            if state in ("queued", "retrying") and not self.records.lanes.trusted:
                state = _GROUP
            if place.held_by is not None:
                held_by = place.held_by[0].record_at(place.held_by[1])
            calls = self.records.calls.current().items() if state == "running" else ()
            own_calls = [pair for pair in calls if pair[1].work is place.work]
            if own_calls:  # the handler that has had the place's batch for the longest time
                thread, own = min(own_calls, key=lambda pair: pair[1].since)
                handler, handler_seconds = own.handler, round(self.records.clock() - own.since, 1)
                stack = self.records.calls.stack(thread, own)
        return StuckStatus(
            offset=known.offset,
            seconds=round(known.seconds, 1),
            behind=assignment.tracker.ahead(0),
            table=None if unit is None else unit.table.label,
            lane=place.lane if place is not None else None if unit is None else unit.lane,
            state=state,
            error=None if place is None else place.error,
            held_by=held_by,
            handler=handler,
            handler_seconds=handler_seconds,
            stack=stack,
        )


def _log(assignment: Assignment, told: StuckStatus) -> None:
    fields = msgspec.structs.asdict(told) | {"seconds": round(told.seconds)}
    log.warning(
        "head_stuck",
        partition=str(assignment.partition),
        records_behind=fields.pop("behind"),
        stack_of_handler=fields.pop("stack"),
        **fields,
        hint=_HINTS.get(told.state, _OTHER_HINT),
    )
