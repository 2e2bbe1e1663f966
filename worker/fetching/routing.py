"""From a poll's records to a delivery: which table each belongs to, and that its offset is known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from confluent_kafka import Message

from handlers.logs import get_logger
from worker.attempts.backoff import text_of
from worker.configuration.table_rules import OnFailure
from worker.fetching.barrier_tables import add_barrier, further_units, hidden_behind, refusing_unit
from worker.formats.interface import Apart, PlainRoute, Record, Route, Skip, UndecodableRecord, remade
from worker.observing.metrics import Metrics
from worker.units.apart.piece_order import AnyRun, PieceOrder
from worker.units.assigned_partition import Assignment
from worker.units.chunk import Chunk
from worker.units.delivery import Delivery
from worker.units.table_book import UNDECODABLE, TableBook
from worker.units.table_names import routed
from worker.units.unit import Unit

if TYPE_CHECKING:
    from offsets.run import Run

log = get_logger("router")

# Called through the class: no lookup for each record.
_value = cast(Callable[[Record], bytes], Message.value)
_offset = cast(Callable[[Record], int], Message.offset)


_NOWHERE = PlainRoute("", UNDECODABLE)
"""The route of a record whose table cannot be told."""

_Part = tuple[Unit, list[Record], tuple[Unit, ...] | None]
"""(unit, its records, None); of a statement, which stands alone, the further tables that it is about."""


class _Explained(NamedTuple):
    """Records that were looked at one by one."""

    messages: list[Record]
    """Pieces instead of those that were taken apart."""
    routes: list[Route | None]
    """None: passed over. They end before a record that halts."""
    halt: UndecodableHalt | None
    apart: set[int]
    """The offsets of those that were taken apart."""


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
            halt, apart = None, set[int]()
        except Exception:
            messages, routes, halt, apart = self._explain(assignment, messages)
        parts, passed, count = self._sort(assignment, messages, routes)
        if count < len(routes):
            halt = self._halt
        if apart:
            offsets = list(dict.fromkeys(map(_offset, messages[:count])))
            passed = _without_parts(passed, parts)
            parts = list(_with_each_offset_once(parts))
        if count:
            run = tracker.register(offsets if apart else offsets[:count])
            run_of = self._runs(assignment, run, parts, apart.difference(passed))
            for unit, own, others in parts:
                chunk = Chunk(assignment, run_of(unit), own, others is not None, delivery.fetched)
                if others:
                    add_barrier(delivery, unit, chunk, others)
                else:
                    delivery.add(unit, chunk)
            run.finish(passed)
        if halt is not None:
            raise halt
        if end > offsets[-1] + 1:  # the poll ends with what is finished already
            tracker.reach(end)

    def _runs(
        self, assignment: Assignment, run: Run, parts: Sequence[_Part], apart: Collection[int]
    ) -> Callable[[Unit], AnyRun]:
        """What the records of each table are finished in. `apart`: the offsets of those that have pieces."""
        if apart and assignment.piece_order is None:
            assignment.piece_order = PieceOrder()
        if assignment.piece_order is None:
            return lambda _: run
        offsets: dict[tuple[str, str], list[int]] = {}
        for unit, own, _ in parts:
            offsets.setdefault(_name(unit), []).extend(map(_offset, own))
        runs = assignment.piece_order.runs(run, offsets, apart)
        return lambda unit: runs[_name(unit)]

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
            if unit is None and (unit := refusing_unit(assignment, message, route, self._book)) is None:
                passed.append(message.offset())
                continue
            # A unit was found by the route; what cannot be decoded names no other table.
            if route.alone and unit.table.label != UNDECODABLE:  # type: ignore[union-attr]
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
            found = routed(assignment.format, message)
        except UndecodableRecord as fault:
            return self._undecodable(assignment, message, fault)
        if isinstance(found, Skip):
            self._metrics.skipped(found.reason)
            return None
        assert not isinstance(found, Apart)  # of these `route` knows nothing
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

    def _explain(self, assignment: Assignment, messages: list[Record]) -> _Explained:
        """One record at a time."""
        looked_at = _Explained([], [], None, set())
        for message in messages:
            route: Route | None = None
            try:
                found = routed(assignment.format, message)
            except UndecodableRecord as fault:
                try:
                    unit = self._undecodable(assignment, message, fault)
                except UndecodableHalt as halt:
                    return looked_at._replace(halt=halt)
                route = None if unit is None else _NOWHERE
            else:
                if isinstance(found, Apart):
                    try:
                        pieces = [self._piece(assignment, message, *part) for part in found.parts]
                    except UndecodableHalt as halt:
                        return looked_at._replace(halt=halt)
                    looked_at.apart.add(message.offset())
                    for piece, route in pieces:
                        looked_at.messages.append(piece)
                        looked_at.routes.append(route)
                    continue
                if isinstance(found, Skip):
                    self._metrics.skipped(found.reason)
                else:
                    route = found
            looked_at.messages.append(message)
            looked_at.routes.append(route)
        return looked_at

    def _piece(
        self, assignment: Assignment, whole: Record, own: Route, value: bytes
    ) -> tuple[Record, Route | None]:
        """A piece of a record that was taken apart, and its route. Raises UndecodableHalt."""
        piece = remade(whole, whole.key(), value, whole.headers())
        if own.table:
            # Now, so that sorting ends before none of them.
            self._book.meet(own.database, own.table)
            return piece, own
        try:
            routed(assignment.format, piece)
        except UndecodableRecord as fault:
            if self._undecodable(assignment, piece, fault) is not None:
                return piece, _NOWHERE
        return piece, None

    def _undecodable(self, assignment: Assignment, message: Record, fault: UndecodableRecord) -> Unit | None:
        """Where the record goes to become a dead letter, None to pass over it, or UndecodableHalt: as
        configured. Nothing is written on this thread, which must go on polling."""
        hidden = hidden_behind(assignment.format, message, fault, self._book)
        if self._on_undecodable == "dead_letter" and not hidden:
            return self._book.undecodable()
        place = f"{assignment.partition} offset {message.offset()}"
        if self._on_undecodable == "halt" or hidden:
            advice = hidden or "To pass over all such records set on_undecodable: skip, or dead_letter"
            raise UndecodableHalt(
                f"undecodable record at {place}: {text_of(fault)}. {advice}; to pass over this one, if "
                "binlane checkpoint show says that a start would begin at it: binlane checkpoint set CONFIG "
                f"--topic {message.topic()} --partition {message.partition()} --offset {message.offset() + 1}"
            ) from fault
        log.error("record_skipped", position=place, error=text_of(fault))
        self._metrics.skipped("undecodable")
        return None


def _name(unit: Unit) -> tuple[str, str]:
    return unit.table.database, unit.table.name


def _without_parts(passed: list[int], parts: Sequence[_Part]) -> list[int]:
    """Those that no table gets a piece of, each once."""
    kept = {offset for _, own, _ in parts for offset in map(_offset, own)}
    return [offset for offset in dict.fromkeys(passed) if offset not in kept]


def _with_each_offset_once(parts: Iterable[_Part]) -> Iterator[_Part]:
    """A table may get several pieces of one record, as a statement about another table was between them. What
    a chunk holds is found by its offset, so that each of them is in another one."""
    for unit, own, others in parts:
        begin = 0
        for place in range(1, len(own)):
            if _offset(own[place]) == _offset(own[place - 1]):
                yield unit, own[begin:place], others
                begin = place
        yield unit, own[begin:], others
