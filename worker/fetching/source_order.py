"""Records of several topics in the order of their source's log.

Tools such as Debezium and Maxwell write rows and DDL to different topics, and Kafka keeps no order between
topics. If `kafka.ddl_topics` names those with DDL, the partitions are merged. DDL and truncates then follow
all rows that precede them in the log, and precede all rows that follow. Rows between two such barriers are
not interleaved: each table's own partition orders them.

A record may continue once no partition of its stream can still return an earlier one. Each partition has
returned a later one, or is read to its end. An end counts only `grace` seconds after the record arrived,
because answers of several brokers may overtake each other. (Kafka Streams merges its inputs in this way, with
`max.task.idle.ms`: KIP-695.)"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field

from handlers.logs import get_logger
from worker.configuration import Configuration
from worker.formats.decoding import is_mark, learn, log_position_of
from worker.formats.interface import Record, SeparateDDL
from worker.partitions.pausing import Pauses
from worker.partitions.stage import Run, Stage
from worker.units.assigned_partition import Assignment
from worker.units.chunk import RECORD_OVERHEAD

_Key = tuple[tuple[int, ...], int]
"""(place in the log, Kafka's timestamp in ms). The timestamp decides if records have no place."""

_BEFORE_ALL: _Key = ((), -1)


@dataclass(slots=True, eq=False)
class Held:
    key: _Key
    barrier: bool
    message: Record
    came: float


@dataclass(slots=True, eq=False)
class Input:
    """One partition."""

    assignment: Assignment
    format: SeparateDDL
    has_ddl: bool
    number: int
    held: deque[Held] = field(default_factory=deque)
    bytes: int = 0
    stream: str | None = None
    """The stream of its last record; None until one has named it."""
    is_mixed: bool = False
    """Whether it has records of several streams, whose places do not compare."""
    is_logged: bool = True
    """False: so far, it has only marks (see `is_mark`), which have no place. It counts as read to its end."""
    reached: _Key = _BEFORE_ALL
    passed: _Key = _BEFORE_ALL
    """The key of the last record that was passed on."""
    next_offset: int = 0
    end: int | None = None
    """The offset of its end, while it is read to its end."""
    high: int | None = None
    """The broker's end at that moment. If it has grown, more records are on their way."""


def is_same_log(one: Input, other: Input) -> bool:
    return one.stream is None or other.stream is None or one.stream == other.stream


def count_before(one: Input, count: int, first: Held) -> int:
    """Return how many of its first `count` records do not come after `first`."""
    for number, held in enumerate(itertools.islice(one.held, count)):
        if held.key > first.key or (held.key == first.key and first.barrier and not held.barrier):
            return number
    return count


def take(one: Input, count: int) -> list[Held]:
    taken = [one.held.popleft() for _ in range(count)]
    one.passed = taken[-1].key if taken else one.passed
    one.bytes -= sum(len(held.message) + RECORD_OVERHEAD for held in taken)
    return taken


def in_order(ready: list[tuple[Input, list[Held]]]) -> Iterator[Run]:
    """Yield barriers in order, and before each one, by partition, the rows that precede it."""
    rows: dict[Assignment, list[Record]] = {}
    # Barriers first if equal: a snapshot's DDL has the place of its rows.
    sources = (
        [(rec.key, not (rec.barrier or one.has_ddl), one.number, n, rec, one) for n, rec in enumerate(run)]
        for one, run in ready
    )
    for _key, _row, _number, _n, held, one in heapq.merge(*sources):
        if held.barrier:
            yield from rows.items()
            rows = {}
            yield one.assignment, [held.message]
        else:
            rows.setdefault(one.assignment, []).append(held.message)
    yield from rows.items()


log = get_logger("source_order")


@dataclass(eq=False)
class SourceOrder(Stage):
    """Holds records back until their turn. The fetcher's own: one thread.

    `has_ddl`: whether a topic carries DDL. `high`: a partition's end according to the last fetch.
    `are_held`: whether records of a partition wait for something else (see HeldRecords). `is_damaged`:
    whether a batch of a partition cannot be read. `max_bytes`: the bound of the lanes."""

    has_ddl: Callable[[str], bool]
    _: KW_ONLY
    high: Callable[[Assignment], int | None]
    pauses: Pauses
    are_held: Callable[[], bool]
    is_damaged: Callable[[Assignment], bool]
    max_bytes: InitVar[int]
    clock: Callable[[], float]
    grace: float = 0.1

    def __post_init__(self, max_bytes: int) -> None:
        self._bound(max_bytes)
        self._inputs: dict[Assignment, Input] = {}
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        """Whether anything is held back."""
        return any(each.held for each in self._inputs.values())

    def holds(self, assignment: Assignment) -> bool:
        one = self._inputs.get(assignment)
        return one is not None and bool(one.held)

    def adopt(self, now: Configuration) -> None:
        self._bound(now.lanes.max_bytes)

    def _bound(self, max_bytes: int) -> None:
        """Hold back up to a quarter of the lanes' bytes before partitions that are ahead must pause. Above
        half, stop waiting for a partition that returns nothing."""
        self._max_bytes = max_bytes // 4

    def assigned(self, added: Collection[Assignment]) -> None:
        for assignment in added:
            if isinstance(assignment.format, SeparateDDL):
                has_ddl = self.has_ddl(assignment.partition.topic)
                self._inputs[assignment] = Input(assignment, assignment.format, has_ddl, next(self._numbers))

    def revoked(self, gone: Collection[Assignment]) -> None:
        for assignment in gone:
            self._inputs.pop(assignment, None)

    def replaced(self, old: Assignment, new: Assignment) -> None:
        self.revoked([old])
        self.assigned([new])

    def records(self, runs: Iterable[Run]) -> Iterable[Run]:
        for assignment, own in runs:
            yield from self.add(assignment, own)
        if self:
            # Such a partition returns nothing. Behind unreadable DDL, nothing continues until a person says
            # so.
            yield from self.due(
                patient=bool(self.pauses.of("max_ahead") or self.are_held())
                or any(self.is_damaged(each) for each, one in self._inputs.items() if one.has_ddl)
            )
        self.pauses.single("ddl_topics", self.ahead())

    def add(self, assignment: Assignment, messages: list[Record]) -> list[Run]:
        """Take a poll's records of one partition. Returns those that need not wait: all of a format without
        DDL topics, and marks before the first record with a place."""
        one = self._inputs.get(assignment)
        if one is None:
            return [(assignment, messages)]
        one.end = None
        now = self.clock()
        passed = []
        for message in messages:
            if one.has_ddl:
                learn(one.format, message)
            place = log_position_of(one.format, message)
            barrier = False
            is_first = place is None and one.stream is None and not one.held
            if is_first and is_mark(assignment.format, message):
                one.is_logged = False
                passed.append(message)
                continue
            if place is not None:
                one.is_logged = True
                if one.stream not in (None, place.stream) and not one.is_mixed:
                    one.is_mixed = True
                    log.error(
                        "source_order_of_several_sources",
                        partition=str(assignment.partition),
                        sources=[one.stream, place.stream],
                        hint="DDL may be applied before earlier rows: give each source its own topics",
                    )
                one.stream = place.stream
                one.reached = (place.order or one.reached[0], message.timestamp()[1])
                barrier = place.barrier
                if barrier and one.has_ddl:
                    self._tell_late(one, message)
            one.bytes += len(message) + RECORD_OVERHEAD
            one.held.append(Held(one.reached, barrier, message, now))
        one.next_offset = messages[-1].offset() + 1
        return [(assignment, passed)] if passed else []

    def _tell_late(self, one: Input, message: Record) -> None:
        """Log a statement if a record behind it in the log was passed on, unless it is a repeated one."""
        order, sent = one.reached  # a repeated statement was sent after the other record
        others = (other for other in self._inputs.values() if is_same_log(other, one))
        after = [other for other in others if other.passed[0] > order and other.passed[1] >= sent]
        if after:
            log.error(
                "statement_late",
                position=f"{one.assignment.partition} offset {message.offset()}",
                after=sorted(str(other.assignment.partition) for other in after),
                hint="Kafka delivered it after rows that follow it in the log; these were handled first",
            )

    def ended(self, assignment: Assignment, offset: int) -> bool:
        one = self._inputs.get(assignment)
        if one is None:
            return True
        if offset >= one.next_offset:  # not before a record that is already here
            one.end, one.high = offset, self.high(assignment)
        return not one.held

    def due(self, *, patient: bool = False) -> list[Run]:
        """Return what may continue now, in order: runs of records of one partition, DDL records alone.

        `patient`: a partition is not read at present, so do not give up on silent partitions."""
        now, inputs = self.clock(), self._inputs.values()
        at_end = {one for one in inputs if one.end is not None and one.high == self.high(one.assignment)}
        counts = {one: self._free(one, at_end, now) for one in inputs if one.held}
        # A waiting record, even during the grace, holds back later records of the log.
        waiting = [(one.held[count], one) for one, count in counts.items() if count < len(one.held)]
        ready = []
        for one, count in counts.items():
            first = min(
                (held for held, other in waiting if other is not one and is_same_log(other, one)),
                key=lambda held: (held.key, not held.barrier),
                default=None,
            )
            passed = count if first is None else count_before(one, count, first)
            if passed:
                ready.append((one, take(one, passed)))
        held_bytes = sum(one.bytes for one in self._inputs.values())
        if not ready and not patient and held_bytes > 2 * self._max_bytes:
            ready = self._first_of_all()
        return list(in_order(ready))

    def flush(self, assignment: Assignment, *, again: bool) -> Iterable[Run]:
        """Return everything at once, because the partition's offsets may restart."""
        one = self._inputs.get(assignment)
        if one is None:
            return []
        one.next_offset, one.end, one.high = 0, None, None
        return list(in_order([(one, take(one, len(one.held)))]))

    def ahead(self) -> list[Assignment]:
        """Return the partitions that hold more than their share: they should be paused."""
        share = self._max_bytes // max(1, len(self._inputs))
        return [assignment for assignment, one in self._inputs.items() if one.bytes > share]

    def ends(self) -> list[tuple[Assignment, int]]:
        return [(a, one.end) for a, one in self._inputs.items() if one.end is not None and not one.held]

    def _free(self, one: Input, at_end: set[Input], now: float) -> int:
        """Return how many of its first records no future record can precede."""
        # Every other partition has returned all up to this key. One with DDL may still return an equal key.
        limit, strict, ends = None, False, False
        for other in self._inputs.values():
            if other is one or not is_same_log(other, one):
                continue
            if other in at_end or not other.is_logged:
                ends = True
            elif limit is None or other.reached < limit or (other.reached == limit and other.has_ddl):
                limit, strict = other.reached, other.has_ddl
        count = 0
        for held in one.held:
            if limit is not None and (
                held.key > limit or (strict and not held.barrier and held.key == limit)
            ):
                break
            if ends and now < held.came + self.grace:
                break
            count += 1
        return count

    def _first_of_all(self) -> list[tuple[Input, list[Held]]]:
        """Choose the earliest record's partition, because too much is held and nothing is due: a partition
        returns nothing and is not at its end. Continuing is better than standing still."""
        one = min((o for o in self._inputs.values() if o.held), key=lambda o: o.held[0].key)
        log.warning(
            "source_order_given_up",
            partition=str(one.assignment.partition),
            records=len(one.held),
            hint="a partition of the same source lags behind; its DDL may be applied too late",
        )
        return [(one, take(one, len(one.held)))]
