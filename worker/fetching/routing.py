"""From a poll's records to a delivery: which table each belongs to, and that its offset is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from confluent_kafka import Message

from handlers.logs import get_logger
from worker.configuration.table_rules import OnFailure
from worker.fetching.barrier_tables import add_barrier, further_units
from worker.formats.decoding import explained
from worker.formats.interface import Record, Route, Skip, UndecodableRecord
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.table_book import UNDECODABLE, TableBook
from worker.units.unit import Unit

__all__ = ["Router", "UndecodableHalt"]

log = get_logger("router")

# Called through the class: no lookup for each record.
_value = cast(Callable[[Record], bytes], Message.value)
_offset = cast(Callable[[Record], int], Message.offset)


@dataclass(frozen=True, slots=True)
class _Nowhere:
    """The route of a record whose table cannot be told."""

    database: str = ""
    table: str = UNDECODABLE
    alone: bool = False


_NOWHERE = _Nowhere()


_Part = tuple[Unit, list[Record], tuple[Unit, ...] | None]
"""(unit, its records, None); of a statement, which stands alone, the further tables that it is about."""


class UndecodableHalt(Exception):
    """A record whose table cannot be told, and `on_undecodable` says halt."""


class Router:
    """Routes the records of one partition and poll at a time. One thread."""

    def __init__(self, book: TableBook, metrics: Metrics, *, on_undecodable: OnFailure) -> None:
        self._book = book
        self._metrics = metrics
        self._on_undecodable = on_undecodable
        if on_undecodable == "dead_letter":
            metrics.dead_letter(UNDECODABLE, 0)  # a counter that begins at 1 shows no increase
        self._halt: UndecodableHalt | None = None

    def let_go(self, at_rest: Callable[[Iterable[Unit]], list[Unit]]) -> None:
        """Between two polls: let go of tables if there are too many (see TableBook.let_go)."""
        self._book.let_go(at_rest)

    def route(self, assignment: Assignment, messages: list[Record], delivery: Delivery) -> None:
        """Register the records with the partition's tracker and add them to the delivery, a chunk a table.

        Raises UndecodableHalt at the first record that must stop the worker; those before it are delivered,
        it and the rest are not registered.
        """
        tracker = assignment.tracker
        offsets = list(map(_offset, messages))
        end = offsets[-1] + 1
        if offsets[0] < tracker.fresh_from:
            messages, offsets = self._unknown(assignment, messages, offsets)
            if not messages:
                return
        try:
            # A value of None, too, is the slow path's.
            routes: Sequence[Route | None] = list(map(assignment.format.route, map(_value, messages)))
            halt = None
        except Exception:
            routes, halt = self._explain(assignment, messages)
        parts, passed, count = self._sort(assignment, messages, routes)
        if count < len(routes):
            halt = self._halt
        if count:
            run = tracker.register(offsets[:count])
            for unit, own, others in parts:
                chunk = Chunk(assignment, run, own, alone=others is not None)
                if others:
                    add_barrier(delivery, unit, chunk, others)
                else:
                    delivery.add(unit, chunk)
            run.finish(passed)
        if halt is not None:
            raise halt
        if end > offsets[-1] + 1:  # the poll ends with what is finished already
            tracker.reach(end)

    def _sort(
        self, assignment: Assignment, messages: list[Record], routes: Sequence[Route | None]
    ) -> tuple[list[_Part], list[int], int]:
        """The parts; offsets that nothing handles; how many were sorted."""
        parts: list[_Part] = []
        touched: list[Unit] = []
        passed: list[int] = []
        units = self._book.units
        count = unmatched = 0
        for message, route in zip(messages, routes, strict=False):  # routes may end before a bad record
            try:
                unit = units[route.database][route.table]  # type: ignore[union-attr]  # None: passed over
            except KeyError:
                try:
                    unit = self._meet(assignment, message, route)  # type: ignore[arg-type]  # has a name
                except UndecodableHalt as halt:
                    self._halt = halt
                    break
            except AttributeError:
                unit = None
            else:
                unmatched += unit is None
            count += 1
            if unit is None:
                passed.append(message.offset())
                continue
            if route.alone:  # type: ignore[union-attr]  # a unit was found by it
                others = further_units(assignment, message, unit, self._book)
                for each in (unit, *others):
                    if each.incoming:
                        touched.remove(each)
                        parts.append((each, each.incoming, None))
                        each.incoming = []
                parts.append((unit, [message], others))
                continue
            if not unit.incoming:
                touched.append(unit)
            unit.incoming.append(message)
        for unit in touched:
            parts.append((unit, unit.incoming, None))
            unit.incoming = []
        if unmatched:
            self._pass_unmatched(unmatched)
        return parts, passed, count

    def _meet(self, assignment: Assignment, message: Record, route: Route) -> Unit | None:
        """The unit of a table that is not known yet; None when nothing handles the record."""
        try:
            found = explained(assignment.format, message)
        except UndecodableRecord as fault:
            return self._undecodable(assignment, message, fault)
        if isinstance(found, Skip):
            self._metrics.skipped(found.reason)
            return None
        unit = self._book.meet(found.database, found.table)
        self._book.note(route.database, route.table, unit)
        if unit is None:
            self._pass_unmatched(1)
        return unit

    def _pass_unmatched(self, records: int) -> None:
        self._book.unmatched.records += records
        self._metrics.skipped("unmatched", records)

    def _unknown(
        self, assignment: Assignment, messages: list[Record], offsets: list[int]
    ) -> tuple[list[Record], list[int]]:
        """Without what an earlier worker finished, and what this one fetched already."""
        new = set(assignment.tracker.unknown(offsets))
        self._metrics.skipped("finished_before", len(offsets) - len(new))
        if not new:
            assignment.tracker.reach(offsets[-1] + 1)
        return [m for m in messages if m.offset() in new], [o for o in offsets if o in new]

    def _explain(
        self, assignment: Assignment, messages: list[Record]
    ) -> tuple[list[Route | None], UndecodableHalt | None]:
        """One record at a time: a route, or None for what is passed over; ends before one that halts."""
        routes: list[Route | None] = []
        for message in messages:
            try:
                found = explained(assignment.format, message)
            except UndecodableRecord as fault:
                try:
                    unit = self._undecodable(assignment, message, fault)
                except UndecodableHalt as halt:
                    return routes, halt
                routes.append(None if unit is None else _NOWHERE)
                continue
            if isinstance(found, Skip):
                self._metrics.skipped(found.reason)
                routes.append(None)
            else:
                routes.append(found)
        return routes, None

    def _undecodable(self, assignment: Assignment, message: Record, fault: UndecodableRecord) -> Unit | None:
        """Where the record goes to become a dead letter, None to pass over it, or UndecodableHalt: as
        configured. Nothing is written on this thread, which must go on polling."""
        if self._on_undecodable == "dead_letter":
            return self._book.undecodable()
        place = f"{assignment.partition} offset {message.offset()}"
        if self._on_undecodable == "halt":
            raise UndecodableHalt(
                f"undecodable record at {place}: {fault}. To pass over all such records set on_undecodable: "
                "skip, or dead_letter; to pass over this one, if binlane checkpoint show says that a start "
                f"would begin at it: binlane checkpoint set CONFIG --topic {message.topic()} "
                f"--partition {message.partition()} --offset {message.offset() + 1}"
            ) from fault
        log.error("record_skipped", position=place, error=str(fault))
        self._metrics.skipped("undecodable")
        return None
