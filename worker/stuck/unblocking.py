"""Sets aside one record that blocks its table, if a person says so. Otherwise says what is wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime

from handlers.logs import get_logger
from offsets.types import TopicPartition
from worker.attempts.steps import ORDERED, SetAside
from worker.lanes.record_location import RecordLocation, blocked_at, set_aside
from worker.observing.unblock_messages import Refused, UnblockAnswer, UnblockRequest
from worker.stuck.stuck_heads import UnfinishedRecords
from worker.units.assigned_partition import Assignment, with_earlier
from worker.units.unit import Unit
from worker.units.work import Work

log = get_logger("unblock")

_LOOK_SECONDS = 0.05
_RUNS_SECONDS = 5.0
"""A batch that is retried runs from time to time. This is the longest wait until it does not run."""
_DONE_SECONDS = 25.0
"""The longest wait until an order is carried out: a dead letter may take 20 s."""


_Given = tuple[Work, int]
"""A batch that got the order, and the record's number in it."""


@dataclass(frozen=True, slots=True)
class _Found:
    assignment: Assignment
    locations: list[RecordLocation]
    """Of the record, in the requested table."""


@dataclass(eq=False)
class Unblocking:
    """One order at a time. Any thread. Waits for the processors.

    `commit`: saves what is finished, and returns whether
    Kafka has it. `letters`: there is a dead-letter topic. `stopped`: whether the worker is about to stop."""

    records: UnfinishedRecords
    _: KW_ONLY
    commit: Callable[[], bool]
    letters: bool
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        # Two orders about one record would not know of each other.
        self._lock = threading.Lock()

    def __call__(self, asked: UnblockRequest, client: str) -> UnblockAnswer:
        """`client`: the address that the request came from."""
        who = {"by": asked.by, "client": client, "table": asked.table, "action": asked.action}
        if self._lock.acquire(blocking=False):
            try:
                answer = self._do(asked, who)
            except Refused as refused:
                answer = UnblockAnswer(result="refused", message=str(refused))
            finally:
                self._lock.release()
        else:
            busy = "another record is being unblocked: try again when that is done"
            answer = UnblockAnswer(result="refused", message=busy)
        log.warning(
            "unblock_refused" if answer.result == "refused" else "unblock_answered",
            position=answer.position or f"offset {asked.offset}",
            result=answer.result,
            found=answer.message,
            letters=answer.letters,
            committed=answer.committed,
            **who,
        )
        return answer

    def _do(self, asked: UnblockRequest, who: Mapping[str, str]) -> UnblockAnswer:
        """Give the order, and wait for its outcome. Raises Refused."""
        found = self._find(asked)
        order, given = self._order(asked, found)
        log.warning("unblock_ordered", position=found.assignment.record_at(asked.offset), **who)
        return self._outcome(asked, found.assignment, order, given)

    def _find(self, asked: UnblockRequest) -> _Found:
        """Find the record in the table. Raises Refused."""
        if asked.action == "dead_letter" and not self.letters:
            raise Refused(
                "dead_letter.topic is not set in this worker's configuration: set it, or use --skip"
            )
        current = [
            each
            for each in self.records.assignments.current()
            if asked.topic in (None, each.partition.topic)
            and asked.partition in (None, each.partition.partition)
        ]
        # Recreated topics too: records of the former topic go first, and may block the table.
        owned = sorted(with_earlier(current), key=lambda each: each.epoch)
        if not current:
            have = (
                ", ".join(sorted(str(each.partition) for each in self.records.assignments.current()))
                or "none"
            )
            raise Refused(f"this worker lacks that partition; it has {have}. Ask the worker that has it")
        if not any(unit.table.label == asked.table for unit in self.records.units()):
            raise Refused(f"this worker has read no table {asked.table}: write database.table, as in status")
        held, seen = self.records.find(dict.fromkeys(owned, asked.offset))
        found: dict[TopicPartition, _Found] = {}
        for assignment in owned:
            own = [place for place in seen.get(assignment, ()) if place.unit.table.label == asked.table]
            if own:
                found.setdefault(assignment.partition, _Found(assignment, own))
        if len(found) > 1:
            where = ", ".join(sorted(map(str, found)))
            raise Refused(f"{asked.table} has offset {asked.offset} in {where}: give --topic and --partition")
        for only in found.values():
            return only
        whose = {each: own[0].unit for each, own in seen.items()} | held
        raise Refused("; ".join(_missing(each, asked, whose.get(each)) for each in current))

    def _order(self, asked: UnblockRequest, found: _Found) -> tuple[SetAside, list[_Given]]:
        """Give the order to the batches that are blocked at the record. Raises Refused."""
        order = SetAside(asked.action, asked.by)
        end, was_cancelled, lanes = self.records.clock() + _RUNS_SECONDS, False, self.records.lanes
        # With the time: a coroutine that has ignored the last order is cancelled again.
        reason = f"{ORDERED}, by {asked.by}, at {datetime.now(UTC):%H:%M:%S}"
        while True:
            given = [
                (place.work, place.number)
                for place in found.locations
                if place.work is not None
                and set_aside(lanes, place.unit, place.work, place.number, order, or_before=was_cancelled)
            ]
            if given:
                return order, given
            if not found.assignment.tracker.is_unfinished(asked.offset):
                raise Refused(f"{found.assignment.record_at(asked.offset)} has just finished")
            for place in found.locations:  # a coroutine can be cancelled: it is then retried, with the order
                if place.doing == "running" and place.work and place.work.reaches(place.number):
                    was_cancelled |= self.records.calls.cancel(reason, place.work)
            blocked = any(_may_be_set_aside(place) for place in found.locations)
            if not blocked or self.records.clock() > end or self.stopped():
                raise Refused(self._why_not(asked, found, was_cancelled=was_cancelled))
            time.sleep(_LOOK_SECONDS)
            found = self._find(asked)

    def _outcome(
        self, asked: UnblockRequest, assignment: Assignment, order: SetAside, given: list[_Given]
    ) -> UnblockAnswer:
        position = assignment.record_at(asked.offset)
        last = self.records.clock() + _RUNS_SECONDS
        end = last - _RUNS_SECONDS + _DONE_SECONDS
        while assignment.tracker.is_unfinished(asked.offset):
            # In this order: what is done counts as finished a moment before.
            through = all(work.finished > number for work, number in given)
            if not assignment.tracker.is_unfinished(asked.offset):
                break
            if through or assignment.closed or self.stopped() or self.records.clock() > end:
                return UnblockAnswer(
                    result="ordered",
                    message=self._not_yet(asked, assignment, order, through=through),
                    position=position,
                    letters=order.letters,
                )
            if self.records.clock() > last:
                for work in (work for work, number in given if work.reaches(number)):  # it hangs, too
                    self.records.calls.cancel(f"{ORDERED}, by {asked.by}", work)
            time.sleep(_LOOK_SECONDS)
        committed = self.commit()
        again = "" if committed else "; this is not in Kafka yet, so a crash before the next commit undoes it"
        if not order.changes:
            message = (
                f"{position} was tried once more, and its handlers accepted it: nothing was set aside{again}"
            )
            return UnblockAnswer(result="handled", message=message, position=position, committed=committed)
        letters = order.letters
        how = f"written to {', '.join(letters)}" if letters else "skipped"
        return UnblockAnswer(
            result="set_aside",
            message=f"{position} is set aside: {how}{again}",
            position=position,
            letters=letters,
            committed=committed,
        )

    def _not_yet(
        self, asked: UnblockRequest, assignment: Assignment, order: SetAside, *, through: bool
    ) -> str:
        if assignment.closed:
            return "the partition is leaving this worker: ask its next owner, if it is blocked there too"
        if self.stopped():
            return "the worker is stopping: check whether the record is still blocked when it runs again"
        _, now = self.records.find({assignment: asked.offset})
        doing = "; ".join(
            f"{place.doing}{': ' + place.error if place.error else ''}" for place in now.get(assignment, ())
        )
        if through:
            return (
                f"its blocked rows are done, {order.changes} of them set aside; other rows wait for records "
                f"before them ({doing or 'under way'}): see what blocks {asked.table} now"
            )
        part = f"{order.changes} of its rows are set aside, " if order.changes else ""
        return (
            f"{part}it is not finished yet ({doing or 'under way'}); the order is valid while this worker "
            "keeps the record, and the log shows when it is done"
        )

    def _why_not(self, asked: UnblockRequest, found: _Found, *, was_cancelled: bool) -> str:
        """Explain why an existing record cannot be set aside."""
        position = found.assignment.record_at(asked.offset)
        running = next((place for place in found.locations if place.doing == "running"), None)
        if running is not None:
            return f"{position} {self._runs(asked, found, running, was_cancelled)}"
        if any(place.doing == "held back" for place in found.locations):
            by, offset = next(place.held_by for place in found.locations if place.held_by is not None)
            return (
                f"{position} is done, but counts only when {by.record_at(offset)} is, which has unfinished "
                "rows: look for that one"
            )
        return f"{position} is not what blocks {asked.table}: {self._stands(asked.table)}"

    def _runs(self, asked: UnblockRequest, found: _Found, place: RecordLocation, cancelled: bool) -> str:
        now = self.records.clock()
        calls = [call for call in self.records.calls.current().values() if call.work is place.work]
        who = ", ".join(f"handler {call.handler} for {now - call.since:.0f} s" for call in calls)
        told = f"is in a running batch ({who or f'lane {place.lane}'})"
        if not calls or place.error is not None:
            return f"{told}: try again"
        partition = found.assignment.partition
        line = (
            f"binlane checkpoint set CONFIG --topic {partition.topic} --partition {partition.partition} "
            f"--offset {asked.offset + 1}"
        )
        if found.assignment.tracker.head != asked.offset:
            line = f"once it is the partition's first unfinished record, {line}"
        why = "A running handler cannot be interrupted, and nothing shows that it fails: give it a timeout"
        if cancelled:
            why = "It was cancelled, and has not ended: unblock it again, which cancels it again"
        return (
            f"{told}. {why}. If it hangs, restart the worker; if it hangs there again, stop the worker and "
            f"skip the record: {line} (records finished behind it are repeated)"
        )

    def _stands(self, table: str) -> str:
        """Name the records at which the table is blocked."""
        found = []
        with self.records.lanes.lock:
            kept = self.records.lanes.schedule.kept
            for unit in (unit for unit in self.records.units() if unit.table.label == table):
                for member in unit.members():
                    work = kept.get(member)
                    if work is None:
                        continue
                    offsets = list(work.offsets())
                    for number in sorted(work.stands_at()):
                        if number < len(offsets) and blocked_at(member, work, number):
                            chunk, offset = offsets[number]
                            found.append(chunk.assignment.record_at(offset))
        if not found:
            return "the table is not blocked, and continues by itself"
        return f"that is blocked at {', '.join(dict.fromkeys(found))}"


def _may_be_set_aside(place: RecordLocation) -> bool:
    """Whether it may help to wait for the end of its batch, because it may be retried just now."""
    if place.doing == "running" or place.work is None:
        return place.doing == "running"
    return place.number in place.work.stands_at()


def _missing(assignment: Assignment, asked: UnblockRequest, unit: Unit | None) -> str:
    tracker, offset = assignment.tracker, asked.offset
    position = assignment.record_at(offset)
    if unit is not None and unit.table.label != asked.table:
        return f"{position} is of table {unit.table.label}, not of {asked.table}"
    if unit is not None:
        return f"{position} waits for room in the lanes: records before it are not done"
    if tracker.is_unfinished(offset):
        return f"{position} is under way: try again"
    if tracker.next_offset is None or offset >= tracker.next_offset:
        return f"{position} has not been read yet (read up to {tracker.next_offset})"
    return f"{position} is not unfinished: it is done, or does not exist"
