"""From a poll's records to a delivery: find each record's table, and register its offset."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from confluent_kafka import Message

from handlers.logs import get_logger
from offsets.run import Run
from worker.attempts.backoff import text_of
from worker.column_rules.plan import ShownBehind
from worker.configuration.table_rules import OnFailure
from worker.fetching.barrier_tables import add_barrier, concerned_unit, further_units, refusal
from worker.formats.interface import Apart, PlainRoute, Record, Route, Skip, UndecodableRecord, remade
from worker.observing.metrics import Metrics
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.piece_order import AnyRun, PieceOrder
from worker.units.table import routed
from worker.units.table_book import UNDECODABLE, TableBook
from worker.units.unit import Unit

log = get_logger("router")

# Called through the class, which saves a look-up for each record.
_value = cast(Callable[[Record], bytes], Message.value)
_offset = cast(Callable[[Record], int], Message.offset)


_NOWHERE = PlainRoute("", UNDECODABLE)
"""The route of a record whose table cannot be determined."""

_Part = tuple[Unit, list[Record], int | None, tuple[Unit, ...] | None]
"""(unit, its records, the bytes of their values if they are counted, None). For a statement, which is a batch
alone, the last is: the other tables that it concerns."""


class _Explained(NamedTuple):
    """Records that were examined one by one."""

    messages: list[Record]
    """With pieces in place of split records."""
    routes: list[Route | None]
    """None: skipped. The routes end before a record that halts."""
    halt: UndecodableHalt | None
    apart: set[int]
    """The offsets of split records."""


class UndecodableHalt(Exception):
    """The table of a record cannot be determined, and `on_undecodable` is halt."""


class Router:
    """Routes the records of one partition and poll at a time. One thread."""

    def __init__(self, book: TableBook, metrics: Metrics, *, on_undecodable: OnFailure) -> None:
        self._book = book
        self._metrics = metrics
        self._on_undecodable = on_undecodable
        if on_undecodable == "dead_letter":
            metrics.count(
                "binlane_dead_letters_total", UNDECODABLE, amount=0
            )  # so that the first increase is visible
        self._halt: UndecodableHalt | None = None

    def let_go(self, at_rest: Callable[[Iterable[Unit]], list[Unit]]) -> None:
        """Between two polls: release tables if there are too many (see TableBook.let_go)."""
        self._book.let_go(at_rest)

    def route(self, assignment: Assignment, messages: list[Record], delivery: Delivery) -> None:
        """Register the records with the partition's tracker, and add one chunk per table to the delivery.

        Raises UndecodableHalt at the first record that must stop the worker. Earlier records are delivered.
        That record and later ones are not registered."""
        tracker, fetched = assignment.tracker, messages
        if self._book.whole and assignment.transactions.in_use:
            _read_transactions(assignment, fetched, delivery)
        offsets = list(map(_offset, messages))
        end = offsets[-1] + 1
        if offsets[0] < tracker.fresh_from:
            messages, offsets = self._unknown(assignment, messages, offsets)
            if not messages:
                return
        try:
            # A value of None raises too, and takes the slow path.
            routes: Sequence[Route | None] = list(map(assignment.format.route, map(_value, messages)))
            halt, apart = None, set[int]()
        except Exception:
            messages, routes, halt, apart = self._explain(assignment, messages)
        parts, passed, count = self._sort(assignment, messages, routes)
        self._look_for_whole(assignment, fetched, parts, delivery)
        if count < len(routes):
            halt = self._halt
        if apart:
            offsets = list(dict.fromkeys(map(_offset, messages[:count])))
            passed = _without_parts(passed, parts)
            parts = list(_with_each_offset_once(parts))
        if count:
            run = tracker.register(offsets if apart else offsets[:count])
            run_of = self._runs(assignment, run, parts, apart.difference(passed))
            for unit, own, size, others in parts:
                chunk = Chunk(assignment, run_of(unit), own, others is not None, delivery.fetched, size=size)
                if others:
                    add_barrier(delivery, unit, chunk, others)
                else:
                    delivery.add(unit, chunk)
            run.finish(passed)
        if halt is not None:
            raise halt
        if end > offsets[-1] + 1:  # the poll ends with records that are already finished
            tracker.reach(end)

    def _look_for_whole(
        self, assignment: Assignment, fetched: Sequence[Record], parts: Sequence[_Part], delivery: Delivery
    ) -> None:
        """Read the partition's transactions from this poll on, if a table now needs them."""
        known = assignment.transactions
        if self._book.whole and not known.in_use and any(unit.table.whole for unit, *_ in parts):
            known.in_use = True
            _read_transactions(assignment, fetched, delivery)

    def _runs(
        self, assignment: Assignment, run: Run, parts: Sequence[_Part], apart: Collection[int]
    ) -> Callable[[Unit], AnyRun]:
        """Return, for each table, the run that tracks its records. `apart`: the offsets of split records."""
        if apart and assignment.piece_order is None:
            assignment.piece_order = PieceOrder()
        if assignment.piece_order is None:
            return lambda _: run
        offsets: dict[tuple[str, str], list[int]] = {}
        for unit, own, _, _ in parts:
            offsets.setdefault(_name(unit), []).extend(map(_offset, own))
        runs = assignment.piece_order.runs(run, offsets, apart)
        return lambda unit: runs[_name(unit)]

    def _sort(
        self, assignment: Assignment, messages: list[Record], routes: Sequence[Route | None]
    ) -> tuple[list[_Part], list[int], int]:
        """Return the parts, the offsets that no handler needs, and how many records were sorted."""
        parts: list[_Part] = []
        touched: list[Unit] = []
        passed: list[int] = []
        units = self._book.units
        count = unmatched = 0
        for message, route in zip(messages, routes, strict=False):  # routes may end before a bad record
            try:
                unit = units[route.database][route.table]  # type: ignore[union-attr]  # None: skipped
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
            if route is not None and route.alone and (unit is None or unit.table.label != UNDECODABLE):
                # An undecodable record names no other table.
                try:
                    unit = self._stated(assignment, message, unit, touched, parts)
                except UndecodableHalt as halt:
                    self._halt = halt
                    break
                count += 1
                if unit is None:
                    passed.append(message.offset())
                continue
            count += 1
            if unit is None:
                passed.append(message.offset())
                continue
            if not unit.incoming:
                touched.append(unit)
            unit.incoming.append(message)
            unit.incoming_bytes += len(message)  # here, where the poll's memory is read in its order
        parts += map(_incoming, touched)
        if unmatched:
            self._pass_unmatched(unmatched)
        return parts, passed, count

    def _meet(self, assignment: Assignment, message: Record, route: Route) -> Unit | None:
        """Return the unit of a table that is not known yet. None if no handler needs the record."""
        try:
            found = routed(assignment.format, message)
        except UndecodableRecord as fault:
            return self._undecodable(assignment, message, fault)
        if isinstance(found, Skip):
            self._metrics.count("binlane_records_skipped_total", found.reason)
            return None
        assert not isinstance(found, Apart)  # `route` does not know these
        unit = self._book.meet(found.database, found.table)
        self._book.note(route.database, route.table, unit)
        if unit is None:
            self._pass_unmatched(1)
        return unit

    def _pass_unmatched(self, records: int) -> None:
        self._book.unmatched.records += records
        self._metrics.count("binlane_records_skipped_total", "unmatched", amount=records)

    def _unknown(
        self, assignment: Assignment, messages: list[Record], offsets: list[int]
    ) -> tuple[list[Record], list[int]]:
        """Remove records that an earlier worker finished, or that this one has already fetched."""
        new = set(assignment.tracker.unknown(offsets))
        self._metrics.count(
            "binlane_records_skipped_total", "finished_before", amount=len(offsets) - len(new)
        )
        if not new:
            assignment.tracker.reach(offsets[-1] + 1)
        return [m for m in messages if m.offset() in new], [o for o in offsets if o in new]

    def _explain(self, assignment: Assignment, messages: list[Record]) -> _Explained:
        """Examine one record at a time."""
        looked_at = _Explained([], [], None, set())
        for message in messages:
            try:
                pieces = self._pieces(assignment, message)
            except UndecodableHalt as halt:
                return looked_at._replace(halt=halt)
            for piece, route in pieces:
                looked_at.messages.append(piece)
                looked_at.routes.append(route)
                if piece is not message:
                    looked_at.apart.add(message.offset())
        return looked_at

    def _pieces(self, assignment: Assignment, message: Record) -> list[tuple[Record, Route | None]]:
        """Return the record, or its pieces, with their routes. Raises UndecodableHalt."""
        try:
            found = routed(assignment.format, message)
        except UndecodableRecord as fault:
            unit = self._undecodable(assignment, message, fault)
            return [(message, None if unit is None else _NOWHERE)]
        if isinstance(found, Apart):
            return [self._piece(assignment, message, *part) for part in found.parts]
        if isinstance(found, Skip):
            self._metrics.count("binlane_records_skipped_total", found.reason)
            return [(message, None)]
        return [(message, found)]

    def _piece(
        self, assignment: Assignment, whole: Record, own: Route, value: bytes
    ) -> tuple[Record, Route | None]:
        """Return a piece of a split record, and its route. Raises UndecodableHalt."""
        piece = remade(whole, whole.key(), value)
        if own.table:
            # Now, because sorting must not stop between the pieces.
            self._book.meet(own.database, own.table)
            if own.alone:
                self._refusal(assignment, piece)
            return piece, own
        try:
            routed(assignment.format, piece)
        except UndecodableRecord as fault:
            if self._undecodable(assignment, piece, fault) is not None:
                return piece, _NOWHERE
        return piece, None

    def _refusal(self, assignment: Assignment, message: Record) -> ShownBehind | None:
        """Return why column rules refuse a statement. Raises UndecodableHalt if rows of a table in an unknown
        database may show what they hide afterwards: no table can wait for the statement."""
        fault = refusal(assignment.format, message)
        if fault is not None and not all(one.database for one in fault.tables):
            self._undecodable(assignment, message, fault)
        return fault

    def _stated(
        self,
        assignment: Assignment,
        message: Record,
        unit: Unit | None,
        touched: list[Unit],
        parts: list[_Part],
    ) -> Unit | None:
        """Add a statement to the parts, after the earlier records of all tables that it concerns. `unit`: the
        table of its record. Return the table that gets it, if any. Raises UndecodableHalt."""
        fault = self._refusal(assignment, message)
        unit = unit or concerned_unit(assignment, message, fault, self._book)
        if unit is not None:
            others = further_units(assignment, message, unit, fault, self._book)
            for each in (unit, *others):
                if each.incoming:
                    touched.remove(each)
                    parts.append(_incoming(each))
            parts.append((unit, [message], None, others))
        return unit

    def _undecodable(self, assignment: Assignment, message: Record, fault: UndecodableRecord) -> Unit | None:
        """Apply `on_undecodable`: return the unit for dead letters, None to skip the record, or raise
        UndecodableHalt. Writes nothing: this thread must continue polling."""
        hidden = refusal(assignment.format, message)
        if self._on_undecodable == "dead_letter" and not hidden:
            return self._book.undecodable()
        place = f"{assignment.partition} offset {message.offset()}"
        if self._on_undecodable == "halt" or hidden:
            advice = "To skip all such records, set on_undecodable: skip, or dead_letter"
            if hidden is not None:
                advice = f"Later rows could show what column rules hide: {hidden}"
            raise UndecodableHalt(
                f"undecodable record at {place}: {text_of(fault)}. {advice}; if binlane checkpoint show says "
                "that a start begins at this record, skip it with: binlane checkpoint set CONFIG --topic "
                f"{message.topic()} --partition {message.partition()} --offset {message.offset() + 1}"
            ) from fault
        log.error("record_skipped", position=place, error=text_of(fault))
        self._metrics.count("binlane_records_skipped_total", "undecodable")
        return None


def _read_transactions(assignment: Assignment, fetched: Sequence[Record], delivery: Delivery) -> None:
    known = assignment.transactions
    delivery.queued.append((known, known.read(fetched, assignment.committed)))


def _name(unit: Unit) -> tuple[str, str]:
    return unit.table.database, unit.table.name


def _incoming(unit: Unit) -> _Part:
    """Take the unit's records of this poll."""
    part = unit, unit.incoming, unit.incoming_bytes, None
    unit.incoming, unit.incoming_bytes = [], 0
    return part


def _without_parts(passed: list[int], parts: Sequence[_Part]) -> list[int]:
    """Return the skipped offsets without a piece in any table, each once."""
    kept = {offset for _, own, _, _ in parts for offset in map(_offset, own)}
    return [offset for offset in dict.fromkeys(passed) if offset not in kept]


def _with_each_offset_once(parts: Iterable[_Part]) -> Iterator[_Part]:
    """Split parts with several pieces of one record, which a table gets if a statement about another table
    was between them. Pieces in a chunk are found by offset, so each must be in a separate chunk."""
    for unit, own, _, others in parts:
        begin = 0
        for place in range(1, len(own)):
            if _offset(own[place]) == _offset(own[place - 1]):
                yield unit, own[begin:place], None, others
                begin = place
        yield unit, own[begin:], None, others
